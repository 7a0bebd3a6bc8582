//! Lists of conversations by change: pages that skip nothing and repeat nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use everhook_domain::conversation::ConversationStatus::{Closed, Open};
use everhook_domain::conversation::{Command, Conversation, NewConversation};
use everhook_domain::id::ConversationId;
use everhook_domain::tenant::TenantId;
use everhook_domain::time::Timestamp;
use everhook_store::{Converse, ConverseRequest, Page, Position, Refusal, StoreError};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::backend::Kind;
use crate::conversations::{page_of, status, transfer};
use crate::sketch::{event, ms};
use crate::world::World;
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case(instants_never_fall),
        case(equal_instants_are_told_apart_between_pages),
        case(pages_skip_nothing_and_repeat_nothing_while_rows_change),
        case(pages_skip_nothing_that_commits_late),
    ]
}

impl World {
    fn changed_since(
        &self,
        from: Option<Timestamp>,
        limit: usize,
        after: Option<Position>,
    ) -> Page<Conversation> {
        let page = page_of(limit, after);
        self.wait(self.store.changed_since(self.tenant.clone(), from, page)).unwrap()
    }

    /// All pages of this length.
    pub(crate) fn all_changed_since(
        &self,
        from: Option<Timestamp>,
        limit: usize,
    ) -> Vec<Conversation> {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let page = self.changed_since(from, limit, after);
            assert!(page.items.len() <= limit);
            all.extend(page.items);
            match page.next {
                Some(next) => after = Some(next),
                None => return all,
            }
        }
    }
}

/// Whatever the clock says, and after a restart too.
fn instants_never_fall(kind: Kind) {
    let mut world = World::new(kind);
    let made = world.create(Open);
    let mut last = made.updated_at;
    for (number, millis) in
        [1_750_000_100_000, 1_750_000_000_000, 1_750_000_100_001, 0, 5].into_iter().enumerate()
    {
        world.crash();
        world.now = Timestamp::from_millis(millis);
        let outcome = world.converse(made.id, transfer(&number.to_string(), None));
        let now = outcome.conversation().updated_at;
        assert_eq!(now, last.max(world.now));
        last = now;
    }
    let new = world.create(Open);
    assert_eq!((new.created_at, new.updated_at), (last, last));
    assert_eq!(world.all_changed_since(Some(last), 1).len(), 2, "the bound is inclusive");
    let after = Timestamp::from_millis(last.as_millis() + 1);
    assert_eq!(world.all_changed_since(Some(after), 1), []);
}

fn equal_instants_are_told_apart_between_pages(kind: Kind) {
    let mut world = World::new(kind);
    world.create(Open);
    world.advance(ms(1));
    let made: Vec<_> = (0..7).map(|_| world.create(Open)).collect();
    let from = Some(world.now);
    assert!(made.iter().all(|one| Some(one.updated_at) == from));
    for limit in 1..=8 {
        assert_eq!(world.all_changed_since(from, limit), made, "pages of {limit}");
    }
    // The first one changes within the same instant: it comes again, behind.
    let first = world.changed_since(from, 3, None);
    assert_eq!(first.items, made[..3]);
    let changed = world.converse(made[0].id, status(Closed)).conversation().clone();
    let rest = world.changed_since(from, 10, first.next);
    assert_eq!(rest.items, [&made[3..], &[changed]].concat());
    assert_eq!(rest.next, None);
}

