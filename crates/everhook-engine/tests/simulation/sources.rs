//! The sources of a world and what comes to them: drawn from its seed before it begins.

use std::time::Duration;

use everhook_store::Decision;

use crate::profile::Call;
use crate::rng::Rng;

const SECOND: i64 = 1_000;

/// The kinds of sources that differ in what matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The provider's id is signed, and a timestamp.
    Stripe,
    /// The provider's id is not signed, and nor is a timestamp.
    GitHub,
    /// The sender chooses the key, which is not signed; a timestamp is.
    Hmac,
    /// The sender chooses the key; nothing is signed.
    Nobody,
    /// Arrays, whose items have signed ids.
    HubSpot,
}

impl Kind {
    /// Its word.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Stripe => "stripe",
            Self::GitHub => "github",
            Self::Hmac => "hmac",
            Self::Nobody => "none",
            Self::HubSpot => "hubspot",
        }
    }

    /// Whether other content under a known key is a conflict.
    pub(crate) const fn sender_chooses_key(self) -> bool {
        matches!(self, Self::Hmac | Self::Nobody)
    }

    /// Whether a timestamp is signed.
    pub(crate) const fn signs_timestamp(self) -> bool {
        matches!(self, Self::Stripe | Self::Hmac | Self::HubSpot)
    }
}

/// A source.
#[derive(Clone, Debug)]
pub(crate) struct SourcePlan {
    /// Its kind.
    pub(crate) kind: Kind,
    /// How long it remembers.
    pub(crate) window: Duration,
    /// The same bytes run once, whatever their ids: `replay_guard: body`.
    pub(crate) strict: bool,
}

/// What one request tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Happening {
    /// What identifies it; `None`: nothing does, and of an array's item, it cannot be read.
    pub(crate) id: Option<u32>,
    /// Tells its content from another's.
    pub(crate) content: u32,
}

/// A request of a provider, sent until it is answered.
#[derive(Clone, Debug)]
pub(crate) struct Letter {
    /// Letters of one number are signed at the same instant.
    pub(crate) number: usize,
    /// Where it goes, by its place among the sources.
    pub(crate) source: usize,
    /// What it tells of; only arrays have several.
    pub(crate) happenings: Vec<Happening>,
    /// It is signed by somebody who does not know the secret.
    pub(crate) forged: bool,
}

/// What is received in a world.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inbox {
    /// The sources; many worlds have none.
    pub(crate) sources: Vec<SourcePlan>,
    /// The sources that each receiver's endpoint subscribes to.
    pub(crate) subscriptions: Vec<Vec<usize>>,
}

/// The sources of a seed's world, and what is called because of them, by time.
pub(crate) fn draw(seed: u64, span_ms: i64, receivers: usize) -> (Inbox, Vec<(i64, Call)>) {
    let mut rng = Rng::new(seed, "sources");
    let mut inbox = Inbox { sources: Vec::new(), subscriptions: vec![Vec::new(); receivers] };
    for _ in 0..rng.pick(&[0, 0, 1, 2]) {
        inbox.sources.push(source(&mut rng));
    }
    for subscription in &mut inbox.subscriptions {
        subscription.extend((0..inbox.sources.len()).filter(|_| rng.percent(60)));
    }
    let calls = calls(&mut rng, span_ms, &inbox.sources);
    (inbox, calls)
}

fn source(rng: &mut Rng) -> SourcePlan {
    let kinds = [Kind::Stripe, Kind::GitHub, Kind::GitHub, Kind::Hmac, Kind::Nobody, Kind::HubSpot];
    SourcePlan {
        kind: rng.pick(&kinds),
        window: Duration::from_secs(rng.pick(&[1, 5, 60, 600, 3_600, 172_800])),
        strict: rng.percent(15),
    }
}

