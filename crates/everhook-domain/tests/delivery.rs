//! The state machine of a delivery: its whole table, row by row.
//!
//! What holds for any sequence of inputs is in `delivery_properties.rs`.

use std::time::Duration;

use everhook_domain::attempt::{AttemptOutcome, AttemptReport, KeptResponse, Trigger};
use everhook_domain::delivery::CancelReason::{EndpointDeleted, EndpointDisabled, Requested};
use everhook_domain::delivery::{
    CancelReason, Dead, DeadReason, Due, Effect, IllegalStep, Input, Lease, Policy, Progress,
    State, Stepped, Token, step,
};
use everhook_domain::event::Nature;
use everhook_domain::schedule::Schedule;
use everhook_domain::time::Timestamp;

const NOW: Timestamp = Timestamp::from_millis(1_750_000_000_000);
const TOKEN: Token = Token(77);
const OTHER: Token = Token(78);
/// A round of three attempts: 0, +1 min, +5 min.
const OFFSETS: [u64; 3] = [0, 60, 300];
const INTERRUPTIONS_MAX: u32 = 20;

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn ago(seconds: u64) -> Timestamp {
    NOW.minus(secs(seconds))
}

fn due(at: Timestamp, cause: Trigger) -> State {
    State::Due(Due { at, cause })
}

/// Leased since it was due at `at`.
fn leased_since(at: Timestamp, cause: Trigger) -> State {
    State::Leased(Lease { token: TOKEN, until: Some(NOW + secs(15)), due: Due { at, cause } })
}

fn leased(cause: Trigger) -> State {
    leased_since(NOW, cause)
}

fn dead(reason: DeadReason, acknowledged_at: Option<Timestamp>) -> State {
    State::Dead(Dead { reason, acknowledged_at })
}

const fn exhausted() -> State {
    State::Dead(Dead { reason: DeadReason::Exhausted, acknowledged_at: None })
}

/// In the middle of its second round: attempts 4 and 5 were its first two, five minutes ago and
/// four.
fn midway() -> Progress {
    Progress {
        round: 2,
        number: 5,
        step: 2,
        anchor: Some(ago(300)),
        last_start: Some(ago(240)),
        interruptions: 1,
        ..Progress::NEW
    }
}

/// [`midway`] after one more attempt that starts now.
fn after(progress: Progress) -> Progress {
    Progress {
        number: progress.number + 1,
        step: progress.step + 1,
        anchor: progress.anchor.or(Some(NOW)),
        last_start: Some(NOW),
        ..progress
    }
}

/// The beginning of the round after this progress.
fn next_round(progress: Progress) -> Progress {
    Progress { round: progress.round + 1, number: progress.number, ..Progress::NEW }
}

fn report(started_at: Timestamp, status: u16, retry_after: Option<u64>) -> Box<AttemptReport> {
    let response =
        KeptResponse { status, headers: Vec::new(), body: String::new(), truncated: false };
    Box::new(AttemptReport {
        started_at,
        duration: Duration::from_millis(5),
        url: "https://example.org/".into(),
        outcome: AttemptOutcome::answered(response, retry_after.map(secs)),
    })
}

fn finished(status: u16) -> Input {
    Input::Finished { token: TOKEN, report: report(NOW, status, None) }
}

const CLAIMED: Input = Input::Claimed { token: TOKEN, until: None };
const RELEASED: Input = Input::Released { token: TOKEN };
const INTERRUPTED: Input = Input::Interrupted { token: TOKEN };

/// A test's delivery begins with this cause, and no other does.
fn nature_of(state: &State) -> Nature {
    match state {
        State::Due(d) | State::Leased(Lease { due: d, .. }) if d.cause == Trigger::Test => {
            Nature::Test
        }
        _ => Nature::Ordinary,
    }
}

/// The step under the tests' policy at [`NOW`].
fn decide(
    state: State,
    progress: Progress,
    input: Input,
    endpoint_gone: Option<CancelReason>,
) -> Result<Stepped, IllegalStep> {
    let schedule = Schedule::new(OFFSETS.map(secs).to_vec()).unwrap_or_default();
    let policy = Policy {
        schedule: &schedule,
        interruptions_max: INTERRUPTIONS_MAX,
        honor_retry_after: false,
        endpoint_gone,
        nature: nature_of(&state),
    };
    step(state, progress, input, policy, NOW)
}

/// A row of the table: from a state with an input to a state, with the endpoint enabled.
fn check(from: (State, Progress), input: Input, to: (State, Progress)) {
    check_at(None, from, input, to);
}

