//! What a store of receipts is.

use std::sync::Arc;
use std::time::Duration;

use everhook_receiver::EventKey;
use everhook_receiver::store::{Claimed, Store, Terms, Token};
use tokio::task::JoinSet;

use crate::backend::Kind;
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case(one_of_many_gets_an_event),
        case(an_event_is_received_and_processed),
        case(sources_do_not_share_ids),
        case(odd_ids_are_ids),
        case(what_is_given_back_is_free_at_once),
        case(a_lease_that_has_ended_frees_its_event),
        case(a_lease_that_is_renewed_holds),
        case(a_token_that_is_not_the_last_changes_nothing),
        case(a_late_mark_counts_while_nobody_else_came),
        case(a_mark_is_made_once),
        case(a_receipt_counts_for_its_time_from_the_first),
        case(a_claim_outlives_the_time_of_its_receipt),
        case(only_what_is_over_is_pruned),
    ]
}

const LONG: Terms = Terms { lease: Duration::from_secs(600), keep: Duration::from_secs(172_800) };
/// A lease that is over at once, or nearly so.
const LAPSED: Terms = Terms { lease: Duration::ZERO, ..LONG };

fn key(number: u32) -> EventKey {
    EventKey::new("test", &format!("evt_{number}"))
}

async fn claim(store: &Arc<dyn Store>, number: u32, token: i64, terms: Terms) -> Claimed {
    store.claim(&key(number), Token(token), terms).await.unwrap()
}

