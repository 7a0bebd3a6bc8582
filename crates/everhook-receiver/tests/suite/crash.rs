//! Processes that are killed between any two steps: every line of the tables in the documentation.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::backend::{Backend, Folder, Kind};
use crate::child::{Came, Task};
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    vec![case(killed_between_claim_and_mark), case(killed_while_an_event_is_given_back)]
}

/// For stores that know a transaction of the work's, and have an inbox.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(crate) fn transaction_cases() -> Vec<Case> {
    vec![
        case(killed_with_receipt_and_work_in_one_transaction),
        case(killed_between_the_inbox_and_the_mark),
        case(killed_with_work_and_mark_in_one_transaction),
    ]
}

/// A database, and an event that is to be processed in it.
struct Scene {
    world: Backend,
    task: Task,
    _folder: Folder,
}

impl Scene {
    fn new(kind: Kind, way: &str) -> Self {
        let world = kind.create();
        let folder = Folder::create("ledger");
        let task = Task {
            kind: kind.name.to_owned(),
            address: world.address.clone(),
            way: way.to_owned(),
            halt: "none".to_owned(),
            ledger: folder.path("orders"),
        };
        let scene = Self { world, task, _folder: folder };
        #[cfg(any(feature = "sqlite", feature = "postgres"))]
        if scene.is_together() {
            crate::transaction::Orders::create(&scene.world);
        }
        scene
    }

    fn is_together(&self) -> bool {
        self.task.way.ends_with("together")
    }

    /// Starts a process and kills it at this step.
    fn kill_at(&self, step: &str) {
        let task = Task { halt: step.to_owned(), ..self.task.clone() };
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(task.words())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut said).unwrap();
        assert_eq!(said.trim(), "halted", "at {step}");
        // This is `kill -9`.
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// The sender's attempts, until none is told to come again.
    fn attempt(&self) -> Came {
        loop {
            let store = std::sync::Arc::clone(&self.world.nodes[1]);
            match self.world.runtime.block_on(self.task.run(store)) {
                Came::InProgress => std::thread::sleep(Duration::from_millis(20)),
                came => return came,
            }
        }
    }

    fn orders(&self) -> usize {
        #[cfg(any(feature = "sqlite", feature = "postgres"))]
        if self.is_together() {
            let kind = crate::backend::kind(&self.task.kind);
            let orders = crate::transaction::Orders::of(kind, &self.task.address);
            return usize::try_from(self.world.runtime.block_on(orders.count())).unwrap();
        }
        std::fs::read_to_string(&self.task.ledger).unwrap_or_default().lines().count()
    }
}

/// Kills at a step; then the sender comes again, and the event is processed after so many orders.
fn check(kind: Kind, way: &str, step: &str, came: Came, orders: usize) {
    let scene = Scene::new(kind, way);
    scene.kill_at(step);
    assert_eq!(scene.attempt(), came, "{way}, killed at {step}");
    assert_eq!(scene.orders(), orders, "{way}, killed at {step}");
    // And it stays so.
    assert_eq!(scene.attempt(), Came::Duplicate, "{way}, killed at {step}");
    assert_eq!(scene.orders(), orders, "{way}, killed at {step}");
}

fn killed_between_claim_and_mark(kind: Kind) {
    for (step, came, orders) in [
        ("claim:before", Came::Done, 1),
        ("claim:after", Came::Done, 1),
        ("work:before", Came::Done, 1),
        // What a store that is not the work's cannot prevent.
        ("work:after", Came::Done, 2),
        ("finish:before", Came::Done, 2),
        ("finish:after", Came::Duplicate, 1),
    ] {
        check(kind, "claim", step, came, orders);
    }
}

fn killed_while_an_event_is_given_back(kind: Kind) {
    for step in ["release:before", "release:after"] {
        let mut scene = Scene::new(kind, "fail");
        scene.kill_at(step);
        // The next attempt is one that works.
        scene.task.way = "claim".to_owned();
        assert_eq!(scene.attempt(), Came::Done, "killed at {step}");
        assert_eq!(scene.orders(), 1, "killed at {step}");
    }
}

#[cfg(any(feature = "sqlite", feature = "postgres"))]
fn killed_with_receipt_and_work_in_one_transaction(kind: Kind) {
    for (step, came) in [
        ("begun", Came::Done),
        ("claimed", Came::Done),
        ("worked", Came::Done),
        ("committed", Came::Duplicate),
    ] {
        check(kind, "together", step, came, 1);
    }
}

#[cfg(any(feature = "sqlite", feature = "postgres"))]
fn killed_between_the_inbox_and_the_mark(kind: Kind) {
    for (step, came, orders) in [
        ("store:before", Came::Done, 1),
        ("store:after", Came::Duplicate, 1),
        ("take:before", Came::Duplicate, 1),
        ("take:after", Came::Duplicate, 1),
        ("work:before", Came::Duplicate, 1),
        // What happens twice if the mark is not in the work's transaction.
        ("work:after", Came::Duplicate, 2),
        ("finish:before", Came::Duplicate, 2),
        ("finish:after", Came::Duplicate, 1),
    ] {
        check(kind, "inbox", step, came, orders);
    }
}

#[cfg(any(feature = "sqlite", feature = "postgres"))]
fn killed_with_work_and_mark_in_one_transaction(kind: Kind) {
    for step in
        ["take:after", "begun", "claimed", "worked", "committed", "work:after", "finish:after"]
    {
        check(kind, "inbox_together", step, Came::Duplicate, 1);
    }
}
