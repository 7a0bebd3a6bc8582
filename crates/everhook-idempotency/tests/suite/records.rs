//! What the store's verbs do to a record.

use std::sync::Arc;
use std::time::Duration;

use everhook_domain::idempotency::answer::{Answer, Remembered};
use everhook_domain::idempotency::claim::{ClaimRecord, ClaimState, Token};
use everhook_domain::idempotency::{Fingerprint, fingerprint};
use everhook_domain::key::KeyHash;
use everhook_idempotency::store::{Finished, Quota, Store, Taken, Taking, Terms};
use tokio::task::JoinSet;

use crate::backend::Kind;
use crate::{Case, case};

pub(crate) const LONG: Terms = Terms { lease: HOUR, ttl: HOUR };
/// A lease that is over at once.
pub(crate) const LAPSED: Terms = Terms { lease: Duration::ZERO, ttl: HOUR };
/// A record that is over at once.
pub(crate) const OVER: Terms = Terms { lease: Duration::ZERO, ttl: Duration::ZERO };
pub(crate) const HOUR: Duration = Duration::from_secs(3_600);
pub(crate) const ROOM: Quota = Quota { keys: 1_000_000, bytes: 1_000_000_000 };

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case(a_taken_key_is_as_it_was_taken),
        case(one_of_many_takes_a_key),
        case(a_key_is_taken_only_as_it_was_seen),
        case(an_own_claim_is_renewed),
        case(an_own_claim_is_finished_once),
        case(an_own_open_claim_is_released),
        case(a_late_owner_changes_nothing),
        case(any_bytes_come_back),
    ]
}

pub(crate) fn key(number: u8) -> KeyHash {
    KeyHash([number; 16])
}

pub(crate) fn taking(number: u8, token: i64) -> Taking {
    Taking {
        key: key(number),
        account: key(200),
        account_name: String::new(),
        subject: String::new(),
        rule: fingerprint::RULE,
        fingerprint: Fingerprint([number; 32]),
        token: Token(token),
        checkpoint: None,
    }
}

pub(crate) fn answer(body: &[u8]) -> Vec<u8> {
    remembered(body).encode()
}

fn remembered(body: &[u8]) -> Remembered {
    let headers = vec![("content-type".to_owned(), "a/b".to_owned())];
    Remembered::Answer(Answer { status: 201, headers, body: body.to_vec() })
}

pub(crate) async fn take(store: &Arc<dyn Store>, number: u8, token: i64, terms: Terms) {
    let taken = store.take(&taking(number, token), None, terms, ROOM).await.unwrap();
    assert_eq!(taken, Taken::Yes);
}

pub(crate) async fn record(store: &Arc<dyn Store>, number: u8) -> Option<ClaimRecord> {
    store.look(key(number)).await.unwrap().record
}

fn a_taken_key_is_as_it_was_taken(kind: Kind) {
    let world = kind.create();
    let [store, other] = &world.nodes;
    world.runtime.block_on(async {
        assert_eq!(record(store, 1).await, None);
        let before = store.look(key(1)).await.unwrap().now;
        let taking = Taking { checkpoint: Some(b"c".to_vec()), ..taking(1, i64::MIN) };
        assert_eq!(store.take(&taking, None, LONG, ROOM).await, Ok(Taken::Yes));
        let look = other.look(key(1)).await.unwrap();
        let record = look.record.unwrap();
        let ClaimState::Open { lease_until, checkpoint } = record.state else { panic!("open") };
        assert_eq!(checkpoint.as_deref(), Some(&b"c"[..]));
        assert!(before + LONG.lease <= lease_until && lease_until <= look.now + LONG.lease);
        let ttl = record.expires_at.since(lease_until);
        assert!(ttl.abs_diff(LONG.ttl) <= Duration::from_millis(5), "{ttl:?}");
        assert_eq!((record.account, record.rule), (taking.account, taking.rule));
        assert_eq!((record.fingerprint, record.token), (taking.fingerprint, taking.token));
        assert_eq!(super::records::record(other, 2).await, None);
    });
}

