//! What holds of every gate.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use everhook_receiver::version::{Content, ObjectKey, State, TOMBSTONES_KEPT, Verdict, Version};
use tokio::task::JoinSet;

use crate::Objects;

type Nodes = [Arc<dyn Objects>; 2];
type Run = Pin<Box<dyn Future<Output = ()>>>;

/// One property.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// For how long deletions are held.
    pub(crate) tombstones: Duration,
    /// Whether it needs writes that fail.
    pub(crate) fails: bool,
    pub(crate) run: Box<dyn Fn(Nodes) -> Run + Send + Sync>,
}

fn case<F: Future<Output = ()> + 'static>(
    name: &'static str,
    run: impl Fn(Nodes) -> F + Send + Sync + 'static,
) -> Case {
    let run = Box::new(move |nodes| -> Run { Box::pin(run(nodes)) });
    Case { name, tombstones: TOMBSTONES_KEPT, fails: false, run }
}

pub(crate) fn all() -> Vec<Case> {
    vec![
        case("any_order_and_repetition_of_a_history_converges", any_order_and_repetition),
        case("a_history_that_arrives_many_times_at_once_converges", many_times_at_once),
        case("case_060_an_older_version_changes_nothing", case_060),
        case("case_063_a_deletion_is_not_undone_by_what_is_late", case_063),
        case("a_conflict_is_told_and_settled_once", conflict),
        Case { fails: true, ..case("a_write_that_fails_moves_no_version", failing_write) },
        Case {
            tombstones: Duration::ZERO,
            ..case("a_deletion_is_forgotten_when_its_time_is_over", forgotten)
        },
    ]
}

const HISTORIES: u64 = 30;

/// A small generator (splitmix64), so that a history is its number.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        usize::try_from(z % u64::try_from(bound).unwrap()).unwrap()
    }

    /// Rising versions with gaps, on both sides of zero and beyond what a double holds; some of
    /// the states are deletions.
    fn history(&mut self) -> Vec<State> {
        let mut version = [-20, 1, (1 << 53) - 2, i64::MAX - 100][self.below(4)];
        let count = 2 + self.below(8);
        let states = (0..count).map(|_| {
            version += 1 + i64::try_from(self.below(3)).unwrap();
            match self.below(4) {
                0 => State { version: Version(version), content: Content::Deleted },
                _ => state(version, &version.to_string()),
            }
        });
        states.collect()
    }

    /// Every state at least once, some more often, in any order.
    fn arrivals(&mut self, history: &[State]) -> Vec<State> {
        let mut arrivals = history.to_vec();
        arrivals.extend((0..history.len()).map(|_| history[self.below(history.len())]));
        for at in (1..arrivals.len()).rev() {
            arrivals.swap(at, self.below(at + 1));
        }
        arrivals
    }
}

fn state(version: i64, content: &str) -> State {
    State { version: Version(version), content: Content::of(content.as_bytes()) }
}

fn deleted(version: i64) -> State {
    State { version: Version(version), content: Content::Deleted }
}

fn object(name: impl ToString) -> ObjectKey {
    ObjectKey::new(&["contact", &name.to_string()])
}

async fn any_order_and_repetition(nodes: Nodes) {
    for number in 0..HISTORIES {
        let (mut random, object) = (Random(number), object(number));
        let history = random.history();
        let mut newest: Option<State> = None;
        for arrival in random.arrivals(&history) {
            let verdict = nodes[random.below(2)].apply(&object, &arrival, None).await;
            let expected = match &newest {
                Some(held) if arrival == *held => Verdict::Duplicate,
                Some(held) if arrival.version < held.version => Verdict::Stale,
                _ => Verdict::Fresh,
            };
            assert_eq!(verdict, expected, "history {number}: {arrival:?} after {newest:?}");
            if verdict == Verdict::Fresh {
                newest = Some(arrival);
            }
            assert_eq!(nodes[random.below(2)].written(&object).await, newest, "{number}");
        }
        assert_eq!(newest.as_ref(), history.last(), "history {number}");
    }
}

