//! How long a source remembers what it has seen.

use everhook_store::Verdict::{Accepted, Conflict, Duplicate};
use everhook_store::{Change, JobStep, Received};

use crate::backend::Kind;
use crate::inbox::{guarded, item};
use crate::receiving::ONE;
use crate::sketch::{ms, secs};
use crate::world::World;
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case(case_099_a_window_runs_from_the_first_receipt),
        case(a_conflict_outlives_the_key_that_it_came_under),
        case(keys_live_as_long_as_when_they_came),
        case(long_windows_hold_up_no_pruning),
    ]
}

fn case_099_a_window_runs_from_the_first_receipt(kind: Kind) {
    let mut world = World::new(kind);
    let source = world.source_in(&world.tenant, "calls", Some(86_400));
    let begun = world.now;
    for (after, expected) in [
        (0, Accepted),
        (86_340_000, Duplicate),
        (86_399_999, Duplicate),
        (86_400_000, Accepted),
        (86_460_000, Duplicate),
        (172_799_999, Duplicate),
        (172_800_000, Accepted),
    ] {
        world.now = begun + ms(after);
        assert_eq!(world.verdict(source, guarded("k", "{}", 1)), expected, "at {after} ms");
    }
    let duplicates: Vec<u64> = world.receipts(ONE).iter().map(|one| one.duplicates).collect();
    assert_eq!(duplicates, [0, 2, 2]);
    let last = &world.receipts(ONE)[1];
    assert_eq!(last.last_seen_at, begun + ms(172_799_999));
}

fn a_conflict_outlives_the_key_that_it_came_under(kind: Kind) {
    let mut world = World::new(kind);
    let source = world.source_in(&world.tenant, "mail", Some(3_600));
    let begun = world.now;
    world.receive_one(source, item("k", "one"));
    world.now = begun + secs(3_000);
    let conflict = world.receive_one(source, item("k", "two"));
    world.now = begun + secs(4_000);
    // The first key's window is over, the conflict's is not: its retry is no new event.
    let retried = world.receive_one(source, item("k", "two"));
    assert_eq!(retried, Received { receipt: conflict.receipt, verdict: Duplicate });
    assert_eq!(world.verdict(source, item("k", "three")), Accepted, "the key is free");
    assert_eq!(world.receive_one(source, item("k", "two")), retried);
    world.now = begun + secs(6_600);
    assert_eq!(world.verdict(source, item("k", "two")), Conflict, "with the third");
}

fn keys_live_as_long_as_when_they_came(kind: Kind) {
    let mut world = World::new(kind);
    let source = world.source_in(&world.tenant, "calls", Some(3_600));
    world.receive_one(source, item("k", "1"));
    let directory = world.store.directory().unwrap();
    let old = directory.source(source).unwrap();
    let change = Change::UpdateSource {
        tenant: world.tenant.clone(),
        source,
        expected_version: old.version,
        settings: Box::new(crate::inbox::source_settings("calls", Some(60))),
    };
    world.change(change).unwrap();
    world.receive_one(source, item("new", "1"));
    world.advance(secs(60));
    assert_eq!(world.verdict(source, item("k", "1")), Duplicate);
    assert_eq!(world.verdict(source, item("new", "1")), Accepted);
}

fn long_windows_hold_up_no_pruning(kind: Kind) {
    let mut world = World::new(kind);
    let tenant = world.tenant.clone();
    let year = world.source_in(&tenant, "year", Some(366 * 86_400));
    let hour = world.source_in(&tenant, "hour", Some(3_600));
    let keys = |world: &mut World| {
        let rows = world.rows();
        rows.get("key_log").copied().unwrap_or(0) + rows.get("receipt_keys").copied().unwrap_or(0)
    };
    world.receive(year, (0..20).map(|n| item(&n.to_string(), "1")).collect());
    world.receive(hour, (0..1_200).map(|n| item(&n.to_string(), "1")).collect());
    assert_eq!(keys(&mut world), 1_220);
    world.advance(secs(3_600));
    let mut steps = 0;
    while world.job_step() == JobStep::More {
        steps += 1;
    }
    assert!((2..10).contains(&steps), "{steps}");
    assert_eq!(keys(&mut world), 20);
    assert_eq!(world.verdict(year, item("7", "1")), Duplicate);
    assert_eq!(world.verdict(hour, item("7", "1")), Accepted);
    // What a pruned key led to stays.
    assert_eq!(world.receipts(ONE).len(), 1_221);
}