fn one_of_many_takes_a_key(kind: Kind) {
    let world = kind.create();
    world.runtime.block_on(async {
        let mut tries = JoinSet::new();
        for number in 0..200 {
            let store = Arc::clone(&world.nodes[number % 2]);
            let token = i64::try_from(number).unwrap();
            tries.spawn(async move { store.take(&taking(1, token), None, LONG, ROOM).await });
        }
        let taken = tries.join_all().await;
        let count = |one| taken.iter().filter(|taken| **taken == Ok(one)).count();
        assert_eq!((count(Taken::Yes), count(Taken::Changed)), (1, 199));
    });
}

fn a_key_is_taken_only_as_it_was_seen(kind: Kind) {
    let world = kind.create();
    let [store, other] = &world.nodes;
    world.runtime.block_on(async {
        take(store, 1, 1, LAPSED).await;
        let seen = record(store, 1).await.unwrap();
        let again = taking(1, 2);
        let try_with = |seen: Option<ClaimRecord>| {
            let again = again.clone();
            async move { other.take(&again, seen.as_ref(), LONG, ROOM).await.unwrap() }
        };
        assert_eq!(try_with(None).await, Taken::Changed);
        let wrong = ClaimRecord { token: Token(9), ..seen.clone() };
        assert_eq!(try_with(Some(wrong)).await, Taken::Changed);
        let end = seen.expires_at + Duration::from_millis(1);
        assert_eq!(
            try_with(Some(ClaimRecord { expires_at: end, ..seen.clone() })).await,
            Taken::Changed
        );
        // Renewed since it was seen: its owner lives.
        assert_eq!(store.renew(key(1), Token(1), LONG, None).await, Ok(true));
        assert_eq!(try_with(Some(seen)).await, Taken::Changed);
        let seen = record(store, 1).await;
        assert_eq!(try_with(seen.clone()).await, Taken::Yes);
        assert_eq!(try_with(seen.clone()).await, Taken::Changed);
        assert_eq!(record(store, 1).await.unwrap().token, Token(2));
        // What was seen is gone.
        assert_eq!(store.release(key(1), Token(2)).await, Ok(true));
        assert_eq!(try_with(seen).await, Taken::Changed);
        assert_eq!(try_with(None).await, Taken::Yes);
        // A finished one that is over is taken like any other.
        assert_eq!(
            store.finish(key(1), Token(2), &answer(b"x"), Duration::ZERO).await,
            Ok(Finished::Now)
        );
        let seen = record(store, 1).await;
        assert_eq!(try_with(seen).await, Taken::Yes);
        assert!(matches!(record(store, 1).await.unwrap().state, ClaimState::Open { .. }));
    });
}

fn an_own_claim_is_renewed(kind: Kind) {
    let world = kind.create();
    let [store, other] = &world.nodes;
    world.runtime.block_on(async {
        assert_eq!(store.renew(key(1), Token(1), LONG, None).await, Ok(false));
        // Also after its lease was over, as long as nobody took it.
        take(store, 1, 1, LAPSED).await;
        assert_eq!(other.renew(key(1), Token(2), LONG, Some(b"x")).await, Ok(false));
        assert!(store.look(key(1)).await.unwrap().record.is_some_and(|record| {
            matches!(record.state, ClaimState::Open { checkpoint: None, .. })
        }));
        for (checkpoint, expected) in [
            (None, None),
            (Some(&b"1"[..]), Some(&b"1"[..])),
            (None, Some(b"1")),
            (Some(b""), Some(b"")),
        ] {
            assert_eq!(store.renew(key(1), Token(1), LONG, checkpoint).await, Ok(true));
            let look = other.look(key(1)).await.unwrap();
            let record = look.record.unwrap();
            assert!(!record.has_lapsed(look.now));
            let ClaimState::Open { checkpoint, .. } = record.state else { panic!("open") };
            assert_eq!(checkpoint.as_deref(), expected);
        }
        // A lease of nothing gives it up.
        assert_eq!(store.renew(key(1), Token(1), LAPSED, None).await, Ok(true));
        let look = other.look(key(1)).await.unwrap();
        assert!(look.record.unwrap().has_lapsed(look.now));
        store.finish(key(1), Token(1), &answer(b""), HOUR).await.unwrap();
        let finished = record(store, 1).await;
        assert_eq!(store.renew(key(1), Token(1), LAPSED, Some(b"x")).await, Ok(true));
        assert_eq!(record(store, 1).await, finished);
    });
}

