//! What is shown of idempotency records, and what an operator may do to one.

use std::collections::BTreeSet;

use everhook_domain::id::RecordId;
use everhook_domain::idempotency::answer::{Answer, Remembered};
use everhook_domain::idempotency::claim::{ClaimState, Finished, IllegalSettlement};
use everhook_store::{
    Claim, Claimed, KeyRecord, Page, PageRequest, Published, RecordName, RecordOrigin, RecordQuery,
    RecordState, RecordStateWord, Refusal, StoreError, Taking,
};

use crate::backend::Kind;
use crate::keys::{ROOM, TERMS, TTL, held, remembered, taking};
use crate::sketch::{answer, claim, events, just_before, ms, publish_in};
use crate::world::{World, done};
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case(a_record_shows_how_far_it_has_come),
        case(a_record_of_our_own_api_is_shown),
        case(records_are_one_list),
        case(lists_are_filtered),
        case(a_page_goes_on_where_it_ended),
        case(records_of_others_are_not_shown),
        case(an_operator_says_how_it_ended),
        case(what_runs_or_is_known_is_not_settled),
        case(a_settlement_is_made_once_for_its_key),
        case(an_answer_without_effect_is_remembered_once),
        case(a_forgotten_claim_is_new),
        case(a_forgotten_record_of_our_own_api_is_new),
        case(ids_are_never_given_twice),
    ]
}

const ALL: PageRequest = PageRequest { limit: 1_000, after: None, scan_limit: 10_000 };

impl World {
    fn records(&self, query: RecordQuery, page: PageRequest) -> Page<KeyRecord> {
        self.wait(self.store.records(self.tenant.clone(), query, page, self.now)).unwrap()
    }

    /// What is listed, newest first; each of them is found by its id too.
    fn listed(&self) -> Vec<KeyRecord> {
        let page = self.records(RecordQuery::default(), ALL);
        assert_eq!(page.next, None);
        for record in &page.items {
            assert_eq!(self.record(record.id).as_ref(), Some(record));
        }
        page.items
    }

    fn record(&self, id: RecordId) -> Option<KeyRecord> {
        self.wait(self.store.record(self.tenant.clone(), id, self.now)).unwrap()
    }

    fn resolve(
        &self,
        id: RecordId,
        claim: Option<Claim<KeyRecord>>,
    ) -> Result<Claimed<KeyRecord>, StoreError> {
        let tenant = self.tenant.clone();
        self.wait(self.store.resolve(tenant, id, found(), claim, self.now))
    }

    pub(crate) fn forget(&self, id: RecordId) -> Result<(), StoreError> {
        self.wait(self.store.forget(self.tenant.clone(), id, self.now))
    }
}

/// What an operator has found out.
fn found() -> Answer {
    Answer { status: 200, headers: vec![], body: b"found\0".to_vec() }
}

fn not_found<T>() -> Result<T, StoreError> {
    Err(StoreError::Refused(Refusal::NotFound))
}

fn illegal<T>(why: IllegalSettlement) -> Result<T, StoreError> {
    Err(StoreError::Refused(Refusal::Record(why)))
}

/// Publishes an event under a key.
fn publish(world: &World, name: &str) -> Claimed<Published> {
    let publish = publish_in(&world.tenant, events(1));
    world.wait(world.store.publish(publish, Some(claim(name, "{}")), world.now)).unwrap()
}

fn a_record_shows_how_far_it_has_come(kind: Kind) {
    let mut world = World::new(kind);
    let id = world.take("k", 1).id;
    let lease_until = world.now + TERMS.lease;
    let shown = |world: &World| world.listed().pop().map(|record| (record.id, record.state));
    world.now = just_before(lease_until);
    assert_eq!(shown(&world), Some((id, RecordState::InProgress { lease_until })));
    world.now = lease_until;
    assert_eq!(shown(&world), Some((id, RecordState::Unknown { since: lease_until })));
    assert_eq!(world.listed()[0].name, taking("k", 1).name);
    assert_eq!(world.listed()[0].expires_at, lease_until + TERMS.ttl);
    world.finish_claim("k", 1, b"x");
    let completed = RecordState::Completed { status: 201, replayable: true };
    assert_eq!(shown(&world), Some((id, completed)));
    let end = world.now + TTL;
    assert_eq!(world.listed()[0].expires_at, end);
    world.now = just_before(end);
    assert!(shown(&world).is_some());
    world.now = end;
    assert_eq!((shown(&world), world.record(id)), (None, None));
    world.take("t", 1);
    let tombstone = Remembered::Tombstone { status: 200 };
    let held = held("t", 1);
    world.wait(world.store.finish(held, tombstone.encode(), TTL, world.now)).unwrap();
    let completed = RecordState::Completed { status: 200, replayable: false };
    assert_eq!(world.listed()[0].state, completed);
}

