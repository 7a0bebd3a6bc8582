//! What an account may have of idempotency keys.

use everhook_domain::idempotency::claim::{Finished, Quota, Taken};
use everhook_store::{Claim, Claimed, Published, StorePolicy, Taking};

use crate::backend::Kind;
use crate::keys::{ROOM, TERMS, TTL, taking};
use crate::sketch::{account, claim, events, just_before, publish_in, secs};
use crate::world::World;
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case(keys_are_counted_by_account),
        case(bytes_are_counted_by_account),
        case(what_is_over_makes_room_at_once),
        case(counts_survive_a_crash),
        case(many_at_once_keep_to_the_quota),
        case(our_own_api_keeps_to_the_quota),
        case(claims_and_our_own_api_share_a_quota),
        case(a_key_that_is_used_anew_counts_once),
    ]
}

const TWO: Quota = Quota { keys: 2, bytes: 1_000_000 };

fn take(world: &World, name: &str, quota: Quota) -> Taken {
    world.try_take(taking(name, 1), quota).unwrap()
}

fn keys_are_counted_by_account(kind: Kind) {
    let mut world = World::new(kind);
    assert_eq!([take(&world, "a", TWO), take(&world, "b", TWO)], [Taken::Yes; 2]);
    assert_eq!(take(&world, "c", TWO), Taken::OverQuota);
    assert_eq!(world.look("c"), None);
    let others = Taking { account: account("other"), ..taking("c", 1) };
    assert_eq!(world.try_take(others, TWO), Ok(Taken::Yes));
    // One that is live is taken over, however full the account is.
    world.advance(TERMS.lease);
    assert_eq!(world.try_take(taking("a", 2), TWO), Ok(Taken::Yes));
    // Renewing and finishing changes no count.
    assert!(world.renew("b", 1, None));
    assert_eq!(world.finish_claim("b", 1, b"x"), Finished::Now);
    assert_eq!(take(&world, "d", TWO), Taken::OverQuota);
    assert!(world.release_claim("a", 2));
    assert_eq!(take(&world, "d", TWO), Taken::Yes);
    assert_eq!(take(&world, "e", TWO), Taken::OverQuota);
    assert_eq!(take(&world, "e", Quota { keys: 3, ..TWO }), Taken::Yes);
    assert_eq!(take(&world, "f", Quota { keys: 0, ..TWO }), Taken::OverQuota);
}

fn bytes_are_counted_by_account(kind: Kind) {
    let world = World::new(kind);
    let hundred = Quota { bytes: 100, ..ROOM };
    assert_eq!([take(&world, "a", hundred), take(&world, "b", hundred)], [Taken::Yes; 2]);
    world.finish_claim("a", 1, b"");
    assert_eq!(take(&world, "c", hundred), Taken::Yes, "below it");
    world.finish_claim("b", 1, &[b'x'; 100]);
    assert_eq!(take(&world, "d", hundred), Taken::OverQuota);
    // What is under way may finish.
    assert_eq!(world.finish_claim("c", 1, &[b'x'; 100]), Finished::Now);
    for name in ["b", "c"] {
        let id = world.look(name).unwrap().id;
        assert_eq!(take(&world, "d", hundred), Taken::OverQuota);
        world.forget(id).unwrap();
    }
    assert_eq!(take(&world, "d", hundred), Taken::Yes);
}

fn what_is_over_makes_room_at_once(kind: Kind) {
    let mut world = World::new(kind);
    let begun = world.now;
    take(&world, "a", TWO);
    world.advance(secs(1));
    take(&world, "b", TWO);
    world.finish_claim("b", 1, b"x");
    let end = begun + TERMS.lease + TERMS.ttl;
    world.now = just_before(end);
    // "b" was finished, and is over before.
    assert_eq!(take(&world, "c", TWO), Taken::Yes);
    assert_eq!(take(&world, "d", TWO), Taken::OverQuota);
    world.now = end;
    assert_eq!(take(&world, "d", TWO), Taken::Yes);
    assert_eq!(take(&world, "e", TWO), Taken::OverQuota);
    // Clearing away changes nothing of it, nor does using one anew.
    world.run_jobs();
    assert_eq!(world.rows()["claims"], 2);
    assert_eq!(take(&world, "e", TWO), Taken::OverQuota);
    world.now = end + TERMS.lease + TERMS.ttl;
    assert_eq!([take(&world, "d", TWO), take(&world, "c", TWO)], [Taken::Yes; 2]);
    assert_eq!(take(&world, "e", TWO), Taken::OverQuota);
}

