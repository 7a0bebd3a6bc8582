//! Time, which is the store's: ends, leases of a tenth of a second, and clearing away.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use everhook_domain::idempotency::claim::{ClaimState, Token};
use everhook_idempotency::store::{Finished, Taken, Terms};
use tokio::task::JoinSet;

use crate::backend::Kind;
use crate::records::{HOUR, LAPSED, LONG, OVER, ROOM, answer, key, record, take, taking};
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case(what_has_lapsed_is_listed),
        case(only_what_is_over_is_cleared_away),
        case(nothing_is_cleared_away_before_its_end),
        case(leases_of_a_tenth_of_a_second_never_overlap),
    ]
}

fn what_has_lapsed_is_listed(kind: Kind) {
    let world = kind.create();
    let [store, other] = &world.nodes;
    world.runtime.block_on(async {
        take(store, 1, 1, LONG).await;
        take(store, 2, 1, OVER).await;
        take(store, 3, 1, LAPSED).await;
        store.finish(key(3), Token(1), &answer(b""), HOUR).await.unwrap();
        // Of one age, as far as a millisecond shows it, or in this order.
        take(store, 4, 1, LAPSED).await;
        take(store, 5, 1, LAPSED).await;
        let lapsed = other.lapsed(10).await.unwrap();
        assert_eq!(lapsed.iter().map(|one| one.key).collect::<Vec<_>>(), [key(4), key(5)]);
        for one in &lapsed {
            let number = one.key.0[0];
            let state = record(store, number).await.unwrap().state;
            let ClaimState::Open { lease_until, .. } = state else { panic!("open") };
            assert_eq!(one.since, lease_until);
        }
        assert_eq!(other.lapsed(1).await.unwrap(), lapsed[..1]);
    });
}

fn only_what_is_over_is_cleared_away(kind: Kind) {
    let world = kind.create();
    let [store, other] = &world.nodes;
    world.runtime.block_on(async {
        for number in 1..=5 {
            take(store, number, 1, OVER).await;
        }
        take(store, 11, 1, LONG).await;
        take(store, 12, 1, LAPSED).await;
        take(store, 13, 1, LONG).await;
        store.finish(key(13), Token(1), &answer(b""), HOUR).await.unwrap();
        take(store, 14, 1, LONG).await;
        store.finish(key(14), Token(1), &answer(b"x"), Duration::ZERO).await.unwrap();
        assert_eq!(other.clean(4).await, Ok(4));
        assert_eq!(other.clean(100).await, Ok(2));
        assert_eq!(other.clean(100).await, Ok(0));
        for (number, there) in [(1, false), (5, false), (11, true), (12, true), (13, true)] {
            assert_eq!(record(store, number).await.is_some(), there, "{number}");
        }
        assert_eq!(record(store, 14).await, None);
    });
}

/// While one node clears away without a pause, the other looks: the record is there, unchanged, at
/// every instant before its end, and never gone earlier.
fn nothing_is_cleared_away_before_its_end(kind: Kind) {
    let world = kind.create();
    let [store, other] = &world.nodes;
    let stop = Arc::new(AtomicBool::new(false));
    world.runtime.block_on(async {
        let (cleaner, stopped) = (Arc::clone(other), Arc::clone(&stop));
        let mut cleaning = JoinSet::new();
        cleaning.spawn(async move {
            while !stopped.load(Ordering::Relaxed) {
                cleaner.clean(100).await.unwrap();
                tokio::task::yield_now().await;
            }
        });
        for number in 1..=5 {
            take(store, number, 1, LONG).await;
            let ttl = Duration::from_millis(100);
            assert_eq!(
                store.finish(key(number), Token(1), &answer(b"x"), ttl).await,
                Ok(Finished::Now)
            );
            let before = store.look(key(number)).await.unwrap();
            // On a machine that stood still for the whole time there is nothing to be seen.
            let Some(first) = before.record else { continue };
            loop {
                let look = store.look(key(number)).await.unwrap();
                match look.record {
                    Some(record) => assert_eq!(record, first),
                    None => {
                        assert!(look.now >= first.expires_at, "gone too early");
                        break;
                    }
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
        cleaning.join_all().await;
    });
}

/// Everybody wants the key all the time; a lease may only begin when the one before is over, by the
/// store's clock, and who lost it is told at its next step.
fn leases_of_a_tenth_of_a_second_never_overlap(kind: Kind) {
    let world = kind.create();
    let terms = Terms { lease: Duration::from_millis(100), ttl: HOUR };
    world.runtime.block_on(async {
        take(&world.nodes[0], 1, 0, terms).await;
        let mut wanting = JoinSet::new();
        for number in 1..=4_i64 {
            let store = Arc::clone(&world.nodes[usize::try_from(number).unwrap() % 2]);
            wanting.spawn(async move {
                let mut taken = 0;
                for turn in 0.. {
                    let look = store.look(key(1)).await.unwrap();
                    let seen = look.record.unwrap();
                    // Seven hundred milliseconds of it are enough.
                    if seen.token.0 >= 700 {
                        return taken;
                    }
                    if !seen.has_lapsed(look.now) {
                        tokio::time::sleep(Duration::from_millis(5)).await;
                        continue;
                    }
                    // Tokens rise, so that the end is known; the number keeps them apart.
                    let token = (seen.token.0 / 100 + 1) * 100 + number;
                    let won = store.take(&taking(1, token), Some(&seen), terms, ROOM).await;
                    if won.unwrap() != Taken::Yes {
                        continue;
                    }
                    taken += 1;
                    let after = store.look(key(1)).await.unwrap();
                    let record = after.record.unwrap();
                    let ClaimState::Open { lease_until: old, .. } = seen.state else {
                        panic!("open")
                    };
                    let ClaimState::Open { lease_until, .. } = record.state else { panic!("open") };
                    assert!(lease_until >= old + terms.lease, "turn {turn}: leases overlap");
                    if record.token == Token(token) {
                        assert!(store.renew(key(1), Token(token), terms, None).await.is_ok());
                    }
                    let late = store.finish(key(1), seen.token, &answer(b""), HOUR).await;
                    assert_eq!(late, Ok(Finished::Lost));
                }
                taken
            });
        }
        let taken: i64 = wanting.join_all().await.into_iter().sum();
        assert!(taken >= 6, "{taken}");
    });
}