fn a_record_of_our_own_api_is_shown(kind: Kind) {
    let mut world = World::new(kind);
    publish(&world, "k");
    let records = world.listed();
    let [record] = &records[..] else { panic!("{records:?}") };
    let name = RecordName {
        origin: RecordOrigin::Api,
        account: "account".into(),
        subject: "POST /api/v1/events".into(),
    };
    assert_eq!(record.name, name);
    assert_eq!(record.id.created_at(), world.now);
    assert_eq!(record.state, RecordState::Completed { status: 202, replayable: true });
    let end = world.now + world.policy().idempotency_ttl;
    assert_eq!(record.expires_at, end);
    world.crash();
    assert_eq!(world.listed(), records);
    world.now = end;
    assert_eq!((world.listed(), world.record(record.id)), (vec![], None));
}

/// Claims and records of our own API by turns, newest first, as they are listed.
fn some(world: &mut World) -> Vec<String> {
    let mut expected = Vec::new();
    for number in 0..12 {
        match number % 3 {
            0 => drop(publish(world, &format!("p{number}"))),
            1 => drop(world.take(&format!("k{number}"), 1)),
            _ => {
                let claim = RecordName { origin: RecordOrigin::Claim, ..taking("", 1).name };
                let taking = Taking { name: claim, ..taking(&format!("c{number}"), 1) };
                world.try_take(taking, ROOM).unwrap();
                world.finish_claim(&format!("c{number}"), 1, b"x");
            }
        }
        expected.push(["api", "proxy", "claim"][number % 3].to_owned());
        // Several within a millisecond, too.
        world.advance(ms(number as u64 % 2));
    }
    expected.reverse();
    expected
}

fn origins(records: &[KeyRecord]) -> Vec<String> {
    records.iter().map(|record| record.name.origin.as_str().to_owned()).collect()
}

fn records_are_one_list(kind: Kind) {
    let mut world = World::new(kind);
    let expected = some(&mut world);
    let records = world.listed();
    assert_eq!(origins(&records), expected);
    assert!(records.is_sorted_by(|newer, older| newer.id > older.id));
    world.crash();
    let kept: Vec<_> = world.listed().iter().map(|record| record.id).collect();
    assert_eq!(kept, records.iter().map(|record| record.id).collect::<Vec<_>>());
}

fn lists_are_filtered(kind: Kind) {
    let mut world = World::new(kind);
    some(&mut world);
    world.advance(TERMS.lease);
    world.take("running", 1);
    let all = world.listed();
    let origins =
        [None, Some(RecordOrigin::Api), Some(RecordOrigin::Proxy), Some(RecordOrigin::Claim)];
    let states = ["in_progress", "unknown", "completed"].map(RecordStateWord::from_word);
    let mut seen = BTreeSet::new();
    for origin in origins {
        for state in [None].into_iter().chain(states) {
            let wanted = |record: &&KeyRecord| {
                origin.is_none_or(|origin| origin == record.name.origin)
                    && state.is_none_or(|state| state == RecordStateWord::of(&record.state))
            };
            let expected: Vec<_> = all.iter().filter(wanted).cloned().collect();
            let page = world.records(RecordQuery { origin, state }, ALL);
            assert_eq!((&page.items, page.next), (&expected, None), "{origin:?} {state:?}");
            seen.insert(expected.len());
        }
    }
    assert_eq!(seen, BTreeSet::from([0, 1, 4, 5, 8, 13]));
}

