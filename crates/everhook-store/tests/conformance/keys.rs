//! Claims of keys: taken as they were seen, fenced by their tokens, over at their instant.

use std::time::Duration;

use everhook_domain::idempotency::answer::{Answer, Remembered};
use everhook_domain::idempotency::claim::{ClaimState, Finished, Quota, Taken, Terms, Token};
use everhook_domain::idempotency::{Fingerprint, fingerprint};
use everhook_domain::tenant::TenantId;
use everhook_domain::time::Timestamp;
use everhook_store::{
    HeldClaim, JobStep, RecordName, RecordOrigin, Refusal, StoreError, StoredClaim, Taking,
};

use crate::backend::{Kind, RowOf};
use crate::sketch::{account, just_before, key, ms, secs, tenant};
use crate::world::World;
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case(a_taken_key_is_as_it_was_taken),
        case(a_key_is_taken_only_as_it_was_seen),
        case(one_of_many_takes_a_key),
        case(a_live_claim_keeps_its_id_and_another_gets_its_own),
        case(an_own_claim_is_renewed),
        case(an_own_claim_is_finished_once),
        case(a_claim_is_over_at_its_instant),
        case(an_own_open_claim_is_released),
        case(a_late_owner_changes_nothing),
        case(any_bytes_come_back),
        case(claims_survive_a_crash),
        case(nothing_of_another_tenant_is_found_or_changed),
        case(what_is_over_is_cleared_away_in_steps),
        case(a_damaged_claim_fails_only_its_own_verbs),
    ]
}

pub(crate) const TERMS: Terms = Terms { lease: secs(30), ttl: secs(3_600) };
/// How long what is finished is kept here.
pub(crate) const TTL: Duration = secs(3_600);
pub(crate) const ROOM: Quota = Quota { keys: 1_000_000, bytes: 1_000_000_000 };

pub(crate) fn taking(name: &str, token: i64) -> Taking {
    Taking {
        tenant: TenantId::default_tenant(),
        key: key(name),
        account: account("caller"),
        name: RecordName {
            origin: RecordOrigin::Proxy,
            account: "caller".into(),
            subject: format!("POST /{name}"),
        },
        rule: fingerprint::RULE,
        fingerprint: Fingerprint([7; 32]),
        token: Token(token),
        checkpoint: None,
    }
}

pub(crate) fn held(name: &str, token: i64) -> HeldClaim {
    HeldClaim { tenant: TenantId::default_tenant(), key: key(name), token: Token(token) }
}

pub(crate) fn remembered(body: &[u8]) -> Remembered {
    let headers = vec![("content-type".to_owned(), "a/b".to_owned())];
    Remembered::Answer(Answer { status: 201, headers, body: body.to_vec() })
}

/// Every verb as a plain call.
impl World {
    pub(crate) fn look(&self, name: &str) -> Option<StoredClaim> {
        self.wait(self.store.look(self.tenant.clone(), key(name))).unwrap()
    }

    pub(crate) fn try_take(&self, taking: Taking, quota: Quota) -> Result<Taken, StoreError> {
        let seen = self.wait(self.store.look(taking.tenant.clone(), taking.key))?;
        let seen = seen.map(|claim| (claim.record.token, claim.record.expires_at));
        self.wait(self.store.take(taking, seen, TERMS, quota, self.now))
    }

    /// Takes a key as it is.
    pub(crate) fn take(&self, name: &str, token: i64) -> StoredClaim {
        assert_eq!(self.try_take(taking(name, token), ROOM), Ok(Taken::Yes));
        self.look(name).unwrap()
    }

    pub(crate) fn renew(&self, name: &str, token: i64, checkpoint: Option<&[u8]>) -> bool {
        let checkpoint = checkpoint.map(<[u8]>::to_vec);
        self.wait(self.store.renew(held(name, token), TERMS, checkpoint, self.now)).unwrap()
    }

    pub(crate) fn finish_claim(&self, name: &str, token: i64, body: &[u8]) -> Finished {
        let bytes = remembered(body).encode();
        self.wait(self.store.finish(held(name, token), bytes, TTL, self.now)).unwrap()
    }

    pub(crate) fn release_claim(&self, name: &str, token: i64) -> bool {
        self.wait(self.store.release(held(name, token))).unwrap()
    }
}