/// As [`check`], with an endpoint that may take no requests.
fn check_at(
    gone: Option<CancelReason>,
    from: (State, Progress),
    input: Input,
    to: (State, Progress),
) {
    let what = format!("{from:?} + {input:?}");
    let mut effects = match (&input, from.0) {
        (Input::Finished { report, .. }, State::Leased(lease)) => {
            let attempt = everhook_domain::attempt::Attempt {
                number: from.1.number + 1,
                round: from.1.round,
                trigger: lease.due.cause,
                report: (**report).clone(),
            };
            vec![Effect::Attempt(Box::new(attempt))]
        }
        (Input::Interrupted { token }, _) => vec![Effect::Interruption { token: *token }],
        _ => Vec::new(),
    };
    if let (State::Dead(dead), State::Leased(_)) = (to.0, from.0)
        && nature_of(&from.0) == Nature::Ordinary
    {
        effects.push(Effect::Dead(dead.reason));
    }
    assert_eq!(decide(from.0, from.1, input, gone), Ok((to.0, to.1, effects)), "{what}");
}

/// A row of the table that is refused.
fn refuse(state: State, input: Input, gone: Option<CancelReason>, illegal: IllegalStep) {
    let what = format!("{state:?} + {input:?}");
    assert_eq!(decide(state, midway(), input, gone), Err(illegal), "{what}");
}

/// One state of each kind.
fn every_state() -> Vec<State> {
    let waiting = [Trigger::Schedule, Trigger::Replay, Trigger::Test];
    let mut states: Vec<State> = waiting.map(|cause| due(NOW, cause)).to_vec();
    states.extend(waiting.map(leased));
    states.extend(finals());
    states
}

fn finals() -> Vec<State> {
    vec![
        State::Delivered,
        exhausted(),
        dead(DeadReason::Interrupted, None),
        dead(DeadReason::Exhausted, Some(ago(9))),
        State::Cancelled(Requested),
        State::Cancelled(EndpointDisabled),
        State::Cancelled(EndpointDeleted),
    ]
}

const GONE: [CancelReason; 2] = [EndpointDisabled, EndpointDeleted];

#[test]
fn due_and_claimed() {
    for cause in [Trigger::Schedule, Trigger::Replay, Trigger::Test] {
        for at in [NOW, ago(1), ago(100_000)] {
            let until = Some(NOW + secs(15));
            let input = Input::Claimed { token: TOKEN, until };
            check((due(at, cause), midway()), input, (leased_since(at, cause), midway()));
        }
        let early = NOW + Duration::from_millis(1);
        refuse(due(early, cause), CLAIMED, None, IllegalStep::NotDue);
        for reason in GONE {
            refuse(due(NOW, cause), CLAIMED, Some(reason), IllegalStep::EndpointGone(reason));
        }
    }
    for state in every_state().into_iter().filter(|state| !matches!(state, State::Due(_))) {
        refuse(state, CLAIMED, None, IllegalStep::NotDue);
    }
}

#[test]
fn due_and_replay() {
    let later = NOW + secs(3_000);
    for cause in [Trigger::Schedule, Trigger::Test] {
        let forward = (due(NOW, Trigger::Replay), midway());
        check((due(later, cause), midway()), Input::Replay, forward);
    }
    let owing = Progress { owed: 2, ..midway() };
    for at in [ago(5), later] {
        let forward = due(at, Trigger::Replay);
        check((forward, midway()), Input::Replay, (forward, Progress { owed: 1, ..midway() }));
        check((forward, owing), Input::Replay, (forward, Progress { owed: 3, ..midway() }));
    }
}

#[test]
fn due_and_cancel() {
    let owing = Progress { owed: 2, ..midway() };
    for reason in [Requested, EndpointDisabled, EndpointDeleted] {
        for cause in [Trigger::Schedule, Trigger::Replay, Trigger::Test] {
            let from = (due(NOW + secs(9), cause), owing);
            let to = (State::Cancelled(reason), midway());
            check(from, Input::Cancel(reason), to);
            check_at(Some(reason), from, Input::Cancel(reason), to);
        }
    }
}

#[test]
fn leased_and_released() {
    let owing = Progress { owed: 1, ..midway() };
    for cause in [Trigger::Schedule, Trigger::Replay, Trigger::Test] {
        for at in [NOW, ago(500)] {
            let from = leased_since(at, cause);
            check((from, owing), RELEASED, (due(at, cause), owing));
        }
        let cancelled = Progress { cancel: Some(Requested), ..midway() };
        check((leased(cause), cancelled), RELEASED, (State::Cancelled(Requested), midway()));
        for reason in GONE {
            let to = (State::Cancelled(reason), midway());
            check_at(Some(reason), (leased(cause), owing), RELEASED, to);
        }
    }
}