fn an_own_claim_is_finished_once(kind: Kind) {
    let world = kind.create();
    let [store, other] = &world.nodes;
    world.runtime.block_on(async {
        let finish = |token, body: &'static [u8]| async move {
            store.finish(key(1), Token(token), &answer(body), HOUR).await.unwrap()
        };
        assert_eq!(finish(1, b"a").await, Finished::Lost);
        // After its lease was over too, as long as nobody took it.
        take(store, 1, 1, LAPSED).await;
        assert_eq!(finish(2, b"a").await, Finished::Lost);
        let before = store.look(key(1)).await.unwrap().now;
        assert_eq!(finish(1, b"a").await, Finished::Now);
        let look = other.look(key(1)).await.unwrap();
        let first = look.record.unwrap();
        assert_eq!(first.state, ClaimState::Finished(remembered(b"a")));
        assert!(before + HOUR <= first.expires_at && first.expires_at <= look.now + HOUR);
        assert_eq!(finish(1, b"b").await, Finished::Before);
        assert_eq!(finish(2, b"b").await, Finished::Lost);
        assert_eq!(record(other, 1).await, Some(first));
    });
}

fn an_own_open_claim_is_released(kind: Kind) {
    let world = kind.create();
    let [store, other] = &world.nodes;
    world.runtime.block_on(async {
        assert_eq!(store.release(key(1), Token(1)).await, Ok(false));
        take(store, 1, 1, LONG).await;
        assert_eq!(store.release(key(1), Token(2)).await, Ok(false));
        assert_eq!(other.release(key(1), Token(1)).await, Ok(true));
        assert_eq!(record(store, 1).await, None);
        take(store, 1, 3, LONG).await;
        store.finish(key(1), Token(3), &answer(b""), HOUR).await.unwrap();
        assert_eq!(store.release(key(1), Token(3)).await, Ok(false));
        assert!(record(store, 1).await.is_some());
    });
}

fn a_late_owner_changes_nothing(kind: Kind) {
    let world = kind.create();
    let [store, other] = &world.nodes;
    world.runtime.block_on(async {
        take(store, 1, 1, LAPSED).await;
        let seen = record(other, 1).await;
        let second = Taking { checkpoint: Some(b"2".to_vec()), ..taking(1, 2) };
        assert_eq!(other.take(&second, seen.as_ref(), LONG, ROOM).await, Ok(Taken::Yes));
        let taken = record(other, 1).await;
        assert_eq!(store.renew(key(1), Token(1), LONG, Some(b"1")).await, Ok(false));
        assert_eq!(store.finish(key(1), Token(1), &answer(b""), HOUR).await, Ok(Finished::Lost));
        assert_eq!(store.release(key(1), Token(1)).await, Ok(false));
        assert_eq!(record(other, 1).await, taken);
    });
}

fn any_bytes_come_back(kind: Kind) {
    let world = kind.create();
    let [store, other] = &world.nodes;
    world.runtime.block_on(async {
        let bytes: Vec<u8> = (0..=255).cycle().take(300_000).collect();
        take(store, 1, 1, LONG).await;
        store.renew(key(1), Token(1), LONG, Some(&bytes)).await.unwrap();
        let Some(ClaimState::Open { checkpoint, .. }) = record(other, 1).await.map(|r| r.state)
        else {
            panic!("open")
        };
        assert_eq!(checkpoint, Some(bytes.clone()));
        store.finish(key(1), Token(1), &answer(&bytes), HOUR).await.unwrap();
        let state = record(other, 1).await.map(|record| record.state);
        assert_eq!(state, Some(ClaimState::Finished(remembered(&bytes))));
    });
}