fn a_page_goes_on_where_it_ended(kind: Kind) {
    let mut world = World::new(kind);
    some(&mut world);
    let all = world.listed();
    for (limit, scan_limit) in [(1, 100), (5, 100), (100, 1), (3, 2), (12, 12)] {
        for state in [None, Some(RecordStateWord::Completed)] {
            let query = RecordQuery { origin: None, state };
            let mut page = PageRequest { limit, after: None, scan_limit };
            let mut seen = Vec::new();
            for _ in 0..100 {
                let Page { items, next } = world.records(query, page);
                assert!(items.len() <= limit);
                seen.extend(items);
                page.after = next;
                if next.is_none() {
                    break;
                }
            }
            assert_eq!(page.after, None, "it ends");
            let expected: Vec<_> = all
                .iter()
                .filter(|r| state.is_none_or(|state| state == RecordStateWord::of(&r.state)))
                .cloned()
                .collect();
            assert_eq!(seen, expected, "{limit} {scan_limit} {state:?}");
        }
    }
}

fn records_of_others_are_not_shown(kind: Kind) {
    let mut world = World::new(kind);
    let other = world.add_tenant("other");
    some(&mut world);
    world.advance(TERMS.lease);
    let list = |query| world.wait(world.store.records(other.clone(), query, ALL, world.now));
    let unknown = RecordQuery { state: Some(RecordStateWord::Unknown), origin: None };
    for query in [RecordQuery::default(), unknown] {
        assert_eq!(list(query), Ok(Page { items: vec![], next: None }));
    }
    for record in world.listed() {
        let (id, now) = (record.id, world.now);
        assert_eq!(world.wait(world.store.record(other.clone(), id, now)), Ok(None));
        assert_eq!(world.wait(world.store.forget(other.clone(), id, now)), not_found());
        let resolve = world.store.resolve(other.clone(), id, found(), None, now);
        assert_eq!(world.wait(resolve), not_found());
    }
}

fn an_operator_says_how_it_ended(kind: Kind) {
    let mut world = World::new(kind);
    let id = world.take("k", 1).id;
    world.advance(TERMS.lease);
    let record = done(world.resolve(id, None).unwrap());
    assert_eq!(record.state, RecordState::Completed { status: 200, replayable: true });
    assert_eq!(record.expires_at, world.now + world.policy().idempotency_ttl);
    assert_eq!(world.listed(), [record]);
    let claim = world.look("k").unwrap();
    let answer = Remembered::Answer(found());
    assert_eq!(claim.record.state, ClaimState::Finished(answer));
    assert_eq!(claim.record.fingerprint, taking("k", 1).fingerprint, "still compared");
    // Its owner, who was only slow, has lost it.
    assert!(!world.renew("k", 1, None));
    assert_eq!(world.finish_claim("k", 1, b"late"), Finished::Lost);
    assert_eq!(world.look("k"), Some(claim));
}

fn what_runs_or_is_known_is_not_settled(kind: Kind) {
    let mut world = World::new(kind);
    publish(&world, "p");
    let own = world.listed()[0].id;
    assert_eq!(world.resolve(own, None), illegal(IllegalSettlement::Completed));
    let id = world.take("k", 1).id;
    world.now = just_before(world.now + TERMS.lease);
    assert_eq!(world.resolve(id, None), illegal(IllegalSettlement::InProgress));
    assert_eq!(world.forget(id), illegal(IllegalSettlement::InProgress));
    world.finish_claim("k", 1, b"x");
    assert_eq!(world.resolve(id, None), illegal(IllegalSettlement::Completed));
    assert_eq!(world.look("k").unwrap().record.state, ClaimState::Finished(remembered(b"x")));
    let nobodys = RecordId::from_parts(1, 1, 1, 0);
    assert_eq!((world.resolve(nobodys, None), world.forget(nobodys)), (not_found(), not_found()));
    world.advance(TTL);
    assert_eq!((world.resolve(id, None), world.forget(id)), (not_found(), not_found()));
    world.now = world.now + world.policy().idempotency_ttl;
    assert_eq!((world.resolve(own, None), world.forget(own)), (not_found(), not_found()));
}

