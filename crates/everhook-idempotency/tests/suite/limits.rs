//! What an account may have.

use std::sync::Arc;
use std::time::Duration;

use everhook_domain::idempotency::claim::Token;
use everhook_domain::key::KeyHash;
use everhook_idempotency::store::{Quota, Store, Taken, Taking, Terms};
use tokio::task::JoinSet;

use crate::backend::Kind;
use crate::records::{HOUR, LONG, OVER, answer, key, record, take, taking};
use crate::{Case, case};

const THREE: Quota = Quota { keys: 3, bytes: 1_000 };

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case(an_account_has_so_many_keys),
        case(an_account_has_so_many_bytes),
        case(the_quota_is_exact_also_at_once),
        case(what_is_over_makes_room),
    ]
}

async fn more(store: &Arc<dyn Store>, number: u8, terms: Terms) -> Taken {
    store.take(&taking(number, 1), None, terms, THREE).await.unwrap()
}

fn an_account_has_so_many_keys(kind: Kind) {
    let world = kind.create();
    let [store, other] = &world.nodes;
    world.runtime.block_on(async {
        for number in 1..=3 {
            assert_eq!(more(store, number, LONG).await, Taken::Yes);
        }
        assert_eq!(more(other, 4, LONG).await, Taken::OverQuota);
        assert_eq!(record(store, 4).await, None);
        // Another account has its own.
        let foreign = Taking { account: key(201), ..taking(5, 1) };
        assert_eq!(store.take(&foreign, None, LONG, THREE).await, Ok(Taken::Yes));
        // A key that is taken over is no further one.
        let seen = record(store, 1).await;
        let again = store.take(&taking(1, 2), seen.as_ref(), LONG, THREE).await;
        assert_eq!(again, Ok(Taken::Yes));
        assert_eq!(more(store, 4, LONG).await, Taken::OverQuota);
        assert_eq!(store.release(key(1), Token(2)).await, Ok(true));
        assert_eq!(more(store, 4, LONG).await, Taken::Yes);
        assert_eq!(more(store, 6, LONG).await, Taken::OverQuota);
    });
}

fn an_account_has_so_many_bytes(kind: Kind) {
    let world = kind.create();
    let [store, _] = &world.nodes;
    world.runtime.block_on(async {
        take(store, 1, 1, LONG).await;
        store.finish(key(1), Token(1), &answer(&[0; 400]), HOUR).await.unwrap();
        // Once is once.
        store.finish(key(1), Token(1), &answer(&[0; 400]), HOUR).await.unwrap();
        assert_eq!(more(store, 2, LONG).await, Taken::Yes);
        store.finish(key(2), Token(1), &answer(&[0; 600]), Duration::ZERO).await.unwrap();
        // The second is over: its bytes are none of the account's when they are in the way.
        assert_eq!(more(store, 3, LONG).await, Taken::Yes);
        store.finish(key(3), Token(1), &answer(&[0; 600]), HOUR).await.unwrap();
        assert_eq!(more(store, 4, LONG).await, Taken::OverQuota);
        // One that is replaced takes its bytes along.
        let seen = record(store, 3).await;
        let again = store.take(&taking(3, 2), seen.as_ref(), LONG, THREE).await;
        assert_eq!(again, Ok(Taken::Yes));
        assert_eq!(more(store, 4, LONG).await, Taken::Yes);
    });
}

fn the_quota_is_exact_also_at_once(kind: Kind) {
    let world = kind.create();
    world.runtime.block_on(async {
        let mut tries = JoinSet::new();
        for number in 0..60_u8 {
            let store = Arc::clone(&world.nodes[usize::from(number) % 2]);
            tries.spawn(async move {
                let quota = Quota { keys: 10, bytes: 1_000 };
                store.take(&taking(number, 1), None, LONG, quota).await.unwrap()
            });
        }
        let taken = tries.join_all().await;
        let count = |one| taken.iter().filter(|taken| **taken == one).count();
        assert_eq!((count(Taken::Yes), count(Taken::OverQuota)), (10, 50));
    });
}

fn what_is_over_makes_room(kind: Kind) {
    let world = kind.create();
    let [store, other] = &world.nodes;
    world.runtime.block_on(async {
        // More than are cleared away at a time.
        for number in 0..1_100_u32 {
            let mut hash = [7; 16];
            hash[..4].copy_from_slice(&number.to_be_bytes());
            let taking = Taking { key: KeyHash(hash), ..taking(0, 1) };
            let quota = Quota { keys: 1_000_000, bytes: 1_000 };
            assert_eq!(store.take(&taking, None, OVER, quota).await, Ok(Taken::Yes));
        }
        for number in 1..=3 {
            assert_eq!(more(other, number, LONG).await, Taken::Yes);
        }
        assert_eq!(more(store, 4, LONG).await, Taken::OverQuota);
    });
}