fn open(lease_until: Timestamp, checkpoint: Option<&[u8]>) -> ClaimState {
    ClaimState::Open { lease_until, checkpoint: checkpoint.map(<[u8]>::to_vec) }
}

fn a_taken_key_is_as_it_was_taken(kind: Kind) {
    let world = World::new(kind);
    assert_eq!(world.look("k"), None);
    let taking = Taking { checkpoint: Some(b"c\0".to_vec()), ..taking("k", i64::MIN) };
    assert_eq!(world.try_take(taking.clone(), ROOM), Ok(Taken::Yes));
    let claim = world.look("k").unwrap();
    let record = &claim.record;
    assert_eq!((claim.key, &claim.tenant, record.token), (taking.key, &world.tenant, taking.token));
    assert_eq!((record.account, record.rule), (taking.account, taking.rule));
    assert_eq!(record.fingerprint, taking.fingerprint);
    let lease_until = world.now + TERMS.lease;
    assert_eq!(record.state, open(lease_until, Some(b"c\0")));
    assert_eq!(record.expires_at, lease_until + TERMS.ttl);
    assert_eq!(claim.id.created_at(), world.now);
    let found = world.wait(world.store.look_at(world.tenant.clone(), claim.id));
    assert_eq!(found, Ok(Some(claim)));
    assert_eq!(world.look("other"), None);
}

fn a_key_is_taken_only_as_it_was_seen(kind: Kind) {
    let mut world = World::new(kind);
    let take = |world: &World, token, seen| {
        world.wait(world.store.take(taking("k", token), seen, TERMS, ROOM, world.now)).unwrap()
    };
    let end = world.now + TERMS.lease + TERMS.ttl;
    assert_eq!(take(&world, 1, Some((Token(0), end))), Taken::Changed, "it is absent");
    assert_eq!(take(&world, 1, None), Taken::Yes);
    for seen in [None, Some((Token(2), end)), Some((Token(1), end + ms(1)))] {
        assert_eq!(take(&world, 3, seen), Taken::Changed, "{seen:?}");
    }
    assert_eq!(world.look("k").unwrap().record.token, Token(1));
    // Renewed in between, it is not as it was.
    world.advance(secs(1));
    assert!(world.renew("k", 1, None));
    assert_eq!(take(&world, 3, Some((Token(1), end))), Taken::Changed);
    assert_eq!(take(&world, 3, Some((Token(1), end + secs(1)))), Taken::Yes);
    assert_eq!(take(&world, 4, Some((Token(1), end + secs(1)))), Taken::Changed);
    assert_eq!(world.look("k").unwrap().record.token, Token(3));
}

fn one_of_many_takes_a_key(kind: Kind) {
    let world = World::new(kind);
    let taken = world.at_once(60, |number, store, now| async move {
        let taking = taking(&format!("k{}", number % 3), number as i64);
        store.take(taking, None, TERMS, ROOM, now).await.unwrap()
    });
    assert_eq!(taken.iter().filter(|taken| **taken == Taken::Yes).count(), 3);
    assert_eq!(taken.iter().filter(|taken| **taken == Taken::Changed).count(), 57);
}

fn a_live_claim_keeps_its_id_and_another_gets_its_own(kind: Kind) {
    let mut world = World::new(kind);
    let first = world.take("k", 1);
    world.renew("k", 1, Some(b"c"));
    world.advance(TERMS.lease);
    let again = world.take("k", 2);
    assert_eq!(again.id, first.id);
    assert_eq!(again.record.state, open(world.now + TERMS.lease, None), "nothing of the first");
    world.finish_claim("k", 2, b"x");
    world.advance(TTL);
    let new = world.take("k", 3);
    assert!(new.id > first.id, "{new:?}");
    assert_eq!(new.id.created_at(), world.now);
    assert_eq!(new.record.state, open(world.now + TERMS.lease, None));
    let gone = world.wait(world.store.look_at(world.tenant.clone(), first.id));
    assert_eq!(gone, Ok(None));
}