/// Claims until the event is free: until a lease or a time is over.
async fn claimed_in_the_end(store: &Arc<dyn Store>, number: u32, token: i64, terms: Terms) {
    while claim(store, number, token, terms).await != Claimed::Yes {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn one_of_many_gets_an_event(kind: Kind) {
    let world = kind.create();
    world.runtime.block_on(async {
        for number in 1..=5 {
            let mut asking = JoinSet::new();
            for token in 0..64 {
                let store = Arc::clone(&world.nodes[token % 2]);
                let token = i64::try_from(token).unwrap();
                asking.spawn(async move { claim(&store, number, token, LONG).await });
            }
            let mut claimed = asking.join_all().await;
            claimed.retain(|claimed| *claimed != Claimed::InProgress);
            assert_eq!(claimed, [Claimed::Yes], "{number}");
        }
    });
}

fn an_event_is_received_and_processed(kind: Kind) {
    let world = kind.create();
    let [store, other] = &world.nodes;
    world.runtime.block_on(async {
        assert_eq!(store.receipt(&key(1)).await, Ok(None));
        assert_eq!(claim(store, 1, 1, LONG).await, Claimed::Yes);
        let receipt = other.receipt(&key(1)).await.unwrap().unwrap();
        assert_eq!(receipt.processed_at, None);
        assert_eq!(claim(other, 1, 2, LONG).await, Claimed::InProgress);
        assert_eq!(other.finish(&key(1), Token(1)).await, Ok(true));
        let processed = store.receipt(&key(1)).await.unwrap().unwrap();
        assert_eq!(processed.received_at, receipt.received_at);
        assert!(processed.processed_at.unwrap() >= receipt.received_at);
        for store in &world.nodes {
            assert_eq!(claim(store, 1, 3, LONG).await, Claimed::Processed);
        }
    });
}

fn sources_do_not_share_ids(kind: Kind) {
    let world = kind.create();
    let [store, _] = &world.nodes;
    world.runtime.block_on(async {
        for source in ["one", "other"] {
            let key = EventKey::new(source, "evt_1");
            assert_eq!(store.claim(&key, Token(1), LONG).await, Ok(Claimed::Yes));
            assert_eq!(store.finish(&key, Token(1)).await, Ok(true));
        }
    });
}

fn odd_ids_are_ids(kind: Kind) {
    let world = kind.create();
    let [store, other] = &world.nodes;
    world.runtime.block_on(async {
        for id in ["", " ", "}", "{}", "a b:c", "A", "a", "'; --", "ä\u{1f600}", &"x".repeat(2_000)]
        {
            let key = EventKey::new("test", id);
            assert_eq!(store.claim(&key, Token(-1), LONG).await, Ok(Claimed::Yes), "{id}");
            assert_eq!(other.finish(&key, Token(-1)).await, Ok(true), "{id}");
            let again = other.claim(&key, Token(i64::MIN), LONG).await;
            assert_eq!(again, Ok(Claimed::Processed), "{id}");
        }
    });
}

fn what_is_given_back_is_free_at_once(kind: Kind) {
    let world = kind.create();
    let [store, other] = &world.nodes;
    world.runtime.block_on(async {
        claim(store, 1, 1, LONG).await;
        let first = store.receipt(&key(1)).await.unwrap().unwrap();
        assert_eq!(other.release(&key(1), Token(1)).await, Ok(true));
        assert_eq!(store.release(&key(1), Token(1)).await, Ok(false));
        // It was received, and stays so.
        assert_eq!(store.receipt(&key(1)).await, Ok(Some(first)));
        assert_eq!(claim(other, 1, 2, LONG).await, Claimed::Yes);
        assert_eq!(store.receipt(&key(1)).await, Ok(Some(first)));
        assert_eq!(store.finish(&key(1), Token(2)).await, Ok(true));
        assert_eq!(store.release(&key(1), Token(2)).await, Ok(false));
        assert_eq!(claim(store, 1, 3, LONG).await, Claimed::Processed);
    });
}

fn a_lease_that_has_ended_frees_its_event(kind: Kind) {
    let world = kind.create();
    let [store, other] = &world.nodes;
    world.runtime.block_on(async {
        claim(store, 1, 1, LAPSED).await;
        let first = store.receipt(&key(1)).await.unwrap().unwrap();
        claimed_in_the_end(other, 1, 2, LONG).await;
        assert_eq!(store.receipt(&key(1)).await, Ok(Some(first)));
        assert_eq!(claim(store, 1, 3, LONG).await, Claimed::InProgress);
    });
}

fn a_lease_that_is_renewed_holds(kind: Kind) {
    let world = kind.create();
    let [store, other] = &world.nodes;
    world.runtime.block_on(async {
        let short = Terms { lease: Duration::from_millis(300), ..LONG };
        claim(store, 1, 1, short).await;
        assert_eq!(other.renew(&key(1), Token(1), LONG.lease).await, Ok(true));
        // One that was claimed later, and not renewed, is over; so this one would be.
        claim(store, 2, 1, short).await;
        claimed_in_the_end(store, 2, 2, LONG).await;
        assert_eq!(claim(other, 1, 2, LONG).await, Claimed::InProgress);
        // And one that is renewed late, before anybody else has come.
        claim(store, 3, 1, LAPSED).await;
        tokio::time::sleep(Duration::from_millis(5)).await;
        assert_eq!(store.renew(&key(3), Token(1), LONG.lease).await, Ok(true));
        assert_eq!(claim(other, 3, 2, LONG).await, Claimed::InProgress);
        assert_eq!(store.renew(&key(4), Token(1), LONG.lease).await, Ok(false));
    });
}

fn a_token_that_is_not_the_last_changes_nothing(kind: Kind) {
    let world = kind.create();
    let [store, other] = &world.nodes;
    world.runtime.block_on(async {
        claim(store, 1, 1, LAPSED).await;
        claimed_in_the_end(other, 1, 2, LONG).await;
        for token in [1, 3] {
            let token = Token(token);
            assert_eq!(store.renew(&key(1), token, Duration::ZERO).await, Ok(false));
            assert_eq!(store.finish(&key(1), token).await, Ok(false));
            assert_eq!(store.release(&key(1), token).await, Ok(false));
        }
        assert_eq!(claim(store, 1, 3, LONG).await, Claimed::InProgress);
        assert_eq!(store.receipt(&key(1)).await.unwrap().unwrap().processed_at, None);
        assert_eq!(other.finish(&key(1), Token(2)).await, Ok(true));
        assert_eq!(store.finish(&key(1), Token(1)).await, Ok(false));
        // What was given back is nobody's.
        claim(store, 2, 1, LONG).await;
        store.release(&key(2), Token(1)).await.unwrap();
        assert_eq!(store.finish(&key(2), Token(1)).await, Ok(false));
        assert_eq!(store.renew(&key(2), Token(1), LONG.lease).await, Ok(false));
        assert_eq!(store.finish(&key(9), Token(1)).await, Ok(false));
    });
}

fn a_late_mark_counts_while_nobody_else_came(kind: Kind) {
    let world = kind.create();
    let [store, other] = &world.nodes;
    world.runtime.block_on(async {
        claim(store, 1, 1, LAPSED).await;
        tokio::time::sleep(Duration::from_millis(5)).await;
        assert_eq!(store.finish(&key(1), Token(1)).await, Ok(true));
        assert_eq!(claim(other, 1, 2, LONG).await, Claimed::Processed);
    });
}

fn a_mark_is_made_once(kind: Kind) {
    let world = kind.create();
    let [store, other] = &world.nodes;
    world.runtime.block_on(async {
        claim(store, 1, 1, LONG).await;
        assert_eq!(store.finish(&key(1), Token(1)).await, Ok(true));
        let first = store.receipt(&key(1)).await;
        tokio::time::sleep(Duration::from_millis(3)).await;
        // As when the first answer was lost on its way.
        assert_eq!(other.finish(&key(1), Token(1)).await, Ok(true));
        assert_eq!(store.renew(&key(1), Token(1), LONG.lease).await, Ok(true));
        assert_eq!(store.receipt(&key(1)).await, first);
        assert_eq!(claim(other, 1, 2, LONG).await, Claimed::Processed);
    });
}

fn a_receipt_counts_for_its_time_from_the_first(kind: Kind) {
    let world = kind.create();
    let [store, other] = &world.nodes;
    world.runtime.block_on(async {
        let short = Terms { keep: Duration::from_secs(1), ..LONG };
        // Given back in between, which makes it no younger.
        claim(store, 1, 1, short).await;
        let first = store.receipt(&key(1)).await.unwrap().unwrap();
        store.release(&key(1), Token(1)).await.unwrap();
        assert_eq!(claim(store, 1, 2, short).await, Claimed::Yes);
        assert_eq!(store.receipt(&key(1)).await, Ok(Some(first)));
        store.finish(&key(1), Token(2)).await.unwrap();
        claimed_in_the_end(other, 1, 3, short).await;
        let again = store.receipt(&key(1)).await.unwrap().unwrap();
        assert!(again.received_at >= first.received_at + short.keep, "{first:?} {again:?}");
        assert_eq!(again.processed_at, None);
    });
}

fn a_claim_outlives_the_time_of_its_receipt(kind: Kind) {
    let world = kind.create();
    let [store, other] = &world.nodes;
    world.runtime.block_on(async {
        let short = Terms { keep: Duration::from_millis(1), ..LONG };
        claim(store, 1, 1, short).await;
        tokio::time::sleep(Duration::from_millis(5)).await;
        assert_eq!(claim(other, 1, 2, short).await, Claimed::InProgress);
        assert_eq!(other.prune(Duration::ZERO, 10).await, Ok(0));
        assert_eq!(store.renew(&key(1), Token(1), LONG.lease).await, Ok(true));
        assert_eq!(store.finish(&key(1), Token(1)).await, Ok(true));
        assert_eq!(claim(other, 1, 2, short).await, Claimed::Yes);
    });
}

fn only_what_is_over_is_pruned(kind: Kind) {
    let world = kind.create();
    let [store, other] = &world.nodes;
    world.runtime.block_on(async {
        for number in 1..=5 {
            claim(store, number, 1, LONG).await;
            store.finish(&key(number), Token(1)).await.unwrap();
        }
        claim(store, 6, 1, LONG).await;
        claim(store, 7, 1, LAPSED).await;
        tokio::time::sleep(Duration::from_millis(5)).await;
        assert_eq!(other.prune(LONG.keep, 100).await, Ok(0));
        let pruned = if kind.forgets_by_itself { [0, 0, 0] } else { [4, 2, 0] };
        for (limit, expected) in [4, 100, 100].into_iter().zip(pruned) {
            assert_eq!(other.prune(Duration::ZERO, limit).await, Ok(expected));
        }
        assert_eq!(claim(other, 6, 2, LONG).await, Claimed::InProgress);
        let first = claim(store, 1, 2, LONG).await;
        assert_eq!(first == Claimed::Processed, kind.forgets_by_itself);
    });
}
