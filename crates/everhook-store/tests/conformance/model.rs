//! Any interleaving of verbs leaves the store as a few maps in memory would be left.
//!
//! The model decides by the same [`step`] as the store; what is compared is everything around it:
//! which deliveries are made, found, leased, swept and interrupted, and what is written of them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use everhook_domain::attempt::{Attempt, Trigger};
use everhook_domain::delivery::{
    CancelReason, Due, Effect, IllegalStep, Input, Lease, Policy, Progress, State, step,
};
use everhook_domain::endpoint::{EndpointState, EndpointVerb};
use everhook_domain::event::Nature;
use everhook_domain::id::{DeliveryId, EndpointId, EventId};
use everhook_domain::schedule::Schedule;
use everhook_domain::time::Timestamp;
use everhook_store::{
    Act, DeliveryRecord, LaneDue, LeasedDelivery, Refusal, Settled, Share, StoreError, StorePolicy,
    Wanted,
};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::backend::Kind;
use crate::sketch::{answered, event, event_type, finished, keyed, released, report, secs};
use crate::world::World;
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    vec![case(any_interleaving_agrees_with_the_model)]
}

/// What each endpoint wants.
const WANTED: [&[&str]; 3] = [&["*"], &["order.*"], &["a"]];
/// What is published: a type, and which endpoints want it.
const TYPES: [(&str, [bool; 3]); 2] =
    [("order.paid", [true, true, false]), ("a", [true, false, true])];

/// One thing that happens. Numbers choose among what there is, modulo its count.
#[derive(Clone, Debug)]
enum Op {
    Publish { key: Option<u8>, event_type: usize, permits: usize },
    Claim { endpoint: usize, fresh: u32, retry: u32, suspect: u32 },
    Finish { lease: usize, status: u16, late: u64 },
    Release { lease: usize },
    Act { delivery: usize, act: Act },
    SendAgain { event: usize, endpoint: Option<usize> },
    ChangeState { endpoint: usize, verb: EndpointVerb },
    RunJobs,
    Crash,
    Advance { secs: u64 },
}

fn op() -> impl Strategy<Value = Op> {
    let act = prop::sample::select(vec![Act::Replay, Act::Cancel, Act::Acknowledge]);
    let verb = prop::sample::select(vec![
        EndpointVerb::Enable,
        EndpointVerb::Enable,
        EndpointVerb::Resume,
        EndpointVerb::Pause,
        EndpointVerb::Disable,
        EndpointVerb::Delete,
    ]);
    let any = 0..usize::MAX;
    prop_oneof![
        4 => (prop::option::of(0..3u8), 0..2usize, 0..3usize)
            .prop_map(|(key, event_type, permits)| Op::Publish { key, event_type, permits }),
        6 => (0..3usize, 0..4u32, 0..4u32, 0..2u32).prop_map(|(endpoint, fresh, retry, suspect)| {
            Op::Claim { endpoint, fresh, retry, suspect }
        }),
        6 => (any.clone(), prop::sample::select(vec![200, 500, 500]), 0..90u64)
            .prop_map(|(lease, status, late)| Op::Finish { lease, status, late }),
        1 => any.clone().prop_map(|lease| Op::Release { lease }),
        3 => (any.clone(), act).prop_map(|(delivery, act)| Op::Act { delivery, act }),
        2 => (any, prop::option::of(0..3usize))
            .prop_map(|(event, endpoint)| Op::SendAgain { event, endpoint }),
        1 => (0..3usize, verb).prop_map(|(endpoint, verb)| Op::ChangeState { endpoint, verb }),
        1 => Just(Op::RunJobs),
        2 => Just(Op::Crash),
        4 => prop::sample::select(vec![1, 30, 60, 300, 3_600, 90_000])
            .prop_map(|secs| Op::Advance { secs }),
    ]
}