fn an_own_claim_is_renewed(kind: Kind) {
    let mut world = World::new(kind);
    world.take("k", 1);
    // In time; at the end of the lease; and long after it, as nobody has taken the key.
    for (wait, checkpoint, kept) in
        [(secs(10), Some(&b"a"[..]), b"a"), (secs(30), None, b"a"), (secs(90), Some(b"b"), b"b")]
    {
        world.advance(wait);
        assert!(!world.renew("k", 2, Some(b"x")) && !world.renew("other", 1, None));
        assert!(world.renew("k", 1, checkpoint));
        let record = world.look("k").unwrap().record;
        let lease_until = world.now + TERMS.lease;
        assert_eq!(record.state, open(lease_until, Some(kept)));
        assert_eq!(record.expires_at, lease_until + TERMS.ttl);
    }
    world.finish_claim("k", 1, b"x");
    let finished = world.look("k");
    world.advance(secs(1));
    assert!(world.renew("k", 1, Some(b"c")), "finished, and its own");
    assert_eq!(world.look("k"), finished);
}

fn an_own_claim_is_finished_once(kind: Kind) {
    let mut world = World::new(kind);
    let id = world.take("k", 1).id;
    world.renew("k", 1, Some(b"c"));
    world.advance(secs(100));
    assert_eq!(world.finish_claim("k", 2, b"x"), Finished::Lost);
    assert_eq!(world.finish_claim("other", 1, b"x"), Finished::Lost);
    assert_eq!(world.finish_claim("k", 1, b"first"), Finished::Now, "though its lease is over");
    let claim = world.look("k").unwrap();
    assert_eq!(claim.id, id);
    assert_eq!(claim.record.state, ClaimState::Finished(remembered(b"first")));
    assert_eq!(claim.record.expires_at, world.now + TTL);
    world.advance(secs(1));
    assert_eq!(world.finish_claim("k", 1, b"second"), Finished::Before);
    assert_eq!(world.finish_claim("k", 2, b"second"), Finished::Lost);
    assert_eq!(world.look("k"), Some(claim));
    let unreadable = world.store.finish(held("k", 1), b"{".to_vec(), TTL, world.now);
    assert!(matches!(world.wait(unreadable), Err(StoreError::Failed(_))));
}

fn a_claim_is_over_at_its_instant(kind: Kind) {
    for cleared in [false, true] {
        let mut world = World::new(kind);
        let end = world.take("open", 1).record.expires_at;
        world.take("done", 1);
        world.now = just_before(end);
        assert_eq!(world.finish_claim("done", 1, b"x"), Finished::Now);
        assert!(world.renew("open", 1, None));
        for name in ["done", "open"] {
            let end = world.look(name).unwrap().record.expires_at;
            world.now = just_before(end);
            assert_eq!(world.finish_claim(name, 2, b"x"), Finished::Lost);
            assert_eq!(world.renew("done", 1, None), name == "done");
            world.now = end;
            if cleared {
                world.run_jobs();
            }
            assert_eq!(world.look(name).is_none(), cleared);
            assert!(!world.renew(name, 1, None));
            assert_eq!(world.finish_claim(name, 1, b"x"), Finished::Lost);
            world.take(name, 2);
        }
    }
}

fn an_own_open_claim_is_released(kind: Kind) {
    let world = World::new(kind);
    let first = world.take("k", 1).id;
    assert!(!world.release_claim("k", 2) && !world.release_claim("other", 1));
    assert!(world.release_claim("k", 1));
    assert!(!world.release_claim("k", 1));
    assert_eq!(world.look("k"), None);
    assert!(world.take("k", 1).id > first);
    world.finish_claim("k", 1, b"x");
    assert!(!world.release_claim("k", 1), "it is finished");
    assert!(world.look("k").is_some());
}

fn a_late_owner_changes_nothing(kind: Kind) {
    let mut world = World::new(kind);
    world.take("k", 1);
    world.advance(TERMS.lease);
    let other = world.take("k", 2);
    assert!(!world.renew("k", 1, Some(b"late")) && !world.release_claim("k", 1));
    assert_eq!(world.finish_claim("k", 1, b"late"), Finished::Lost);
    assert_eq!(world.look("k"), Some(other));
}

