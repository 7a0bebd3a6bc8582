//! The state machine of a delivery: what its table does not show. What is different for events of
//! our own and for suspects, and what the schedule counts from.

use std::time::Duration;

use everhook_domain::attempt::{AttemptOutcome, AttemptReport, ErrorClass, Trigger};
use everhook_domain::delivery::{
    Dead, DeadReason, Due, Effect, Input, Lease, Policy, Progress, State, Stepped, Token, step,
};
use everhook_domain::event::Nature;
use everhook_domain::schedule::Schedule;
use everhook_domain::time::Timestamp;

const NOW: Timestamp = Timestamp::from_millis(1_750_000_000_000);
const TOKEN: Token = Token(77);
const INTERRUPTIONS_MAX: u32 = 20;

/// At its fourth attempt, the last but one of its second round.
const MIDWAY: Progress = Progress {
    round: 2,
    number: 3,
    step: 0,
    interruptions: INTERRUPTIONS_MAX - 1,
    ..Progress::NEW
};

/// [`MIDWAY`] after an attempt that started now.
const AFTER: Progress =
    Progress { number: 4, step: 1, anchor: Some(NOW), last_start: Some(NOW), ..MIDWAY };

const INTERRUPTED: Input = Input::Interrupted { token: TOKEN };

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn failed() -> Input {
    let report = Box::new(AttemptReport {
        started_at: NOW,
        duration: Duration::from_millis(5),
        url: "https://example.org/".into(),
        outcome: AttemptOutcome::failed(ErrorClass::Timeout, "no answer"),
    });
    Input::Finished { token: TOKEN, report }
}

fn dead(reason: DeadReason, acknowledged_at: Option<Timestamp>) -> State {
    State::Dead(Dead { reason, acknowledged_at })
}

fn due(at: Timestamp, cause: Trigger) -> State {
    State::Due(Due { at, cause })
}

/// What becomes of a lease whose round has `attempts` attempts.
fn ended(nature: Nature, attempts: u64, cause: Trigger, from: Progress, end: Input) -> Stepped {
    let offsets = (0..attempts).map(|place| secs(place * 60)).collect();
    let schedule = Schedule::new(offsets).unwrap_or_default();
    let policy = Policy {
        schedule: &schedule,
        interruptions_max: INTERRUPTIONS_MAX,
        honor_retry_after: false,
        endpoint_gone: None,
        nature,
    };
    let state = State::Leased(Lease { token: TOKEN, until: None, due: Due { at: NOW, cause } });
    match step(state, from, end, policy, NOW) {
        Ok(stepped) => stepped,
        Err(illegal) => unreachable!("the end of a lease is taken: {illegal}"),
    }
}

/// Also when it is replayed, and without a warning.
#[test]
fn a_test_is_one_attempt() {
    for cause in [Trigger::Test, Trigger::Replay] {
        let (state, progress, effects) = ended(Nature::Test, 7, cause, MIDWAY, failed());
        assert_eq!((state, progress), (dead(DeadReason::Exhausted, Some(NOW)), AFTER));
        assert!(matches!(effects[..], [Effect::Attempt(_)]), "{effects:?}");
        // Asked for twice, it is sent twice, each time in a round of its own.
        let owing = Progress { owed: 1, ..MIDWAY };
        let (state, progress, _) = ended(Nature::Test, 7, cause, owing, failed());
        let next_round = Progress { round: 3, number: 4, ..Progress::NEW };
        assert_eq!((state, progress), (due(NOW, Trigger::Replay), next_round));
        let stepped = ended(Nature::Test, 7, cause, MIDWAY, INTERRUPTED);
        let to = Progress { interruptions: INTERRUPTIONS_MAX, ..MIDWAY };
        let effects = vec![Effect::Interruption { token: TOKEN }];
        assert_eq!(stepped, (dead(DeadReason::Interrupted, Some(NOW)), to, effects));
    }
}

#[test]
fn a_system_event_keeps_to_the_schedule_and_dies_in_silence() {
    for (nature, tells) in [(Nature::Ordinary, 1), (Nature::System, 0)] {
        let (state, ..) = ended(nature, 2, Trigger::Schedule, MIDWAY, failed());
        let at = NOW + secs(60);
        assert_eq!(state, due(at, Trigger::Schedule), "{nature:?}");
        for (end, reason) in
            [(failed(), DeadReason::Exhausted), (INTERRUPTED, DeadReason::Interrupted)]
        {
            let (state, _, effects) = ended(nature, 1, Trigger::Schedule, MIDWAY, end);
            assert_eq!(state, dead(reason, None), "{nature:?}");
            let told = effects.iter().filter(|effect| **effect == Effect::Dead(reason));
            assert_eq!(told.count(), tells, "{nature:?}");
        }
    }
}

#[test]
fn the_third_interruption_makes_a_suspect() {
    let suspects = [0, 1, 2, 3, 19].map(|interruptions| {
        let progress = Progress { interruptions, ..MIDWAY };
        progress.is_suspect()
    });
    assert_eq!(suspects, [false, false, false, true, true]);
}

/// When the second of three attempts is due that began at these seconds from the first's due time.
fn second_due(started: u64, retry_after: Option<u64>, honor_retry_after: bool) -> u64 {
    let schedule = Schedule::new([0, 60, 300].map(secs).to_vec()).unwrap_or_default();
    let policy = Policy {
        schedule: &schedule,
        interruptions_max: INTERRUPTIONS_MAX,
        honor_retry_after,
        endpoint_gone: None,
        nature: Nature::Ordinary,
    };
    let now = NOW + secs(started);
    let report = AttemptReport {
        started_at: now,
        duration: Duration::from_millis(5),
        url: "https://example.org/".into(),
        outcome: AttemptOutcome {
            retry_after: retry_after.map(secs),
            ..AttemptOutcome::failed(ErrorClass::Status, "busy")
        },
    };
    let input = Input::Finished { token: TOKEN, report: Box::new(report) };
    let due = Due { at: NOW, cause: Trigger::Schedule };
    let leased = State::Leased(Lease { token: TOKEN, until: None, due });
    let stepped = step(leased, Progress::NEW, input, policy, now);
    match stepped {
        Ok((State::Due(due), ..)) => due.at.since(NOW).as_secs(),
        other => unreachable!("not due: {other:?}"),
    }
}

#[test]
fn the_first_start_is_the_anchor_however_late_it_is() {
    for started in [0, 59, 61, 100_000] {
        assert_eq!(second_due(started, None, false), started + 60);
    }
}

#[test]
fn retry_after_only_ever_delays() {
    for (honored, wait, expected) in [
        (false, Some(600), 60),
        (true, None, 60),
        (true, Some(0), 60),
        (true, Some(59), 60),
        (true, Some(61), 61),
        (true, Some(600), 600),
        (true, Some(3_660), 3_660),
        (true, Some(3_661), 3_660),
        (true, Some(u64::MAX / 2_000), 3_660),
    ] {
        assert_eq!(second_due(0, wait, honored), expected, "{wait:?}");
    }
}