fn any_interleaving_agrees_with_the_model(kind: Kind) {
    let cases = kind.interleavings;
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let outcome = runner.run(&prop::collection::vec(op(), 1..80), |ops| {
        let mut run = Run::new(kind);
        for op in &ops {
            run.apply(op);
            run.compare();
        }
        run.compare_attempts();
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
}

/// A delivery as the model knows it.
#[derive(Clone, Debug)]
struct Row {
    endpoint: usize,
    event_type: &'static str,
    state: State,
    progress: Progress,
    created_at: Timestamp,
    attempts: Vec<Attempt>,
}

/// A store and what it should hold.
struct Run {
    world: World,
    endpoints: Vec<(EndpointId, EndpointState)>,
    sweeping: BTreeSet<usize>,
    keys: HashMap<u8, (EventId, Timestamp)>,
    events: Vec<(EventId, usize)>,
    rows: BTreeMap<DeliveryId, Row>,
    /// Every lease there ever was.
    leases: Vec<LeasedDelivery>,
}

impl Run {
    fn new(kind: Kind) -> Self {
        let schedule = Schedule::new(vec![secs(0), secs(60), secs(300)]).unwrap();
        let policy = StorePolicy {
            schedule,
            interruptions_max: 5,
            dedupe_window: secs(3_600),
            ..StorePolicy::default()
        };
        let world = World::with(kind, policy);
        let endpoints = WANTED
            .map(|types| (world.endpoint_for(&world.tenant, types), EndpointState::Enabled))
            .to_vec();
        Self {
            world,
            endpoints,
            sweeping: BTreeSet::new(),
            keys: HashMap::new(),
            events: Vec::new(),
            rows: BTreeMap::new(),
            leases: Vec::new(),
        }
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Publish { key, event_type, permits } => self.publish(key, event_type, permits),
            Op::Claim { endpoint, fresh, retry, suspect } => {
                self.claim(endpoint, [fresh, retry, suspect]);
            }
            Op::Finish { lease, status, late } => self.finish(lease, status, late),
            Op::Release { lease } => self.release(lease),
            Op::Act { delivery, act } => self.act(delivery, act),
            Op::SendAgain { event, endpoint } => self.send_again(event, endpoint),
            Op::ChangeState { endpoint, verb } => self.change_state(endpoint, verb),
            Op::RunJobs => self.run_jobs(),
            Op::Crash => self.crash(),
            Op::Advance { secs } => self.world.advance(self::secs(secs)),
        }
    }

    fn gone(&self, endpoint: usize) -> Option<CancelReason> {
        self.endpoints[endpoint].1.gone()
    }

    /// Lets one delivery of the model take a step.
    fn step(&mut self, id: DeliveryId, input: Input) -> Result<(), IllegalStep> {
        let row = &self.rows[&id];
        let store_policy = self.world.policy();
        let policy = Policy {
            schedule: &store_policy.schedule,
            interruptions_max: store_policy.interruptions_max,
            honor_retry_after: store_policy.honor_retry_after,
            endpoint_gone: self.gone(row.endpoint),
            nature: Nature::Ordinary,
        };
        let (state, progress, effects) =
            step(row.state, row.progress, input, policy, self.world.now)?;
        let row = self.rows.get_mut(&id).unwrap();
        (row.state, row.progress) = (state, progress);
        for effect in effects {
            if let Effect::Attempt(attempt) = effect {
                row.attempts.push(*attempt);
            }
        }
        Ok(())
    }

    fn publish(&mut self, key: Option<u8>, event_type: usize, permits: usize) {
        let (name, wanted_by) = TYPES[event_type];
        let mut new = event(name, "1");
        new.source_event_id = key.and_then(|key| keyed(&key.to_string(), "1").source_event_id);
        let free = self.world.lanes.free(self.endpoints[0].0);
        self.world.lanes.give(self.endpoints[0].0, permits.saturating_sub(free));
        let permits = permits.max(free);
        let accepted = self.world.publish_one(new);
        let handed = self.world.lanes.handed();
        let now = self.world.now;
        let first = key.and_then(|key| self.keys.get(&key)).filter(|(_, until)| *until > now);
        if let Some((id, _)) = first {
            assert_eq!((accepted.id, accepted.duplicate), (*id, true));
            assert_eq!(handed, []);
            return;
        }
        assert!(!accepted.duplicate);
        self.events.push((accepted.id, event_type));
        if let Some(key) = key {
            self.keys.insert(key, (accepted.id, now + self.world.policy().dedupe_window));
        }
        let targets =
            (0..3).filter(|endpoint| wanted_by[*endpoint] && self.gone(*endpoint).is_none());
        let targets: Vec<usize> = targets.collect();
        assert_eq!(accepted.deliveries as usize, targets.len());
        let due = Due { at: now, cause: Trigger::Schedule };
        for (ordinal, endpoint) in (1..).zip(&targets) {
            let id = accepted.id.delivery(ordinal);
            let mut row = self.new_row(*endpoint, event_type, due);
            if *endpoint == 0 && permits > 0 {
                let [leased] = &handed[..] else { panic!("not handed over: {handed:?}") };
                assert_eq!((leased.id, leased.number, leased.due_at), (id, 1, now));
                row.state = State::Leased(Lease { token: leased.token, until: leased.until, due });
            }
            self.rows.insert(id, row);
        }
        self.leases.extend(handed);
    }

    fn new_row(&self, endpoint: usize, event_type: usize, due: Due) -> Row {
        Row {
            endpoint,
            event_type: TYPES[event_type].0,
            state: State::Due(due),
            progress: Progress::NEW,
            created_at: self.world.now,
            attempts: Vec::new(),
        }
    }

    /// What waits in a lane's share, in the order in which it goes.
    fn waiting(&self, endpoint: usize, share: Share) -> Vec<(Timestamp, DeliveryId)> {
        let mut waiting: Vec<_> = self
            .rows
            .iter()
            .filter(|(_, row)| row.endpoint == endpoint && share_of(&row.progress) == share)
            .filter_map(|(id, row)| match row.state {
                State::Due(due) => Some((due.at, *id)),
                _ => None,
            })
            .collect();
        waiting.sort();
        waiting
    }

    fn claim(&mut self, endpoint: usize, [fresh, retry, suspect]: [u32; 3]) {
        let id = self.endpoints[endpoint].0;
        let (leased, lane) =
            self.world.claim(Wanted { endpoint: id, fresh, retry, suspect, held: 0 });
        for (share, limit) in
            [(Share::Fresh, fresh), (Share::Retry, retry), (Share::Suspect, suspect)]
        {
            let ready = self.waiting(endpoint, share).into_iter();
            let ready =
                ready.filter(|(at, _)| *at <= self.world.now && self.gone(endpoint).is_none());
            let expected: Vec<_> = ready.map(|(_, id)| id).take(limit as usize).collect();
            let got = leased.iter().filter(|lease| lease.share == share);
            assert_eq!(got.map(|lease| lease.id).collect::<Vec<_>>(), expected, "{share:?}");
        }
        for lease in &leased {
            let row = &self.rows[&lease.id];
            let State::Due(due) = row.state else { panic!("not due: {row:?}") };
            assert_eq!((lease.due_at, lease.cause), (due.at, due.cause));
            assert_eq!(lease.number, row.progress.number + 1);
            let input = Input::Claimed { token: lease.token, until: lease.until };
            self.step(lease.id, input).unwrap();
        }
        assert_eq!(lane, self.lane(endpoint));
        self.leases.extend(leased);
    }

    fn lane(&self, endpoint: usize) -> LaneDue {
        let earliest = |share| self.waiting(endpoint, share).first().map(|(at, _)| *at);
        LaneDue {
            endpoint: self.endpoints[endpoint].0,
            fresh: earliest(Share::Fresh),
            retry: earliest(Share::Retry),
            suspect: earliest(Share::Suspect),
            too_heavy: None,
        }
    }

    fn finish(&mut self, lease: usize, status: u16, late: u64) {
        if self.leases.is_empty() {
            return;
        }
        // The latest leases are the interesting ones; older ones are stale.
        let lease = self.leases[self.leases.len() - 1 - lease % self.leases.len().min(6)].clone();
        let at = self.world.now;
        self.world.advance(secs(late));
        let settled = self.world.settle(vec![finished(&lease, at, status)]);
        let input = Input::Finished { token: lease.token, report: report(at, answered(status)) };
        self.check_settled(lease.id, input, settled[0]);
    }

    fn release(&mut self, lease: usize) {
        if self.leases.is_empty() {
            return;
        }
        let lease = self.leases[lease % self.leases.len()].clone();
        let settled = self.world.settle(vec![released(&lease)]);
        self.check_settled(lease.id, Input::Released { token: lease.token }, settled[0]);
    }

    fn check_settled(&mut self, id: DeliveryId, input: Input, settled: Settled) {
        let expected = match self.step(id, input) {
            Ok(()) => Settled::Recorded,
            Err(_) => Settled::Stale,
        };
        assert_eq!(settled, expected);
    }

    fn act(&mut self, delivery: usize, act: Act) {
        let Some(id) = self.rows.keys().nth(delivery % self.rows.len().max(1)).copied() else {
            return;
        };
        let input = match act {
            Act::Replay => Input::Replay,
            Act::Cancel => Input::Cancel(CancelReason::Requested),
            Act::Acknowledge => Input::Acknowledge,
        };
        let acted = self.world.act(id, act);
        let expected = match self.step(id, input) {
            Ok(()) => Ok(self.record(id)),
            Err(illegal) => Err(StoreError::Refused(Refusal::Step(illegal))),
        };
        assert_eq!(acted, expected);
    }

    fn send_again(&mut self, event: usize, endpoint: Option<usize>) {
        let Some((event, event_type)) = self.events.get(event % self.events.len().max(1)).copied()
        else {
            return;
        };
        let named = endpoint.map(|endpoint| self.endpoints[endpoint].0);
        let sent = self.world.send_again(event, named);
        if let Some(reason) = endpoint.and_then(|endpoint| self.gone(endpoint)) {
            let illegal = IllegalStep::EndpointGone(reason);
            assert_eq!(sent, Err(StoreError::Refused(Refusal::Step(illegal))));
            return;
        }
        let made: Vec<DeliveryId> =
            self.rows.keys().filter(|id| id.event() == event).copied().collect();
        let targets = (0..3).filter(|target| match endpoint {
            Some(endpoint) => *target == endpoint,
            None => TYPES[event_type].1[*target] && self.gone(*target).is_none(),
        });
        let has = |target: &usize| made.iter().any(|id| self.rows[id].endpoint == *target);
        let missing: Vec<usize> = targets.filter(|target| !has(target)).collect();
        let (mut expected, mut left_out) = (Vec::new(), None);
        for id in &made {
            let to = self.rows[id].endpoint;
            if endpoint.is_none_or(|endpoint| endpoint == to) {
                match self.step(*id, Input::Replay) {
                    Ok(()) => expected.push(self.record(*id)),
                    Err(illegal) => left_out = Some(illegal),
                }
            }
        }
        let next = made.last().map_or(1, |id| id.ordinal() + 1);
        for (ordinal, target) in (next..).zip(missing) {
            let id = event.delivery(ordinal);
            let due = Due { at: self.world.now, cause: Trigger::Replay };
            self.rows.insert(id, self.new_row(target, event_type, due));
            expected.push(self.record(id));
        }
        match left_out.filter(|_| expected.is_empty()) {
            Some(illegal) => assert_eq!(sent, Err(StoreError::Refused(Refusal::Step(illegal)))),
            None => assert_eq!(sent, Ok(expected)),
        }
    }

    fn change_state(&mut self, endpoint: usize, verb: EndpointVerb) {
        let (id, before) = self.endpoints[endpoint];
        let changed = self.world.try_change_state(id, verb).map(|endpoint| endpoint.state);
        let state = match before.after(verb) {
            Err(illegal) => {
                assert_eq!(changed, Err(StoreError::Refused(Refusal::Endpoint(illegal))));
                return;
            }
            Ok(EndpointState::Enabled) if self.sweeping.contains(&endpoint) => {
                assert_eq!(changed, Err(StoreError::Refused(Refusal::StillCancelling)));
                return;
            }
            Ok(state) => state,
        };
        assert_eq!(changed, Ok(state));
        self.endpoints[endpoint].1 = state;
        if before != state && state.gone().is_some() {
            let is_due = |row: &Row| row.endpoint == endpoint && matches!(row.state, State::Due(_));
            if self.rows.values().any(is_due) {
                self.sweeping.insert(endpoint);
            } else {
                self.sweeping.remove(&endpoint);
                self.cancel_all(endpoint);
            }
        }
    }

    fn run_jobs(&mut self) {
        self.world.run_jobs();
        for endpoint in std::mem::take(&mut self.sweeping) {
            self.cancel_all(endpoint);
        }
    }

    /// What a sweep comes to.
    fn cancel_all(&mut self, endpoint: usize) {
        let reason = self.gone(endpoint).unwrap();
        let ids = self.rows.iter().filter(|(_, row)| row.endpoint == endpoint);
        for id in ids.map(|(id, _)| *id).collect::<Vec<_>>() {
            // What has ended stays as it is.
            let _ended = self.step(id, Input::Cancel(reason));
        }
    }

    fn crash(&mut self) {
        self.world.crash();
        let mut expected = 0;
        for id in self.rows.keys().copied().collect::<Vec<_>>() {
            if let State::Leased(lease) = self.rows[&id].state {
                self.step(id, Input::Interrupted { token: lease.token }).unwrap();
                expected += 1;
            }
        }
        assert_eq!(self.world.lapse(), expected);
    }

    fn record(&self, id: DeliveryId) -> DeliveryRecord {
        let row = &self.rows[&id];
        DeliveryRecord {
            id,
            endpoint: self.endpoints[row.endpoint].0,
            event_type: event_type(row.event_type),
            state: row.state,
            progress: row.progress,
            created_at: row.created_at,
        }
    }

    fn compare(&self) {
        let expected: Vec<_> = self.rows.keys().rev().map(|id| self.record(*id)).collect();
        assert_eq!(self.world.deliveries(), expected);
        let lanes = (0..3).map(|endpoint| self.lane(endpoint));
        let lanes = lanes.filter(|l| l.fresh.or(l.retry).or(l.suspect).is_some());
        assert_eq!(self.world.due(), lanes.collect::<Vec<_>>());
    }

    fn compare_attempts(&self) {
        for (id, row) in &self.rows {
            assert_eq!(self.world.attempts(*id), row.attempts);
        }
    }
}

fn share_of(progress: &Progress) -> Share {
    match progress {
        progress if progress.is_suspect() => Share::Suspect,
        Progress { number: 0, .. } => Share::Fresh,
        _ => Share::Retry,
    }
}
