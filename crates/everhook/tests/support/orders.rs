//! What is posted: events of every sort, alone and in batches, with keys of both kinds, and
//! webhooks of a provider.

use super::chance::Chance;
use super::intake::{self, SOURCES, Source};
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
    /// A webhook that comes to this source, and goes to the handler.
    Received(&'static Source),
}

impl Sort {
    /// The event's type.
    ///
    /// Of a webhook, the server says what it is.
    pub(crate) const fn event_type(self) -> &'static str {
        match self {
            Self::Plain => "order.made",
            Self::Flaky => "order.flaky",
            Self::Slow => "order.slow",
            Self::Refused => "order.refused",
            Self::Unheard => "nobody.listens",
            Self::Fatal => "poison.made",
            Self::Received(_) => "",
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
            Self::Received(_) => &[Target::Handler],
        }
    }

    /// The type that an endpoint subscribes to, so that [`Self::targets`] is so; `None`: it takes
    /// what comes to the sources.
    pub(crate) const fn subscription(target: Target) -> Option<&'static str> {
        match target {
            Target::Ready => Some("order.*"),
            Target::Flaky => Some(Self::Flaky.event_type()),
            Target::Slow => Some(Self::Slow.event_type()),
            Target::Refusing => Some(Self::Refused.event_type()),
            Target::Fatal => Some(Self::Fatal.event_type()),
            Target::Handler => None,
        }
    }
}

/// One event to be posted.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    /// Its source event ID; of a webhook, the source and the provider's id.
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

    /// The provider's id of a webhook.
    pub(crate) fn provider_id(&self) -> &str {
        self.source_id.rsplit('/').next().unwrap_or_default()
    }

    /// Whether a request with this body brings it.
    pub(crate) fn is_brought_by(&self, body: &str) -> bool {
        match self.sort {
            Sort::Received(_) => body == self.json(),
            Sort::Plain
            | Sort::Flaky
            | Sort::Slow
            | Sort::Refused
            | Sort::Unheard
            | Sort::Fatal => body.contains(&format!(r#""data":{}"#, self.data())),
        }
    }

    fn json(&self) -> String {
        if let Sort::Received(_) = self.sort {
            return intake::body(self.provider_id(), &self.data());
        }
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
    pub(crate) fn call(&self) -> String {
        match self.source() {
            Some(source) => source.call(),
            None if self.is_batch() => "POST /api/v1/events/batch".to_owned(),
            None => "POST /api/v1/events".to_owned(),
        }
    }

    /// Where it comes in, if it is a webhook.
    pub(crate) fn source(&self) -> Option<&'static Source> {
        match self.events.first()?.sort {
            Sort::Received(source) => Some(source),
            Sort::Plain
            | Sort::Flaky
            | Sort::Slow
            | Sort::Refused
            | Sort::Unheard
            | Sort::Fatal => None,
        }
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
    /// The provider's id of a webhook that is still to come to the last source.
    shared: Option<String>,
}

impl Orders {
    /// The orders of this seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self { chance: Chance::new(seed), made: 0, shared: None }
    }

    /// The next order.
    pub(crate) fn next(&mut self) -> Order {
        let [first, last] = &SOURCES;
        if let Some(id) = self.shared.take() {
            return webhook(last, &id);
        }
        if self.chance.below(8) == 0 {
            self.made += 1;
            let id = format!("order-{}", self.made);
            self.shared = Some(id.clone());
            return webhook(first, &id);
        }
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

fn webhook(source: &'static Source, id: &str) -> Order {
    let source_id = format!("{}/{id}", source.name);
    Order { events: vec![Planned { source_id, sort: Sort::Received(source) }], key: None, tries: 0 }
}
