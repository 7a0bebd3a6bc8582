//! What happens in a world: everything is drawn from its seed before it begins.

use std::time::Duration;

use everhook_domain::fault::Step;
use everhook_domain::schedule::Schedule;
use everhook_engine::EngineSettings;
use everhook_store::{Decision, StorePolicy};

use crate::book::Deed;
use crate::rng::Rng;
use crate::sources::{self, Inbox, Letter};

const SECOND: i64 = 1_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;
/// Calls of the store that take no longer make nothing late.
const SWIFT_MS: i64 = 2;

/// The types that are published; the first two share a prefix.
pub(crate) const EVENT_TYPES: [&str; 3] = ["invoice.paid", "invoice.sent", "user_created"];

/// The steps at which a process may be told to die. The others are the web server's.
const STEPS: [Step; 10] = [
    Step::CommitBegin,
    Step::CommitBefore,
    Step::CommitAfter,
    Step::HandedOver,
    Step::SendBefore,
    Step::SendAfter,
    Step::SettleBefore,
    Step::SettleAfter,
    Step::Claimed,
    Step::Lapsed,
];

/// How a receiver behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// Takes everything, quickly.
    Healthy,
    /// Refuses the first requests of each delivery.
    Fails {
        /// So many.
        first: u32,
    },
    /// Nobody listens.
    DownUntil {
        /// Until then.
        ms: i64,
    },
    /// Refuses now and then.
    Moody {
        /// So often in a hundred times.
        percent: u64,
    },
    /// Takes everything, after seconds.
    Slow,
    /// Never answers.
    Hangs,
    /// Cuts the connection.
    Resets,
}

/// A receiver, and the endpoint that leads to it.
#[derive(Clone, Debug)]
pub(crate) struct Receiver {
    /// How it behaves.
    pub(crate) manner: Manner,
    /// It behaves so to the end; otherwise everything is well once the world has healed.
    pub(crate) stubborn: bool,
    /// Which events the endpoint wants.
    pub(crate) wants: &'static str,
    /// The endpoint's limit on requests a second.
    pub(crate) per_second: Option<u32>,
    /// The endpoint's limit on requests under way.
    pub(crate) in_flight: Option<u32>,
}

impl Receiver {
    /// Whether events of this type go to it.
    pub(crate) fn wants(&self, event_type: &str) -> bool {
        match self.wants.strip_suffix('*') {
            Some(prefix) => event_type.starts_with(prefix),
            None => event_type == self.wants,
        }
    }
}

/// Something to be published.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    /// The event's type.
    pub(crate) event_type: &'static str,
    /// The source event ID.
    pub(crate) source: Option<String>,
    /// Makes the data longer.
    pub(crate) filler: &'static str,
}

/// Something that a caller does.
#[derive(Clone, Debug)]
pub(crate) enum Call {
    /// Publishes, with an idempotency key or without.
    /// Two calls of one number are the same call, made twice.
    Publish { number: usize, items: Vec<Item>, key: Option<String> },
    /// Sends a test event to an endpoint.
    Test { receiver: usize },
    /// Does something to some delivery, with an idempotency key or without.
    Act { deed: Deed, key: Option<String> },
    /// Sends some event again: to one endpoint, or to all.
    SendAgain { receiver: Option<usize> },
    /// Pauses, and resumes later.
    Pause { receiver: usize, for_ms: i64 },
    /// Disables, and enables later.
    Disable { receiver: usize, for_ms: i64 },
    /// Deletes.
    Delete { receiver: usize },
    /// Rotates the secret; or changes URL, headers and limits.
    Update { receiver: usize, rotate: bool },
    /// Sends a webhook to a source.
    Send(Letter),
    /// Decides about some receipt, with an idempotency key or without.
    Decide { decision: Decision, key: Option<String> },
    /// Changes the secret of a source; the old one verifies on, or does not.
    ChangeSecret { source: usize, keep_old: bool },
}