fn any_bytes_come_back(kind: Kind) {
    let world = World::new(kind);
    let large = vec![b'x'; 300_000];
    for (number, body) in [&b""[..], b"\0\xff\n", "ä".as_bytes(), &large].into_iter().enumerate() {
        let name = number.to_string();
        world.take(&name, 1);
        assert!(world.renew(&name, 1, Some(body)));
        let ClaimState::Open { checkpoint, .. } = world.look(&name).unwrap().record.state else {
            panic!("not open");
        };
        assert_eq!(checkpoint.as_deref(), Some(body));
        world.finish_claim(&name, 1, body);
        let state = world.look(&name).unwrap().record.state;
        assert_eq!(state, ClaimState::Finished(remembered(body)));
    }
    world.take("t", 1);
    let tombstone = Remembered::Tombstone { status: 200 };
    let finish = world.store.finish(held("t", 1), tombstone.encode(), TTL, world.now);
    assert_eq!(world.wait(finish), Ok(Finished::Now));
    assert_eq!(world.look("t").unwrap().record.state, ClaimState::Finished(tombstone));
}

fn claims_survive_a_crash(kind: Kind) {
    let mut world = World::new(kind);
    world.take("open", 1);
    world.take("done", 1);
    world.finish_claim("done", 1, b"x");
    let before = (world.look("open"), world.look("done"));
    world.crash();
    assert_eq!((world.look("open"), world.look("done")), before);
    assert!(world.renew("open", 1, None), "a claim is its owner's, whichever process serves it");
}

fn nothing_of_another_tenant_is_found_or_changed(kind: Kind) {
    let world = World::new(kind);
    let other = world.add_tenant("other");
    let claim = world.take("k", 1);
    assert_eq!(world.wait(world.store.look(other.clone(), claim.key)), Ok(None));
    assert_eq!(world.wait(world.store.look_at(other.clone(), claim.id)), Ok(None));
    let foreign = || HeldClaim { tenant: other.clone(), ..held("k", 1) };
    let renew = world.store.renew(foreign(), TERMS, None, world.now);
    assert_eq!(world.wait(renew), Ok(false));
    let finish = world.store.finish(foreign(), remembered(b"x").encode(), TTL, world.now);
    assert_eq!(world.wait(finish), Ok(Finished::Lost));
    assert_eq!(world.wait(world.store.release(foreign())), Ok(false));
    assert_eq!(world.look("k"), Some(claim));
    let nobodys = Taking { tenant: tenant("nobody"), ..taking("n", 1) };
    let refused = world.store.take(nobodys, None, TERMS, ROOM, world.now);
    assert_eq!(world.wait(refused), Err(StoreError::Refused(Refusal::NotFound)));
    let nobodys = HeldClaim { tenant: tenant("nobody"), ..held("k", 1) };
    assert_eq!(world.wait(world.store.release(nobodys)), Ok(false));
}

fn what_is_over_is_cleared_away_in_steps(kind: Kind) {
    let mut world = World::new(kind);
    for number in 0..510 {
        world.take(&number.to_string(), 1);
    }
    world.advance(secs(1));
    world.take("later", 1);
    world.advance(TERMS.lease + TERMS.ttl - secs(1));
    assert_eq!(world.rows()["claims"], 511);
    assert_eq!(world.job_step(), JobStep::More);
    assert_eq!(world.rows()["claims"], 11, "500 rows a step");
    world.run_jobs();
    assert_eq!(world.job_step(), JobStep::Idle);
    assert_eq!(world.rows()["claims"], 1);
    assert!(world.look("later").is_some());
}

fn a_damaged_claim_fails_only_its_own_verbs(kind: Kind) {
    let mut world = World::new(kind);
    let damaged = world.take("damaged", 1).id;
    world.take("k", 1);
    let row = || RowOf { table: "claims", bits: damaged.bits() };
    for column in ["origin", "fingerprint"] {
        world.store_as(row(), column, "short");
    }
    let look = |name: &str| world.wait(world.store.look(world.tenant.clone(), key(name)));
    assert!(matches!(look("damaged"), Err(StoreError::Failed(_))));
    assert!(matches!(look("k"), Ok(Some(_))));
    // All at once, so that they may share a commit.
    let finished = world.at_once(8, |number, store, now| async move {
        let name = if number % 4 == 0 { "damaged" } else { "k" };
        let finish = store.finish(held(name, 1), remembered(b"x").encode(), TTL, now);
        (name, finish.await)
    });
    for (name, finished) in finished {
        assert!(finished.is_ok() || name == "damaged", "{name} {finished:?}");
    }
    world.advance(TERMS.lease + TERMS.ttl);
    world.run_jobs();
    assert_eq!(world.rows()["claims"], 0);
}
