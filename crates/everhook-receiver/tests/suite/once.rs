//! A handler and its claim.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use everhook_receiver::once::{Once, OnceSettings, Ran, RunError};
use everhook_receiver::store::{Claimed, Store, StoreError, Terms, Token};
use everhook_receiver::{Event, EventKey, KEEP};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::backend::Kind;
use crate::hooked::{Hooked, failing};
use crate::world::event;
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case(fifty_attempts_at_the_same_time_run_once),
        case(a_handler_that_fails_runs_again_at_once),
        case(of_an_array_only_what_is_new_runs),
        case(an_array_with_a_busy_event_takes_none),
        case(captured_bytes_under_another_id_do_not_run),
        case(a_slow_handler_keeps_its_event),
        case(a_handler_that_lost_its_event_is_told),
        case(a_mark_that_fails_is_tried_again),
        case(a_store_that_is_away_runs_nothing),
    ]
}

fn once(store: &Arc<dyn Store>) -> Once {
    Once::new(Arc::clone(store), OnceSettings::default())
}

fn hurried(store: &Arc<dyn Store>) -> Once {
    let lease = Duration::from_millis(900);
    Once::new(Arc::clone(store), OnceSettings { lease, ..OnceSettings::default() })
}

/// Runs a handler that succeeds; the keys that it ran for.
async fn ran(once: &Once, events: &[Event]) -> Result<Ran<Vec<String>>, RunError<()>> {
    let handler = async |events: Vec<Event>| {
        Ok(events.iter().map(|event| event.key.to_string()).collect::<Vec<_>>())
    };
    once.run(events, handler).await
}

fn keys(numbers: &[u32]) -> Ran<Vec<String>> {
    Ran::Done(numbers.iter().map(|number| format!("message:evt_{number}")).collect())
}

fn fifty_attempts_at_the_same_time_run_once(kind: Kind) {
    let world = kind.create();
    world.runtime.block_on(async {
        let count = Arc::new(AtomicU32::new(0));
        let mut attempts = JoinSet::new();
        for index in 0..50 {
            let (once, count) = (once(&world.nodes[index % 2]), Arc::clone(&count));
            attempts.spawn(async move {
                let handler = async |_| {
                    count.fetch_add(1, Ordering::SeqCst);
                    tokio::task::yield_now().await;
                    Ok::<_, ()>(())
                };
                once.run(&[event(1)], handler).await.unwrap()
            });
        }
        let came = attempts.join_all().await;
        assert_eq!(count.load(Ordering::SeqCst), 1);
        assert_eq!(came.iter().filter(|ran| **ran == Ran::Done(())).count(), 1);
    });
}

fn a_handler_that_fails_runs_again_at_once(kind: Kind) {
    let world = kind.create();
    let [one, other] = world.nodes.each_ref().map(once);
    world.runtime.block_on(async {
        for _ in 0..3 {
            let failed = one.run(&[event(1)], async |_| Err::<(), _>("no")).await;
            assert!(matches!(failed, Err(RunError::Failed("no"))), "{failed:?}");
        }
        assert_eq!(ran(&other, &[event(1)]).await.unwrap(), keys(&[1]));
        assert_eq!(ran(&one, &[event(1)]).await.unwrap(), Ran::Duplicate);
    });
}

fn of_an_array_only_what_is_new_runs(kind: Kind) {
    let world = kind.create();
    let [one, other] = world.nodes.each_ref().map(once);
    world.runtime.block_on(async {
        assert_eq!(ran(&one, &[event(2)]).await.unwrap(), keys(&[2]));
        // One that is there twice is one.
        let array = [event(1), event(2), event(3), event(1)];
        assert_eq!(ran(&other, &array).await.unwrap(), keys(&[1, 3]));
        assert_eq!(ran(&one, &array).await.unwrap(), Ran::Duplicate);
    });
}

fn an_array_with_a_busy_event_takes_none(kind: Kind) {
    let world = kind.create();
    let [one, other] = world.nodes.each_ref().map(once);
    world.runtime.block_on(async {
        let within = async |_| {
            assert_eq!(ran(&other, &[event(1), event(2)]).await.unwrap(), Ran::InProgress);
            // What was claimed before was given back.
            assert_eq!(ran(&other, &[event(1)]).await.unwrap(), keys(&[1]));
            Ok::<_, ()>(())
        };
        assert_eq!(one.run(&[event(2)], within).await.unwrap(), Ran::Done(()));
        assert_eq!(ran(&other, &[event(1), event(2)]).await.unwrap(), Ran::Duplicate);
    });
}