/// Something that befalls the process.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Blow {
    /// It dies now, and the next one starts after a while. Or it lives on as a zombie for a while
    /// and the next one starts at once.
    Crash { down_ms: i64, zombie_ms: Option<i64> },
    /// It dies when it reaches a step for the `nth` time.
    CrashAt { step: Step, nth: u32, down_ms: i64 },
    /// It is stopped in good order, and the next one starts after a while.
    Stop { down_ms: i64 },
    /// Commits fail for a while.
    Fail { percent: u64, for_ms: i64 },
    /// The wall clock is set.
    Step { by_ms: i64 },
}

/// A world before it begins.
#[derive(Clone, Debug)]
pub(crate) struct Profile {
    /// What the store is told.
    pub(crate) policy: StorePolicy,
    /// What the engine is told.
    pub(crate) settings: EngineSettings,
    /// The receivers.
    pub(crate) receivers: Vec<Receiver>,
    /// What is received.
    pub(crate) inbox: Inbox,
    /// Receivers that answer quickly answer at once.
    pub(crate) instant: bool,
    /// What callers do, by time.
    pub(crate) calls: Vec<(i64, Call)>,
    /// What befalls the process, by time.
    pub(crate) blows: Vec<(i64, Blow)>,
    /// How long a call of the store is on its way at most, and its answer again.
    pub(crate) store_ms: i64,
    /// From then on everything is well.
    pub(crate) heal_ms: i64,
    /// How far the wall clock is set forward in all.
    pub(crate) forward_ms: i64,
    /// How far the wall clock is set back in all.
    pub(crate) back_ms: i64,
    /// Nothing in this world keeps an attempt from being on time but what the book holds.
    pub(crate) timely: bool,
}

impl Profile {
    /// The world of this seed.
    pub(crate) fn of(seed: u64) -> Self {
        let mut rng = Rng::new(seed, "profile");
        let spans = [20 * SECOND, 3 * MINUTE, 3 * MINUTE, 40 * MINUTE, 8 * HOUR, 30 * HOUR];
        let span_ms = rng.pick(&spans);
        let tight = rng.percent(10);
        let store_ms = rng.pick(&[0, 0, 0, 1, SWIFT_MS, 50, 800]);
        // In some worlds things happen at the same instant again and again.
        let grid_ms = rng.pick(&[1, 1, 1, SECOND, 10 * SECOND]);
        let receivers = receivers(&mut rng, span_ms);
        let mut calls = calls(&mut rng, span_ms, receivers.len());
        let (inbox, incoming) = sources::draw(seed, span_ms, receivers.len());
        calls.extend(incoming);
        // Stable: what comes at the same instant keeps the order in which it was drawn.
        calls.sort_by_key(|(at_ms, _)| *at_ms);
        let calls = on_grid(grid_ms, calls);
        let blows = on_grid(grid_ms, blows(&mut rng, span_ms, &calls));
        let steps = blows.iter().filter_map(|(_, blow)| match blow {
            Blow::Step { by_ms } => Some(*by_ms),
            _ => None,
        });
        let steps: Vec<i64> = steps.collect();
        Self {
            policy: policy(&mut rng),
            settings: settings(&mut rng, tight),
            receivers,
            inbox,
            instant: grid_ms > 1,
            calls,
            blows,
            heal_ms: span_ms + 30 * SECOND,
            back_ms: -steps.iter().filter(|by_ms| **by_ms < 0).sum::<i64>(),
            forward_ms: steps.iter().filter(|by_ms| **by_ms > 0).sum(),
            timely: !tight && steps.is_empty() && store_ms <= SWIFT_MS,
            store_ms,
        }
    }
}

impl Profile {
    /// How far the instant in an event's id may be ahead of the one at which it was accepted: the
    /// instants in ids never fall, whatever clocks do and whoever overtakes whom.
    pub(crate) fn ahead_max(&self) -> Duration {
        Duration::from_millis((self.back_ms + 2 * self.store_ms).unsigned_abs())
    }
}

fn on_grid<T>(grid_ms: i64, list: Vec<(i64, T)>) -> Vec<(i64, T)> {
    list.into_iter().map(|(at_ms, item)| (at_ms - at_ms % grid_ms, item)).collect()
}