#[test]
fn leased_and_success() {
    for status in [200, 201, 202, 204, 206, 299] {
        for cause in [Trigger::Schedule, Trigger::Replay, Trigger::Test] {
            for from in [Progress::NEW, midway(), Progress { step: 0, ..midway() }] {
                let to = (State::Delivered, after(from));
                check((leased(cause), from), finished(status), to);
            }
        }
    }
    // It wins over a cancellation, and over an endpoint that has gone meanwhile.
    let cancelled = Progress { cancel: Some(Requested), ..midway() };
    let to = (State::Delivered, after(midway()));
    check((leased(Trigger::Schedule), cancelled), finished(200), to);
    for reason in GONE {
        for from in [cancelled, Progress { owed: 3, ..midway() }] {
            check_at(Some(reason), (leased(Trigger::Schedule), from), finished(200), to);
        }
    }
}

#[test]
fn leased_and_success_with_a_replay_owed() {
    for owed in [1, 2] {
        let from = Progress { owed, interruptions: 7, shift: secs(90), ..midway() };
        let to = Progress { owed: owed - 1, ..next_round(after(from)) };
        let input = finished(204);
        check((leased(Trigger::Schedule), from), input, (due(NOW, Trigger::Replay), to));
    }
}

#[test]
fn leased_and_failure_when_it_is_not_wanted_any_more() {
    for (step, owed) in [(0, 0), (2, 0), (1, 2)] {
        let from = Progress { step, owed, ..midway() };
        let to = Progress { owed: 0, ..after(from) };
        for cause in [Trigger::Schedule, Trigger::Replay, Trigger::Test] {
            let cancelled = Progress { owed: 0, cancel: Some(Requested), ..from };
            let input = finished(500);
            check((leased(cause), cancelled), input, (State::Cancelled(Requested), to));
            for reason in GONE {
                let to = (State::Cancelled(reason), to);
                check_at(Some(reason), (leased(cause), from), finished(500), to);
            }
        }
    }
    let both = Progress { cancel: Some(Requested), ..midway() };
    let to = (State::Cancelled(Requested), after(midway()));
    check_at(Some(EndpointDeleted), (leased(Trigger::Replay), both), finished(500), to);
}

#[test]
fn leased_and_failure_with_a_replay_owed() {
    for cause in [Trigger::Schedule, Trigger::Replay, Trigger::Test] {
        let from = Progress { step: 1, owed: 2, ..midway() };
        // A round of a test has no more than one attempt.
        let to = if cause == Trigger::Test { next_round(after(from)) } else { after(from) };
        let to = Progress { owed: 1, ..to };
        check((leased(cause), from), finished(500), (due(NOW, Trigger::Replay), to));
        let last = Progress { owed: 1, shift: secs(90), ..midway() };
        let to = Progress { owed: 0, ..next_round(after(last)) };
        check((leased(cause), last), finished(500), (due(NOW, Trigger::Replay), to));
    }
}

#[test]
fn leased_and_failure_with_steps_left() {
    for status in [100, 199, 300, 301, 400, 403, 404, 410, 413, 429, 500, 503] {
        for cause in [Trigger::Schedule, Trigger::Replay] {
            let to = (due(NOW + secs(60), Trigger::Schedule), after(Progress::NEW));
            check((leased(cause), Progress::NEW), finished(status), to);
            let second = Progress { step: 1, ..midway() };
            // Five minutes after the anchor would be now, but a minute must lie between two starts.
            let to = (due(NOW + secs(60), Trigger::Schedule), after(second));
            check((leased(cause), second), finished(status), to);
            let second = Progress { anchor: Some(ago(100)), ..second };
            let to = (due(NOW + secs(200), Trigger::Schedule), after(second));
            check((leased(cause), second), finished(status), to);
        }
    }
}

#[test]
fn leased_and_failure_at_the_last_step() {
    for cause in [Trigger::Schedule, Trigger::Replay] {
        check((leased(cause), midway()), finished(500), (exhausted(), after(midway())));
        // The schedule was longer once.
        let beyond = Progress { step: 9, ..midway() };
        check((leased(cause), beyond), finished(500), (exhausted(), after(beyond)));
    }
}

