//! What is missing is told, by a list that was read whole and after asking once more.

use everhook_receiver::reconcile::{NoPage, ReconcileError, Report};

use crate::world::World;

#[tokio::test]
async fn case_108_an_object_that_was_deleted_in_an_outage_is_missing() {
    let world = World::new(5);
    world.reconciler.changes().await.unwrap();
    world.api.rows.lock().unwrap().remove("c2");
    // The changes of an API that lists no deletions say nothing of it.
    let report = world.reconciler.changes().await.unwrap();
    assert_eq!(report.missing, Vec::<String>::new());
    let report = world.reconciler.sweep().await.unwrap();
    let missing = vec!["c2".to_owned()];
    assert_eq!(report, Report { pages: 2, duplicates: 4, missing, ..Report::default() });
    world.converged();
    // It is told once.
    assert_eq!(world.reconciler.sweep().await.unwrap().missing, Vec::<String>::new());
}

#[tokio::test]
async fn case_108_a_list_that_was_read_half_tells_nothing() {
    let world = World::new(9);
    world.reconciler.changes().await.unwrap();
    let read = u32::try_from(world.api.asked.lock().unwrap().len()).unwrap();
    world.api.rows.lock().unwrap().remove("c1");
    world.api.rows.lock().unwrap().remove("c8");
    world.api.faults.lock().unwrap().insert(read + 3, NoPage::Failed("502"));
    assert_eq!(world.reconciler.sweep().await, Err(ReconcileError::Pages("502")));
    assert_eq!(world.contacts.ids().len(), 9);
    let report = world.reconciler.sweep().await.unwrap();
    assert!(report.resumed);
    assert_eq!((report.pages, report.missing), (2, vec!["c1".to_owned(), "c8".to_owned()]));
    world.converged();
}

#[tokio::test]
async fn what_moves_while_it_is_looked_for_is_not_missing() {
    let world = World::new(7);
    world.reconciler.changes().await.unwrap();
    let read = u32::try_from(world.api.asked.lock().unwrap().len()).unwrap();
    world.api.before_page(move |rows, page| {
        if page == read + 2 {
            // From a page that is not read yet to behind the end of the sweep, and one that is new.
            rows.put("c7", "moved");
            rows.put("c6", "moved");
            rows.put("new", "made");
        }
    });
    let report = world.reconciler.sweep().await.unwrap();
    assert_eq!(report.missing, Vec::<String>::new());
    world.api.before_page(|_, _| {});
    world.reconciler.changes().await.unwrap();
    world.converged();
}