fn policy(rng: &mut Rng) -> StorePolicy {
    let schedule = if rng.percent(75) {
        Schedule::default()
    } else {
        let mut offsets = vec![Duration::ZERO];
        for _ in 0..rng.between(0, 5) {
            let gap = rng.pick(&[1, 2, 10, 59, 61, 600, 4_000]);
            let last = offsets.last().copied().unwrap_or_default();
            offsets.push(last + Duration::from_secs(gap));
        }
        Schedule::new(offsets).unwrap_or_default()
    };
    StorePolicy {
        schedule,
        honor_retry_after: rng.percent(20),
        interruptions_max: if rng.percent(80) { 20 } else { rng.pick(&[1, 2, 4]) },
        ..StorePolicy::default()
    }
}

fn settings(rng: &mut Rng, tight: bool) -> EngineSettings {
    let mut settings = EngineSettings::default();
    if tight {
        settings.in_flight_max = rng.pick(&[1, 2, 4, 9]);
        settings.endpoint_in_flight_max = rng.pick(&[1, 2, 5]);
        settings.lane_handoff_max = rng.pick(&[1, 2, 64]);
        settings.in_flight_bytes_max = rng.pick(&[200, 1_200, 2 << 20]);
        settings.results_waiting_max = rng.pick(&[1, 3, 1_000]);
        settings.failing_requests_per_second = rng.pick(&[1, 10]);
    }
    settings
}

fn receivers(rng: &mut Rng, span_ms: i64) -> Vec<Receiver> {
    let count = rng.pick(&[1, 1, 2, 2, 2, 3, 3, 4, 6]);
    let mut receivers = Vec::with_capacity(count);
    for _ in 0..count {
        let manner = match rng.between(0, 99) {
            0..45 => Manner::Healthy,
            45..58 => Manner::Fails { first: u32::try_from(rng.between(1, 6)).unwrap_or(1) },
            58..68 => Manner::DownUntil { ms: rng.between(0, span_ms) },
            68..80 => Manner::Moody { percent: rng.pick(&[10, 50, 90]) },
            80..88 => Manner::Slow,
            88..94 => Manner::Hangs,
            _ => Manner::Resets,
        };
        receivers.push(Receiver {
            manner,
            stubborn: rng.percent(50),
            wants: rng.pick(&["*", "*", "*", "invoice.*", EVENT_TYPES[0], EVENT_TYPES[2]]),
            per_second: rng.percent(8).then(|| rng.pick(&[1, 2, 5, 50])),
            in_flight: rng.percent(12).then(|| rng.pick(&[1, 2, 3])),
        });
    }
    receivers
}

fn calls(rng: &mut Rng, span_ms: i64, receivers: usize) -> Vec<(i64, Call)> {
    let mut calls = Vec::new();
    let mut bursts = Vec::new();
    for _ in 0..rng.between(1, 4) {
        bursts.push(rng.between(0, span_ms));
    }
    let mut sources = 0;
    let publications = rng.pick(&[1, 3, 5, 8, 12, 20]);
    for number in 0..publications {
        // Half of them come together.
        let at_ms = match rng.percent(50) {
            true => rng.pick(&bursts) + rng.between(0, 300),
            false => rng.between(0, span_ms),
        };
        let count = if rng.percent(85) { 1 } else { rng.between(2, 4) };
        let mut items = Vec::new();
        for _ in 0..count {
            items.push(item(rng, &mut sources));
        }
        let key = rng.percent(25).then(|| format!("publish-{number}"));
        let call = Call::Publish { number, items, key };
        if rng.percent(15) {
            // The same again: at the same instant, soon, or when the window has ended.
            let again = rng.pick(&[0, 0, 40, 5_000, 86_390_000, 86_400_000, 90_000_000]);
            if at_ms + again <= span_ms {
                calls.push((at_ms + again, call.clone()));
            }
        }
        calls.push((at_ms, call));
    }
    for number in 0..rng.pick(&[0, 0, 1, 2, 4, 8]) {
        let at_ms = match rng.percent(40) {
            true => rng.pick(&bursts) + rng.between(0, 400),
            false => rng.between(0, span_ms),
        };
        calls.push((at_ms, other_call(rng, span_ms, receivers, number)));
    }
    calls
}

