//! Progress outlives the process, in each store that does.

use std::sync::Arc;

use everhook_receiver::Timestamp;
use everhook_receiver::reconcile::{
    MemoryProgress, NoPage, Pass, Progress, ProgressStore, ReconcileError, Report, Stage,
};

use crate::world::World;

/// Opens one store again and again, as processes do one after the other.
type Open = Box<dyn Fn() -> Arc<dyn ProgressStore>>;

fn memory() -> Open {
    let store = Arc::new(MemoryProgress::default());
    Box::new(move || Arc::<MemoryProgress>::clone(&store))
}

#[cfg(feature = "sqlite")]
fn sqlite(name: &str) -> Open {
    use everhook_receiver::reconcile::SqliteProgress;

    struct File(std::path::PathBuf);
    impl Drop for File {
        fn drop(&mut self) {
            std::fs::remove_file(&self.0).unwrap();
        }
    }
    let file = format!("everhook-reconcile-{}-{name}.db", std::process::id());
    let file = File(std::env::temp_dir().join(file));
    Box::new(move || Arc::new(SqliteProgress::open(&file.0).unwrap()))
}

#[cfg(feature = "postgres")]
#[expect(
    clippy::panic,
    clippy::disallowed_methods,
    reason = "reads what the test command hands over, and fails without it"
)]
async fn postgres(name: &str) -> Open {
    use everhook_receiver::reconcile::PostgresProgress;
    use everhook_receiver::version::postgres::tokio_postgres::{NoTls, connect};

    let url = std::env::var("EVERHOOK_TEST_POSTGRES")
        .unwrap_or_else(|_| panic!("EVERHOOK_TEST_POSTGRES is not set"));
    let (client, connection) = connect(&url, NoTls).await.unwrap();
    tokio::spawn(connection);
    let schema = format!("reconcile_{}_{name}", std::process::id());
    let make = format!("CREATE SCHEMA {schema}; SET search_path TO {schema}");
    client.batch_execute(&make).await.unwrap();
    let store = PostgresProgress::new(Arc::new(client)).await.unwrap();
    Box::new(move || Arc::new(store.clone()))
}

async fn stores(name: &str) -> Vec<Open> {
    let _ = name;
    vec![
        memory(),
        #[cfg(feature = "sqlite")]
        sqlite(name),
        #[cfg(feature = "postgres")]
        postgres(name).await,
    ]
}

#[tokio::test]
async fn a_pass_that_failed_on_page_3_of_5_goes_on_there() {
    for open in stores("resumed").await {
        let mut world = World::with(10, open());
        world.api.faults.lock().unwrap().insert(3, NoPage::Failed("502"));
        assert_eq!(world.reconciler.changes().await, Err(ReconcileError::Pages("502")));
        let kept = open().load("crm/changes").await.unwrap();
        assert_eq!(kept.complete_until, None, "only a whole pass moves it");
        world.restart(open());
        let report = world.reconciler.changes().await.unwrap();
        let expected = Report { resumed: true, pages: 3, fresh: 6, ..Report::default() };
        assert_eq!(report, expected);
        let kept = open().load("crm/changes").await.unwrap();
        assert!(kept.complete_until.is_some() && kept.pass.is_none());
        world.converged();
    }
}

#[tokio::test]
async fn a_sweep_that_failed_goes_on_with_what_it_had_seen() {
    for open in stores("swept").await {
        let mut world = World::with(10, open());
        world.reconciler.changes().await.unwrap();
        world.api.rows.lock().unwrap().remove("c1");
        world.api.faults.lock().unwrap().insert(8, NoPage::Failed("502"));
        assert_eq!(world.reconciler.sweep().await, Err(ReconcileError::Pages("502")));
        world.restart(open());
        let report = world.reconciler.sweep().await.unwrap();
        assert_eq!((report.resumed, report.pages, report.missing.len()), (true, 3, 1));
        world.converged();
    }
}

#[tokio::test]
async fn progress_is_kept_as_it_was_given() {
    let at = |millis| Some(Timestamp::from_millis(millis));
    let ids = |ids: &[&str]| ids.iter().map(ToString::to_string).collect::<Vec<_>>();
    let pass = Pass { from: at(3), until: at(4), cursor: Some("c".into()), stage: Stage::Listing };
    let begun = Progress { complete_until: at(5), pass: Some(pass.clone()) };
    let confirming = Pass { from: None, until: at(4), cursor: None, stage: Stage::Confirming };
    let done = Progress { complete_until: at(4), pass: None };
    for open in stores("kept").await {
        let store = open();
        assert_eq!(store.load("a").await, Ok(Progress::default()));
        store.begin("a", &begun, &ids(&["old"])).await.unwrap();
        store.begin("b", &begun, &ids(&["2"])).await.unwrap();
        store.begin("a", &begun, &ids(&["3", "1", "2", "1"])).await.unwrap();
        assert_eq!(open().load("a").await, Ok(begun.clone()));
        assert_eq!(open().unseen("a", 2).await, Ok(ids(&["1", "2"])));
        let later = Progress { pass: Some(confirming.clone()), ..begun.clone() };
        store.save("a", &later, &ids(&["2", "unknown"])).await.unwrap();
        assert_eq!(open().load("a").await, Ok(later));
        assert_eq!(open().unseen("a", 9).await, Ok(ids(&["1", "3"])));
        assert_eq!(open().unseen("b", 9).await, Ok(ids(&["2"])));
        store.save("a", &done, &[]).await.unwrap();
        assert_eq!(open().load("a").await, Ok(done.clone()));
        store.begin("a", &begun, &[]).await.unwrap();
        assert_eq!(open().unseen("a", 9).await, Ok(Vec::new()));
    }
}
