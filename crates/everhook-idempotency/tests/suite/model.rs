//! Any sequence of verbs does to a store what it does to a model of twenty lines.

use std::collections::BTreeMap;
use std::time::Duration;

use everhook_domain::idempotency::claim::{ClaimRecord, ClaimState, Token};
use everhook_idempotency::store::{Finished, Taken, Taking, Terms};

use crate::backend::Kind;
use crate::records::{HOUR, LAPSED, LONG, OVER, ROOM, answer, key, taking};
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    vec![case(any_sequence_of_verbs)]
}

const SEQUENCES: u64 = 20;
const VERBS: u32 = 60;

/// A record without its times: with hours and nothing as terms, what is over is known without them.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Model {
    token: i64,
    finished: Option<u8>,
    lapsed: bool,
    over: bool,
    checkpoint: Option<u8>,
}

/// A small generator (splitmix64), so that a sequence is its number.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }

    fn small(&mut self, bound: u8) -> u8 {
        u8::try_from(self.below(u64::from(bound))).unwrap()
    }
}

fn seen(record: &ClaimRecord, now: everhook_domain::time::Timestamp) -> Model {
    let (finished, lapsed, checkpoint) = match &record.state {
        ClaimState::Open { lease_until, checkpoint } => {
            (None, *lease_until <= now, checkpoint.as_ref().map(|bytes| bytes[0]))
        }
        ClaimState::Finished(remembered) => (remembered.encode().last().copied(), false, None),
    };
    let over = record.expires_at <= now;
    Model { token: record.token.0, finished, lapsed, over, checkpoint }
}

fn any_sequence_of_verbs(kind: Kind) {
    let world = kind.create();
    for number in 0..SEQUENCES {
        let mut random = Random(number);
        // Keys of one sequence are none of another.
        let base = u8::try_from(number * 4).unwrap();
        let mut model: BTreeMap<u8, Model> = BTreeMap::new();
        for step in 0..VERBS {
            let one = base + random.small(3);
            let node = &world.nodes[usize::try_from(random.below(2)).unwrap()];
            let said = world.runtime.block_on(verb(node, &mut random, &mut model, one));
            let look = world.runtime.block_on(node.look(key(one))).unwrap();
            let stored = look.record.map(|record| seen(&record, look.now));
            assert_eq!(stored, model.get(&one).cloned(), "sequence {number}, step {step}: {said}");
        }
    }
}

/// Does one verb to both, and compares what they say.
async fn verb(
    node: &std::sync::Arc<dyn everhook_idempotency::store::Store>,
    random: &mut Random,
    model: &mut BTreeMap<u8, Model>,
    one: u8,
) -> String {
    let token = i64::from(random.small(3));
    let terms: Terms = [LONG, LAPSED, OVER][usize::from(random.small(3))];
    let checkpoint = (random.small(2) == 0).then(|| random.small(9));
    let bytes = checkpoint.map(|byte| vec![byte]);
    let own = model.get(&one).filter(|held| held.token == token).cloned();
    let open = own.as_ref().is_some_and(|held| held.finished.is_none());
    let fresh = Model {
        token,
        finished: None,
        lapsed: terms.lease.is_zero(),
        over: terms.ttl.is_zero() && terms.lease.is_zero(),
        checkpoint,
    };
    match random.small(5) {
        0 => {
            let look = node.look(key(one)).await.unwrap();
            // Now and then as if it had been seen absent.
            let seen = look.record.filter(|_| random.small(3) > 0);
            let expected = if model.contains_key(&one) == seen.is_some() {
                Taken::Yes
            } else {
                Taken::Changed
            };
            let taking = Taking { checkpoint: bytes, ..taking(one, token) };
            assert_eq!(node.take(&taking, seen.as_ref(), terms, ROOM).await, Ok(expected));
            if expected == Taken::Yes {
                model.insert(one, fresh);
            }
            format!("take {token} {terms:?}: {expected:?}")
        }
        1 => {
            let renewed = node.renew(key(one), Token(token), terms, bytes.as_deref()).await;
            assert_eq!(renewed, Ok(own.is_some()));
            if let Some(held) = own.filter(|_| open) {
                model.insert(one, Model { checkpoint: checkpoint.or(held.checkpoint), ..fresh });
            }
            format!("renew {token} {terms:?}: {renewed:?}")
        }
        2 => {
            let body = random.small(9);
            let ttl = [HOUR, Duration::ZERO][usize::from(random.small(2))];
            let finished = node.finish(key(one), Token(token), &answer(&[body]), ttl).await;
            let expected = match (&own, open) {
                (None, _) => Finished::Lost,
                (Some(_), true) => Finished::Now,
                (Some(_), false) => Finished::Before,
            };
            assert_eq!(finished, Ok(expected));
            if open {
                let (finished, over) = (Some(body), ttl.is_zero());
                let done = Model { finished, over, lapsed: false, checkpoint: None, token };
                model.insert(one, done);
            }
            format!("finish {token} {ttl:?}: {expected:?}")
        }
        3 => {
            let released = node.release(key(one), Token(token)).await;
            assert_eq!(released, Ok(open));
            if open {
                model.remove(&one);
            }
            format!("release {token}: {released:?}")
        }
        _ => {
            node.clean(1_000).await.unwrap();
            model.retain(|_, held| !held.over);
            "clean".to_owned()
        }
    }
}
