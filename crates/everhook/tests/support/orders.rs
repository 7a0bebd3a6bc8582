//! What is posted: events of every sort, alone and in batches, with keys of both kinds.

use super::chance::Chance;
use super::receiver::Target;

/// Which endpoints an event goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    /// Only to the one that takes everything.
    Plain,
    /// Also to the one that refuses some attempts.
    Flaky,
    /// Also to the one that takes its time.
    Slow,
    /// Also to the one that refuses everything.
    Refused,
    /// To none.
    Unheard,
    /// Only to the one at whose request the server is killed. Never by chance.
    Fatal,
}

impl Sort {
    /// The event's type.
    pub(crate) const fn event_type(self) -> &'static str {
        match self {
            Self::Plain => "order.made",
            Self::Flaky => "order.flaky",
            Self::Slow => "order.slow",
            Self::Refused => "order.refused",
            Self::Unheard => "nobody.listens",
            Self::Fatal => "poison.made",
        }
    }

    /// Where it goes.
    pub(crate) const fn targets(self) -> &'static [Target] {
        match self {
            Self::Plain => &[Target::Ready],
            Self::Flaky => &[Target::Ready, Target::Flaky],
            Self::Slow => &[Target::Ready, Target::Slow],
            Self::Refused => &[Target::Ready, Target::Refusing],
            Self::Unheard => &[],
            Self::Fatal => &[Target::Fatal],
        }
    }

    /// What an endpoint subscribes to, so that [`Self::targets`] is so.
    pub(crate) const fn subscription(target: Target) -> &'static str {
        match target {
            Target::Ready => "order.*",
            Target::Flaky => Self::Flaky.event_type(),
            Target::Slow => Self::Slow.event_type(),
            Target::Refusing => Self::Refused.event_type(),
            Target::Fatal => Self::Fatal.event_type(),
        }
    }
}

/// One event to be posted.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    /// Its source event ID.
    pub(crate) source_id: String,
    /// Where it goes.
    pub(crate) sort: Sort,
}

impl Planned {
    /// Its `data`, in a spelling that no program would choose when it writes JSON anew.
    pub(crate) fn data(&self) -> String {
        let Self { source_id, .. } = self;
        format!(r#"{{ "source":"{source_id}" ,"sum": 1.50E+2, "text":"\u00e9\/é", "list":[ ]}}"#)
    }

    fn json(&self) -> String {
        let (source_id, event_type) = (&self.source_id, self.sort.event_type());
        let data = self.data();
        format!(r#"{{"type":"{event_type}","source_event_id":"{source_id}","data":{data}}}"#)
    }
}

/// One POST, which is repeated until it is answered.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    /// The events; several make a batch.
    pub(crate) events: Vec<Planned>,
    /// The `Idempotency-Key`.
    pub(crate) key: Option<String>,
    /// How often it was sent.
    pub(crate) tries: u32,
}

impl Order {
    /// What to call.
    pub(crate) fn call(&self) -> &'static str {
        if self.is_batch() { "POST /api/v1/events/batch" } else { "POST /api/v1/events" }
    }

    /// Whether it is a batch.
    pub(crate) fn is_batch(&self) -> bool {
        self.events.len() > 1
    }

    /// What to send.
    pub(crate) fn body(&self) -> String {
        let events: Vec<_> = self.events.iter().map(Planned::json).collect();
        let events = events.join(",");
        if self.is_batch() { format!(r#"{{"events":[{events}]}}"#) } else { events }
    }
}

/// An endless supply of orders.
#[derive(Debug)]
pub(crate) struct Orders {
    chance: Chance,
    made: u64,
}

impl Orders {
    /// The orders of this seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self { chance: Chance::new(seed), made: 0 }
    }

    /// The next order.
    pub(crate) fn next(&mut self) -> Order {
        let count = if self.chance.below(12) == 0 { self.chance.between(2, 6) } else { 1 };
        let events = (0..count).map(|_| self.plan()).collect();
        let keyed = self.chance.below(4) == 0;
        Order { events, key: keyed.then(|| format!("key-{}", self.made)), tries: 0 }
    }

    fn plan(&mut self) -> Planned {
        self.made += 1;
        let sort = match self.chance.below(100) {
            0..=1 => Sort::Refused,
            2..=17 => Sort::Flaky,
            18..=33 => Sort::Slow,
            34..=37 => Sort::Unheard,
            _ => Sort::Plain,
        };
        Planned { source_id: format!("order-{}", self.made), sort }
    }
}