async fn many_times_at_once(nodes: Nodes) {
    for number in 0..4 {
        let (mut random, object) = (Random(1_000 + number), object(number));
        let history = random.history();
        let mut tasks = JoinSet::new();
        for _ in 0..8 {
            let (arrivals, node) = (random.arrivals(&history), Arc::clone(&nodes[random.below(2)]));
            tasks.spawn(async move {
                let mut applied = Vec::new();
                for arrival in arrivals {
                    if node.apply(&object, &arrival, None).await == Verdict::Fresh {
                        applied.push(arrival.version);
                    }
                }
                applied
            });
        }
        let mut times = BTreeMap::new();
        for applied in tasks.join_all().await {
            assert!(applied.is_sorted(), "history {number}: {applied:?}");
            applied.into_iter().for_each(|version| *times.entry(version).or_insert(0) += 1);
        }
        assert!(times.values().all(|times| *times == 1), "history {number}: {times:?}");
        assert_eq!(nodes[0].written(&object).await.as_ref(), history.last(), "{number}");
    }
}

async fn case_060(nodes: Nodes) {
    let object = object("1");
    for (version, expected) in
        [(66, Verdict::Fresh), (65, Verdict::Stale), (65, Verdict::Stale), (66, Verdict::Duplicate)]
    {
        let verdict = nodes[0].apply(&object, &state(version, &version.to_string()), None).await;
        assert_eq!(verdict, expected, "{version}");
        assert_eq!(nodes[1].written(&object).await, Some(state(66, "66")));
    }
}

async fn case_063(nodes: Nodes) {
    for (name, arrivals) in [
        ("updates on both sides", vec![state(2, "a"), deleted(3), state(2, "a"), state(1, "b")]),
        ("deleted before it is made", vec![deleted(5), state(1, "a"), state(4, "b"), deleted(4)]),
    ] {
        let object = object(name);
        let last = *arrivals.iter().max_by_key(|state| state.version).unwrap();
        for arrival in &arrivals {
            let _ = nodes[0].apply(&object, arrival, None).await;
        }
        assert_eq!(nodes[1].written(&object).await, Some(last), "{name}");
        // Made again by the publisher: newer than its deletion.
        assert_eq!(nodes[1].apply(&object, &state(9, "c"), None).await, Verdict::Fresh, "{name}");
        assert_eq!(nodes[0].written(&object).await, Some(state(9, "c")), "{name}");
    }
}

async fn conflict(nodes: Nodes) {
    let object = object("1");
    let (first, other, fetched) = (state(5, "first"), state(5, "other"), state(5, "fetched"));
    assert_eq!(nodes[0].apply(&object, &first, None).await, Verdict::Fresh);
    let told = Verdict::Conflict { held: first };
    assert_eq!(nodes[1].apply(&object, &other, None).await, told);
    assert_eq!(nodes[0].apply(&object, &deleted(5), None).await, told);
    assert_eq!(nodes[0].written(&object).await, Some(first));
    assert_eq!(nodes[1].apply(&object, &fetched, Some(&first)).await, Verdict::Fresh);
    assert_eq!(nodes[0].written(&object).await, Some(fetched));
    // Fetched for the same conflict by another one, perhaps earlier: it has to fetch again.
    let told = Verdict::Conflict { held: fetched };
    assert_eq!(nodes[0].apply(&object, &other, Some(&first)).await, told);
    assert_eq!(nodes[0].apply(&object, &fetched, Some(&first)).await, Verdict::Duplicate);
    assert_eq!(nodes[0].apply(&object, &state(4, "old"), Some(&fetched)).await, Verdict::Stale);
    assert_eq!(nodes[0].apply(&object, &deleted(5), Some(&fetched)).await, Verdict::Fresh);
    assert_eq!(nodes[1].written(&object).await, Some(deleted(5)));
}

async fn failing_write(nodes: Nodes) {
    let object = object("1");
    nodes[0].fail(&object, &state(1, "a")).await;
    assert_eq!(nodes[1].written(&object).await, None);
    assert_eq!(nodes[1].apply(&object, &state(1, "a"), None).await, Verdict::Fresh);
    nodes[0].fail(&object, &deleted(2)).await;
    assert_eq!(nodes[1].written(&object).await, Some(state(1, "a")));
    assert_eq!(nodes[1].apply(&object, &state(2, "b"), None).await, Verdict::Fresh);
}

async fn forgotten(nodes: Nodes) {
    let (gone, lives) = (object("gone"), object("lives"));
    assert_eq!(nodes[0].apply(&lives, &state(2, "a"), None).await, Verdict::Fresh);
    assert_eq!(nodes[0].apply(&gone, &deleted(2), None).await, Verdict::Fresh);
    nodes[1].forgotten(&gone).await;
    assert_eq!(nodes[1].apply(&gone, &state(1, "b"), None).await, Verdict::Fresh);
    assert_eq!(nodes[1].apply(&lives, &state(1, "b"), None).await, Verdict::Stale);
}