fn a_settlement_is_made_once_for_its_key(kind: Kind) {
    let mut world = World::new(kind);
    let [id, other] = ["k", "other"].map(|name| world.take(name, 1).id);
    world.advance(TERMS.lease);
    let record = done(world.resolve(id, Some(claim("settle", "1"))).unwrap());
    let expected = Claimed::Replayed(answer(&format!("{record:?}")));
    assert_eq!(world.resolve(id, Some(claim("settle", "1"))), Ok(expected));
    assert_eq!(world.resolve(other, Some(claim("settle", "2"))), Ok(Claimed::Mismatch));
    assert_eq!(world.record(other).unwrap().state, RecordState::Unknown { since: world.now });
}

fn an_answer_without_effect_is_remembered_once(kind: Kind) {
    let mut world = World::new(kind);
    let remember = |world: &World, body| {
        world.wait(world.store.remember(claim("k", body), world.now)).unwrap()
    };
    assert_eq!(remember(&world, "1"), Claimed::Done(()));
    assert_eq!(remember(&world, "1"), Claimed::Replayed(answer("()")));
    assert_eq!(remember(&world, "2"), Claimed::Mismatch);
    assert_eq!(world.listed().len(), 1);
    world.now = world.listed()[0].expires_at;
    assert_eq!(remember(&world, "2"), Claimed::Done(()));
}

fn a_forgotten_claim_is_new(kind: Kind) {
    let mut world = World::new(kind);
    let [unknown, completed] = ["unknown", "completed"].map(|name| world.take(name, 1).id);
    world.finish_claim("completed", 1, b"x");
    world.advance(TERMS.lease);
    for (id, name) in [(unknown, "unknown"), (completed, "completed")] {
        assert_eq!(world.forget(id), Ok(()));
        assert_eq!((world.forget(id), world.record(id)), (not_found(), None));
        assert_eq!((world.look(name), world.finish_claim(name, 1, b"x")), (None, Finished::Lost));
        assert!(world.take(name, 2).id > id);
    }
}

fn a_forgotten_record_of_our_own_api_is_new(kind: Kind) {
    let mut world = World::new(kind);
    for crash in [false, true] {
        publish(&world, "other");
        let first = publish(&world, "k");
        let id = world.listed()[0].id;
        assert!(matches!(publish(&world, "k"), Claimed::Replayed(_)));
        assert_eq!(world.forget(id), Ok(()));
        assert_eq!((world.forget(id), world.record(id)), (not_found(), None));
        if crash {
            world.crash();
        }
        let again = publish(&world, "k");
        assert!(matches!(again, Claimed::Done(_)) && again != first);
        assert!(matches!(publish(&world, "other"), Claimed::Replayed(_)));
        let id = world.listed()[0].id;
        world.forget(id).unwrap();
    }
    world.advance(world.policy().idempotency_ttl);
    world.run_jobs();
    let rows = world.rows();
    assert_eq!(rows["idempotency_records"], 0);
}

/// Not even where the newest was removed before a crash.
fn ids_are_never_given_twice(kind: Kind) {
    let mut world = World::new(kind);
    let mut last = world.take("k", 1).id;
    // A new claim after a crash, which is released again.
    let next = |world: &mut World, last: RecordId| {
        world.crash();
        let id = world.take("new", 1).id;
        assert!(id > last && id.sequence() != last.sequence(), "{last} {id}");
        assert!(world.release_claim("new", 1));
        id
    };
    world.release_claim("k", 1);
    last = next(&mut world, last);
    last = next(&mut world, last);
    publish(&world, "p");
    let own = world.listed()[0].id;
    world.forget(own).unwrap();
    last = next(&mut world, own.max(last));
    world.take("k", 1);
    publish(&world, "p");
    world.advance(world.policy().idempotency_ttl);
    world.run_jobs();
    assert_eq!((world.rows()["claims"], world.rows()["idempotency_records"]), (0, 0));
    last = next(&mut world, last);
    let event = world.publish(events(1))[0].id;
    assert!(event.bits() > last.bits(), "one order with events");
}