fn item(rng: &mut Rng, sources: &mut u32) -> Item {
    let source = match rng.between(0, 99) {
        0..40 => None,
        // One that may have been used before.
        40..55 => Some(format!("source-{}", rng.between(0, i64::from(*sources)))),
        _ => {
            *sources += 1;
            Some(format!("source-{sources}"))
        }
    };
    Item { event_type: rng.pick(&EVENT_TYPES), source, filler: rng.pick(&["", "x", "long enough"]) }
}

fn other_call(rng: &mut Rng, span_ms: i64, receivers: usize, number: i32) -> Call {
    let receiver = rng.place(receivers);
    let for_ms = rng.pick(&[0, 20, 3_000, 59_000, 61_000, span_ms / 3]);
    let key = rng.percent(30).then(|| format!("act-{number}"));
    match rng.between(0, 99) {
        0..25 => Call::Act { deed: Deed::Replay, key },
        25..37 => Call::Act { deed: Deed::Cancel, key },
        37..42 => Call::Act { deed: Deed::Acknowledge, key },
        42..52 => Call::SendAgain { receiver: rng.percent(60).then_some(receiver) },
        52..58 => Call::Test { receiver },
        58..70 => Call::Pause { receiver, for_ms },
        70..80 => Call::Disable { receiver, for_ms },
        80..84 => Call::Delete { receiver },
        84..93 => Call::Update { receiver, rotate: true },
        _ => Call::Update { receiver, rotate: false },
    }
}

fn blows(rng: &mut Rng, span_ms: i64, calls: &[(i64, Call)]) -> Vec<(i64, Blow)> {
    let mut blows = Vec::new();
    if rng.percent(20) {
        return blows;
    }
    // Most blows fall while something happens.
    let mut moments: Vec<i64> = calls.iter().map(|(at_ms, _)| *at_ms).collect();
    moments.push(0);
    let moment = |rng: &mut Rng| match rng.percent(75) {
        true => rng.pick(&moments) + rng.between(0, 200),
        false => rng.between(0, span_ms),
    };
    let downs = [0, 0, 5, 400, 20 * SECOND, 2 * MINUTE, 3 * HOUR];
    for _ in 0..rng.pick(&[0, 1, 1, 2, 3, 5, 8]) {
        let (at_ms, down_ms) = (moment(rng), rng.pick(&downs));
        if rng.percent(60) {
            let nth = u32::try_from(rng.pick(&[1, 1, 1, 2, 3, 5])).unwrap_or(1);
            blows.push((at_ms, Blow::CrashAt { step: rng.pick(&STEPS), nth, down_ms }));
        } else if rng.percent(40) {
            let zombie_ms = Some(rng.pick(&[1, 30, 500, 12_000]));
            blows.push((at_ms, Blow::Crash { down_ms: 0, zombie_ms }));
        } else {
            blows.push((at_ms, Blow::Crash { down_ms, zombie_ms: None }));
        }
    }
    for _ in 0..rng.pick(&[0, 0, 0, 1, 2]) {
        blows.push((moment(rng), Blow::Stop { down_ms: rng.pick(&downs) }));
    }
    for _ in 0..rng.pick(&[0, 0, 0, 1, 3]) {
        let percent = rng.pick(&[20, 60, 100]);
        let for_ms = rng.pick(&[1, 50, 1_000, 20_000]);
        blows.push((moment(rng), Blow::Fail { percent, for_ms }));
    }
    if rng.percent(15) {
        for _ in 0..rng.between(1, 3) {
            let by_ms = rng.pick(&[-2 * HOUR, -MINUTE, -900, 900, MINUTE, 5 * HOUR, 30 * HOUR]);
            blows.push((moment(rng), Blow::Step { by_ms }));
        }
    }
    blows.sort_by_key(|(at_ms, _)| *at_ms);
    blows
}