fn calls(rng: &mut Rng, span_ms: i64, sources: &[SourcePlan]) -> Vec<(i64, Call)> {
    let mut calls = Vec::new();
    if sources.is_empty() {
        return calls;
    }
    let bursts = [rng.between(0, span_ms), rng.between(0, span_ms)];
    for number in 0..rng.pick(&[1, 2, 4, 6]) {
        let at_ms = match rng.percent(60) {
            true => rng.pick(&bursts) + rng.between(0, 300),
            false => rng.between(0, span_ms),
        };
        let letter = letter(rng, sources, number);
        company(rng, (at_ms, &letter), sources, &mut calls);
        let at = calls.len() - rng.place(2).min(calls.len());
        calls.insert(at, (at_ms, Call::Send(letter)));
    }
    for number in 0..rng.pick(&[0, 1, 2, 4]) {
        // Late, so that there is something to decide about.
        let at_ms = rng.between(span_ms / 4, span_ms);
        let decision = rng.pick(&[Decision::Release, Decision::Discard, Decision::Force]);
        let key = rng.percent(30).then(|| format!("decide-{number}"));
        calls.push((at_ms, Call::Decide { decision, key }));
    }
    if rng.percent(25) {
        let source = rng.place(sources.len());
        let at_ms = rng.pick(&bursts) + rng.between(0, 300);
        calls.push((at_ms, Call::ChangeSecret { source, keep_old: rng.percent(50) }));
    }
    calls.retain(|(at_ms, _)| (0..=span_ms + SECOND).contains(at_ms));
    calls
}

fn letter(rng: &mut Rng, sources: &[SourcePlan], number: usize) -> Letter {
    let source = rng.place(sources.len());
    let count = match sources[source].kind {
        Kind::HubSpot => rng.pick(&[1, 1, 2, 3, 4]),
        Kind::Stripe | Kind::GitHub | Kind::Hmac | Kind::Nobody => 1,
    };
    let mut happenings = Vec::new();
    for _ in 0..count {
        happenings.push(happening(rng));
    }
    Letter { number, source, happenings, forged: false }
}

/// Few ids and fewer contents, so that many are met again.
fn happening(rng: &mut Rng) -> Happening {
    let id = (!rng.percent(12)).then(|| u32::try_from(rng.between(0, 4)).unwrap_or(0));
    Happening { id, content: u32::from(rng.percent(20)) }
}

/// What comes before, with and after a letter.
fn company(
    rng: &mut Rng,
    (at_ms, letter): (i64, &Letter),
    sources: &[SourcePlan],
    calls: &mut Vec<(i64, Call)>,
) {
    let window_ms = i64::try_from(sources[letter.source].window.as_millis()).unwrap_or(0);
    if rng.percent(25) {
        let forged = Letter { forged: true, ..letter.clone() };
        calls.push((at_ms - rng.pick(&[0, 1, 500]), Call::Send(forged)));
    }
    if rng.percent(20) {
        for _ in 0..rng.between(1, 3) {
            calls.push((at_ms, Call::Send(letter.clone())));
        }
    }
    if rng.percent(30) {
        let again_ms = rng.pick(&[40, 5 * SECOND, window_ms - 1, window_ms, window_ms + SECOND]);
        calls.push((at_ms + again_ms, Call::Send(letter.clone())));
    }
    if rng.percent(15) {
        // Captured: under another id, or none.
        let mut captured = letter.clone();
        captured.happenings[0].id = rng.pick(&[None, Some(3), Some(9)]);
        calls.push((at_ms + rng.pick(&[0, 1, SECOND, window_ms]), Call::Send(captured)));
    }
    if rng.percent(15) {
        let mut changed = letter.clone();
        changed.happenings[0].content = 7;
        calls.push((at_ms + rng.pick(&[0, 1, SECOND]), Call::Send(changed)));
    }
    if rng.percent(25) {
        // The same id where it is another one's.
        let elsewhere = Letter { source: rng.place(sources.len()), ..letter.clone() };
        if sources[elsewhere.source].kind == sources[letter.source].kind
            || letter.happenings.len() == 1
        {
            calls.push((at_ms + rng.pick(&[0, 200]), Call::Send(elsewhere)));
        }
    }
}