fn captured_bytes_under_another_id_do_not_run(kind: Kind) {
    let world = kind.create();
    let [one, other] = world.nodes.each_ref().map(once);
    let guarded = |number: u32, guard: &str| Event {
        guard: Some(EventKey::new("message", guard)),
        ..event(number)
    };
    world.runtime.block_on(async {
        // A first try that fails leaves neither behind.
        let failed = one.run(&[guarded(1, "a")], async |_| Err::<(), _>(())).await;
        assert!(matches!(failed, Err(RunError::Failed(()))));
        assert_eq!(ran(&one, &[guarded(1, "a")]).await.unwrap(), keys(&[1]));
        assert_eq!(ran(&other, &[guarded(2, "a")]).await.unwrap(), Ran::Duplicate);
        // A retry that was signed anew is a duplicate, and its bytes are known from then on.
        assert_eq!(ran(&other, &[guarded(1, "b")]).await.unwrap(), Ran::Duplicate);
        assert_eq!(ran(&one, &[guarded(3, "b")]).await.unwrap(), Ran::Duplicate);
        assert_eq!(ran(&one, &[guarded(3, "c")]).await.unwrap(), keys(&[3]));
    });
}

fn a_slow_handler_keeps_its_event(kind: Kind) {
    let world = kind.create();
    let [one, other] = world.nodes.each_ref().map(hurried);
    world.runtime.block_on(async {
        let slow = async |_| {
            // Three of its leases are over when this one is, which is claimed now and not renewed.
            let (key, lease) = (EventKey::new("message", "other"), Duration::from_millis(2_700));
            let terms = Terms { lease, keep: KEEP };
            let claim = async || world.nodes[1].claim(&key, Token(1), terms).await.unwrap();
            assert_eq!(claim().await, Claimed::Yes);
            while claim().await != Claimed::Yes {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            assert_eq!(ran(&other, &[event(1)]).await.unwrap(), Ran::InProgress);
            Ok::<_, ()>(())
        };
        assert_eq!(one.run(&[event(1)], slow).await.unwrap(), Ran::Done(()));
        assert_eq!(ran(&other, &[event(1)]).await.unwrap(), Ran::Duplicate);
    });
}

/// As if it had stood still: its renewals do not come, its mark does.
fn a_handler_that_lost_its_event_is_told(kind: Kind) {
    let world = kind.create();
    let inner = Arc::clone(&world.nodes[0]);
    let hook = failing(|step| step == "renew:before");
    let still: Arc<dyn Store> = Arc::new(Hooked { inner, hook });
    let (one, other) = (hurried(&still), once(&world.nodes[1]));
    world.runtime.block_on(async {
        let slow = async |_| {
            while ran(&other, &[event(1)]).await.unwrap() == Ran::InProgress {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            Ok::<_, ()>(())
        };
        let lost = one.run(&[event(1)], slow).await;
        assert!(matches!(lost, Err(RunError::Lost)), "{lost:?}");
        assert_eq!(ran(&one, &[event(1)]).await.unwrap(), Ran::Duplicate);
    });
}

fn a_mark_that_fails_is_tried_again(kind: Kind) {
    let world = kind.create();
    let failures = AtomicU32::new(0);
    // Before it is done, and after it was and nobody heard of it.
    let hook = failing(move |step| {
        let fails = ["finish:before", "finish:after"].contains(&step);
        fails && failures.fetch_add(1, Ordering::SeqCst) < 3
    });
    let inner = Arc::clone(&world.nodes[0]);
    let shaky: Arc<dyn Store> = Arc::new(Hooked { inner, hook });
    world.runtime.block_on(async {
        assert_eq!(ran(&once(&shaky), &[event(1)]).await.unwrap(), keys(&[1]));
        assert_eq!(ran(&once(&world.nodes[1]), &[event(1)]).await.unwrap(), Ran::Duplicate);
    });
}

fn a_store_that_is_away_runs_nothing(kind: Kind) {
    let world = kind.create();
    let away = |step: &'static str| -> Once {
        let inner = Arc::clone(&world.nodes[0]);
        once(&(Arc::new(Hooked { inner, hook: failing(move |at| at == step) }) as Arc<dyn Store>))
    };
    world.runtime.block_on(async {
        let told = Notify::new();
        for step in ["claim:before", "claim:after"] {
            let handler = async |_| {
                told.notify_one();
                Ok::<_, ()>(())
            };
            let refused = away(step).run(&[event(1)], handler).await;
            let planted = StoreError(format!("planted at {step}"));
            assert!(matches!(refused, Err(RunError::Unclaimed(error)) if error == planted));
            // What was claimed all the same was given back.
            assert_eq!(ran(&once(&world.nodes[1]), &[]).await.unwrap(), Ran::Duplicate);
        }
        let unmarked = ran(&away("finish:before"), &[event(1)]).await;
        assert!(matches!(unmarked, Err(RunError::Unmarked(_))), "{unmarked:?}");
        assert_eq!(ran(&once(&world.nodes[1]), &[event(1)]).await.unwrap(), Ran::InProgress);
        assert!(tokio::time::timeout(Duration::ZERO, told.notified()).await.is_err());
    });
}