/// Many write at once, and one reads on behind them: nothing may be committed before where it is.
fn pages_skip_nothing_that_commits_late(kind: Kind) {
    const WRITERS: usize = 7;
    const EACH: usize = 20;
    let world = World::new(kind);
    let from = Some(world.now);
    let writing = Arc::new(AtomicUsize::new(WRITERS));
    let listed = world.at_once(WRITERS + 1, |number, store, now| {
        let (tenant, writing) = (TenantId::default_tenant(), Arc::clone(&writing));
        async move {
            let mut seen = Vec::new();
            if number > 0 {
                for _ in 0..EACH {
                    let request = ConverseRequest::Create(NewConversation::default());
                    let converse = Converse { tenant: tenant.clone(), request };
                    store.converse(converse, None, now).await.unwrap();
                }
                writing.fetch_sub(1, SeqCst);
                return seen;
            }
            let mut after = None;
            loop {
                let last_look = writing.load(SeqCst) == 0;
                let page = page_of(1, after);
                let page = store.changed_since(tenant.clone(), from, page).await.unwrap();
                match page.next {
                    Some(next) => {
                        seen.extend(page.items);
                        after = Some(next);
                    }
                    None if last_look => {
                        seen.extend(page.items);
                        return seen;
                    }
                    None => tokio::task::yield_now().await,
                }
            }
        }
    });
    let listed: Vec<_> = listed.into_iter().flatten().collect();
    assert_eq!(listed.len(), WRITERS * EACH);
    assert_eq!(listed, world.all_changed_since(from, 50));
}

#[derive(Clone, Debug)]
enum Op {
    Create,
    Change { which: usize, to: u8 },
    Delete { which: usize },
    Publish,
    Page { limit: usize },
    Pass,
    Crash,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => Just(Op::Create),
        6 => (0..usize::MAX, 0..3_u8).prop_map(|(which, to)| Op::Change { which, to }),
        1 => (0..usize::MAX).prop_map(|which| Op::Delete { which }),
        1 => Just(Op::Publish),
        6 => (1..4_usize).prop_map(|limit| Op::Page { limit }),
        2 => Just(Op::Pass),
        1 => Just(Op::Crash),
    ]
}

fn pages_skip_nothing_and_repeat_nothing_while_rows_change(kind: Kind) {
    let config =
        Config { cases: kind.interleavings, failure_persistence: None, ..Config::default() };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let outcome = runner.run(&prop::collection::vec(op(), 1..60), |ops| {
        page_through(World::new(kind), ops);
        Ok(())
    });
    outcome.unwrap();
}

/// Reads one list to its end while things happen: it must show the last version of each, and no
/// version twice.
fn page_through(mut world: World, ops: Vec<Op>) {
    let mut known: BTreeMap<ConversationId, Conversation> = BTreeMap::new();
    let (mut seen, mut after) = (Vec::new(), None);
    let from = Some(world.now);
    for op in ops {
        match op {
            Op::Create => {
                let made = world.create(Open);
                known.insert(made.id, made);
            }
            Op::Change { which, to } => {
                converse_with(&world, &mut known, which, transfer(&to.to_string(), None));
            }
            Op::Delete { which } => {
                converse_with(&world, &mut known, which, Command::Delete);
            }
            Op::Publish => drop(world.publish_one(event("a", "1"))),
            Op::Page { limit } => {
                let page = world.changed_since(from, limit, after);
                after = page.next.or(after);
                // At the end there is no place to go on: what comes later is not of this list.
                if page.next.is_some() {
                    seen.extend(page.items);
                }
            }
            Op::Pass => world.advance(ms(1)),
            Op::Crash => world.crash(),
        }
    }
    loop {
        let page = world.changed_since(from, 2, after);
        seen.extend(page.items);
        match page.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    let versions: BTreeSet<_> = seen.iter().map(|one| (one.id, one.version)).collect();
    assert_eq!(versions.len(), seen.len(), "a version was listed twice: {seen:?}");
    let mut last = BTreeMap::new();
    for one in seen {
        last.insert(one.id, one);
    }
    assert_eq!(last, known, "the last version of each is the last one listed");
}

fn converse_with(
    world: &World,
    known: &mut BTreeMap<ConversationId, Conversation>,
    which: usize,
    command: Command,
) {
    if known.is_empty() {
        return;
    }
    let id = *known.keys().nth(which % known.len()).unwrap();
    match world.try_converse_in(&world.tenant, id, command) {
        Ok(outcome) => drop(known.insert(id, outcome.conversation().clone())),
        Err(error) => {
            assert_eq!(error, StoreError::Refused(Refusal::NotFound));
            assert!(known[&id].deleted_at.is_some());
        }
    }
}
