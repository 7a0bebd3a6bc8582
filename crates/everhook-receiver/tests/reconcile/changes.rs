//! What has changed is read whole, whatever happens meanwhile.

use everhook_receiver::reconcile::{Ask, NoPage, ReconcileError, Report};
use everhook_receiver::version::Verdict;

use crate::world::World;

#[tokio::test]
async fn what_was_missed_in_an_outage_is_applied_and_nothing_else_is() {
    let world = World::new(5);
    world.api.rows.lock().unwrap().now += 1_000;
    let report = world.reconciler.changes().await.unwrap();
    assert_eq!(report, Report { pages: 3, fresh: 5, ..Report::default() });
    // No webhook comes for these.
    world.api.put("c2", "changed");
    world.api.put("c9", "made");
    let report = world.reconciler.changes().await.unwrap();
    assert_eq!(report, Report { pages: 1, fresh: 2, ..Report::default() });
    world.converged();
    let report = world.reconciler.changes().await.unwrap();
    assert_eq!(report, Report { pages: 1, duplicates: 2, ..Report::default() });
}

#[tokio::test]
async fn rows_that_change_while_they_are_read_are_applied_once_and_in_order() {
    let world = World::new(7);
    world.api.before_page(|rows, page| match page {
        // One that was read, one that was not, and one that is new.
        2 => {
            rows.put("c1", "again");
            rows.put("c6", "again");
            rows.put("new", "made");
        }
        3 => {
            rows.put("c6", "and again");
        }
        _ => {}
    });
    world.reconciler.changes().await.unwrap();
    world.reconciler.changes().await.unwrap();
    world.converged();
}

#[tokio::test]
async fn live_webhooks_and_what_is_read_meet_in_one_gate() {
    let world = World::new(5);
    let old = world.api.put("c1", "old");
    let new = world.api.put("c1", "new");
    // The newer webhook overtakes the list, the older one comes after it.
    assert_eq!(world.contacts.receive("c1", &new), Verdict::Fresh);
    let report = world.reconciler.changes().await.unwrap();
    assert_eq!((report.fresh, report.duplicates), (4, 1));
    assert_eq!(world.contacts.receive("c1", &old), Verdict::Stale);
    world.converged();
}

#[tokio::test]
async fn case_064_what_the_list_shows_late_is_read_by_the_next_pass() {
    let world = World::new(1);
    world.api.rows.lock().unwrap().put_late("late", "made", 30);
    world.api.put("c2", "made");
    world.reconciler.changes().await.unwrap();
    assert_eq!(world.contacts.ids(), ["c1", "c2"]);
    world.api.put("c3", "made");
    world.api.put("c4", "made");
    world.reconciler.changes().await.unwrap();
    world.converged();
}

#[tokio::test]
async fn objects_that_changed_in_one_instant_are_all_read() {
    let world = World::new(1);
    for number in 0..7 {
        world.api.rows.lock().unwrap().put_now(&format!("at once {number}"), "made");
    }
    world.reconciler.changes().await.unwrap();
    world.converged();
}

#[tokio::test]
async fn a_pass_ends_although_something_changes_with_each_page() {
    let world = World::new(4);
    world.api.before_page(|rows, page| {
        assert!(page < 20, "the pass runs after the changes");
        rows.now += 500;
        rows.put("a", "busy");
        rows.put("b", "busy");
        rows.put("c", "busy");
    });
    world.reconciler.changes().await.unwrap();
    world.api.before_page(|_, _| {});
    world.reconciler.changes().await.unwrap();
    world.converged();
}

#[tokio::test]
async fn what_changed_within_the_second_of_a_date_header_is_read() {
    let world = World::new(7);
    // The header is cut off to a time before all of them.
    world.api.before_page(|rows, page| {
        if page == 1 {
            rows.now -= 900;
        }
        if page == 2 {
            rows.now += 900;
        }
    });
    world.api.rows.lock().unwrap().show_all();
    world.reconciler.changes().await.unwrap();
    world.converged();
}

#[tokio::test]
async fn a_conflict_is_reported_and_not_applied() {
    let world = World::new(2);
    let mut other = world.api.put("c1", "what the list says");
    other.text = "what the webhook said".to_owned();
    assert_eq!(world.contacts.receive("c1", &other), Verdict::Fresh);
    let report = world.reconciler.changes().await.unwrap();
    assert_eq!(report.conflicts, ["c1"]);
    assert_eq!(world.contacts.receive("c1", &other), Verdict::Duplicate);
}

#[tokio::test]
async fn a_cursor_that_is_gone_begins_the_pass_anew() {
    let world = World::new(5);
    world.api.faults.lock().unwrap().insert(3, NoPage::CursorGone);
    let report = world.reconciler.changes().await.unwrap();
    assert_eq!(report, Report { pages: 5, fresh: 5, duplicates: 4, ..Report::default() });
    world.converged();
    // Gone again and again: told, and not tried for ever.
    let world = World::new(5);
    let gone = [(2, NoPage::CursorGone), (4, NoPage::CursorGone)];
    world.api.faults.lock().unwrap().extend(gone);
    assert_eq!(world.reconciler.changes().await, Err(ReconcileError::CursorGone));
    world.reconciler.changes().await.unwrap();
    world.converged();
}

#[tokio::test]
async fn what_is_asked_for_begins_before_the_last_complete_pass_by_the_apis_clock() {
    let world = World::new(1);
    let first = world.api.rows.lock().unwrap().now;
    world.reconciler.changes().await.unwrap();
    world.reconciler.changes().await.unwrap();
    let asked = world.api.asked.lock().unwrap().clone();
    let from = everhook_receiver::Timestamp::from_millis(first - 50);
    let expected = [None, Some(from)].map(|from| Ask { from, cursor: None });
    assert_eq!(asked, expected);
}