fn counts_survive_a_crash(kind: Kind) {
    let mut world = World::new(kind);
    let quota = Quota { keys: 3, bytes: 200 };
    take(&world, "a", quota);
    take(&world, "b", quota);
    publish(&world, "p");
    world.finish_claim("b", 1, &[b'x'; 100]);
    for _ in 0..2 {
        world.crash();
        assert_eq!(take(&world, "c", Quota { bytes: 1_000, ..quota }), Taken::OverQuota);
        assert_eq!(take(&world, "c", Quota { keys: 4, bytes: 100 }), Taken::OverQuota);
    }
    assert_eq!(take(&world, "c", Quota { keys: 4, bytes: 1_000 }), Taken::Yes);
}

fn many_at_once_keep_to_the_quota(kind: Kind) {
    let world = World::new(kind);
    let ten = Quota { keys: 10, ..ROOM };
    let taken = world.at_once(60, |number, store, now| async move {
        let taking = taking(&number.to_string(), 1);
        store.take(taking, None, TERMS, ten, now).await.unwrap()
    });
    assert_eq!(taken.iter().filter(|taken| **taken == Taken::Yes).count(), 10);
    assert_eq!(taken.iter().filter(|taken| **taken == Taken::OverQuota).count(), 50);
}

/// Publishes an event under a key of the account of the claims here.
fn publish(world: &World, name: &str) -> Claimed<Published> {
    let claim: Claim<Published> = Claim { account: account("caller"), ..claim(name, "{}") };
    let publish = publish_in(&world.tenant, events(1));
    world.wait(world.store.publish(publish, Some(claim), world.now)).unwrap()
}

fn strict(kind: Kind, quota: Quota) -> World {
    World::with(
        kind,
        StorePolicy { idempotency_quota: quota, idempotency_ttl: TTL, ..StorePolicy::default() },
    )
}

fn our_own_api_keeps_to_the_quota(kind: Kind) {
    let mut world = strict(kind, TWO);
    let begun = world.now;
    assert!(matches!(publish(&world, "a"), Claimed::Done(_)));
    world.advance(secs(1));
    assert!(matches!(publish(&world, "b"), Claimed::Done(_)));
    assert_eq!(publish(&world, "c"), Claimed::OverQuota);
    assert_eq!(world.events().len(), 2, "nothing was done");
    assert!(matches!(publish(&world, "a"), Claimed::Replayed(_)), "what is there is given");
    world.crash();
    world.now = just_before(begun + TTL);
    assert_eq!(publish(&world, "c"), Claimed::OverQuota);
    world.now = begun + TTL;
    assert!(matches!(publish(&world, "c"), Claimed::Done(_)));
    assert_eq!(publish(&world, "d"), Claimed::OverQuota);
    world.run_jobs();
    assert_eq!(publish(&world, "d"), Claimed::OverQuota);
    world.advance(secs(1));
    assert!(matches!(publish(&world, "d"), Claimed::Done(_)));
    let small = strict(kind, Quota { bytes: 10, ..ROOM });
    assert!(matches!(publish(&small, "a"), Claimed::Done(_)));
    assert_eq!(publish(&small, "b"), Claimed::OverQuota);
}

fn claims_and_our_own_api_share_a_quota(kind: Kind) {
    let world = strict(kind, TWO);
    take(&world, "a", TWO);
    assert!(matches!(publish(&world, "p"), Claimed::Done(_)));
    assert_eq!(publish(&world, "q"), Claimed::OverQuota);
    assert_eq!(take(&world, "b", TWO), Taken::OverQuota);
    world.release_claim("a", 1);
    assert!(matches!(publish(&world, "q"), Claimed::Done(_)));
    assert_eq!(take(&world, "b", TWO), Taken::OverQuota);
}

fn a_key_that_is_used_anew_counts_once(kind: Kind) {
    let mut world = strict(kind, TWO);
    for _ in 0..4 {
        assert!(matches!(publish(&world, "a"), Claimed::Done(_)));
        take(&world, "b", TWO);
        assert_eq!(publish(&world, "c"), Claimed::OverQuota);
        world.advance(TERMS.lease + TERMS.ttl);
    }
}