#[test]
fn leased_and_interrupted() {
    let owing = Progress { owed: 2, ..midway() };
    for cause in [Trigger::Schedule, Trigger::Replay, Trigger::Test] {
        for at in [NOW, ago(500)] {
            let to = (due(at, cause), Progress { interruptions: 2, ..owing });
            check((leased_since(at, cause), owing), INTERRUPTED, to);
        }
        let nearly = Progress { interruptions: INTERRUPTIONS_MAX - 2, ..owing };
        let to = Progress { interruptions: INTERRUPTIONS_MAX - 1, ..owing };
        check((leased(cause), nearly), INTERRUPTED, (due(NOW, cause), to));
        let last = Progress { interruptions: INTERRUPTIONS_MAX - 1, ..owing };
        let to = Progress { interruptions: INTERRUPTIONS_MAX, owed: 0, ..owing };
        let acknowledged_at = (cause == Trigger::Test).then_some(NOW);
        let given_up = dead(DeadReason::Interrupted, acknowledged_at);
        check((leased(cause), last), INTERRUPTED, (given_up, to));
        let cancelled = Progress { cancel: Some(Requested), owed: 0, ..last };
        check((leased(cause), cancelled), INTERRUPTED, (State::Cancelled(Requested), to));
        for reason in GONE {
            let to = (State::Cancelled(reason), to);
            check_at(Some(reason), (leased(cause), last), INTERRUPTED, to);
        }
    }
}

#[test]
fn leased_and_replay_or_cancel() {
    for cause in [Trigger::Schedule, Trigger::Replay, Trigger::Test] {
        let state = leased(cause);
        let owing = Progress { owed: 2, ..midway() };
        check((state, midway()), Input::Replay, (state, Progress { owed: 1, ..midway() }));
        check((state, owing), Input::Replay, (state, Progress { owed: 3, ..midway() }));
        for reason in [Requested, EndpointDisabled, EndpointDeleted] {
            let cancelled = Progress { cancel: Some(reason), ..midway() };
            check((state, owing), Input::Cancel(reason), (state, cancelled));
            for later in [Requested, EndpointDisabled, EndpointDeleted] {
                check((state, cancelled), Input::Cancel(later), (state, cancelled));
            }
            // Whoever replays wants it again.
            let wanted = Progress { owed: 1, ..midway() };
            check((state, cancelled), Input::Replay, (state, wanted));
        }
    }
}

#[test]
fn final_and_replay() {
    let used = Progress { interruptions: 20, shift: secs(70), ..midway() };
    for state in finals() {
        let to = (due(NOW, Trigger::Replay), next_round(used));
        check((state, used), Input::Replay, to);
    }
}

#[test]
fn any_and_replay_at_an_endpoint_that_is_gone() {
    for state in every_state() {
        for reason in GONE {
            refuse(state, Input::Replay, Some(reason), IllegalStep::EndpointGone(reason));
        }
    }
}

#[test]
fn dead_and_acknowledge() {
    for reason in [DeadReason::Exhausted, DeadReason::Interrupted] {
        for gone in [None, Some(EndpointDisabled), Some(EndpointDeleted)] {
            let acknowledged = (dead(reason, Some(NOW)), midway());
            let fresh = (dead(reason, None), midway());
            check_at(gone, fresh, Input::Acknowledge, acknowledged);
            let earlier = (dead(reason, Some(ago(60))), midway());
            check_at(gone, earlier, Input::Acknowledge, earlier);
        }
    }
    for state in every_state().into_iter().filter(|state| !matches!(state, State::Dead(_))) {
        refuse(state, Input::Acknowledge, None, IllegalStep::NotDead);
    }
}

#[test]
fn final_and_cancel() {
    for state in finals() {
        for reason in [Requested, EndpointDisabled, EndpointDeleted] {
            refuse(state, Input::Cancel(reason), None, IllegalStep::Ended);
        }
    }
}

#[test]
fn any_and_the_end_of_another_lease() {
    for state in every_state() {
        let token = if matches!(state, State::Leased(_)) { OTHER } else { TOKEN };
        for gone in [None, Some(EndpointDisabled)] {
            for status in [200, 500] {
                let input = Input::Finished { token, report: report(NOW, status, None) };
                refuse(state, input, gone, IllegalStep::Stale);
            }
            refuse(state, Input::Released { token }, gone, IllegalStep::Stale);
            refuse(state, Input::Interrupted { token }, gone, IllegalStep::Stale);
        }
    }
}

#[test]
fn lateness_of_our_making_moves_the_rest() {
    for (late, shift) in [(0, 0), (60, 0), (61, 61), (86_400, 86_400)] {
        let first =
            Progress { round: 1, number: 1, step: 1, anchor: Some(ago(60 + late)), ..midway() };
        let from = Progress { last_start: first.anchor, interruptions: 0, ..first };
        let state = leased_since(ago(late), Trigger::Schedule);
        let at = (ago(60 + late) + secs(300 + shift)).max(NOW + secs(60));
        let to = Progress { shift: secs(shift), ..after(from) };
        check((state, from), finished(500), (due(at, Trigger::Schedule), to));
    }
}
