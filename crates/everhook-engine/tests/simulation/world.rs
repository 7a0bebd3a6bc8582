//! A world: what all its parts share, and where violations are reported.

use std::fmt::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use everhook_store::sqlite::SqliteStore;
use everhook_store::{DirectoryStore, LeasedDelivery, Settled, Settlement, SettlementResult};
use tokio::sync::Notify;

use crate::book::{Book, EndpointBook};
use crate::faults::Faults;
use crate::network::receiver_of;
use crate::process::Process;
use crate::profile::Profile;
use crate::rng::Rng;
use crate::time::VirtualTime;

/// Lines of the trace that are kept for the report of a violation.
const TAIL: usize = 80;

/// What the parts of one world share.
pub(crate) struct World {
    /// What everything in it follows from.
    pub(crate) seed: u64,
    /// What happens in it.
    pub(crate) profile: Profile,
    /// Its time.
    pub(crate) time: Arc<VirtualTime>,
    /// What goes wrong inside the process.
    pub(crate) faults: Arc<Faults>,
    /// A violation was found.
    pub(crate) alarm: Notify,
    order: AtomicU64,
    book: Mutex<Book>,
    trace: Mutex<Trace>,
    violation: Mutex<Option<String>>,
    store: Mutex<Option<Arc<SqliteStore>>>,
    process: Mutex<Option<Arc<Process>>>,
    network: Mutex<Rng>,
    delays: Mutex<Rng>,
}

/// How much of the trace is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    /// Only its hash.
    Hash,
    /// The last lines too.
    Tail,
    /// All of it is printed as it happens.
    Print,
}

struct Trace {
    hash: u64,
    keep: Keep,
    lines: Vec<String>,
}

impl World {
    /// An empty world; its time begins now.
    pub(crate) fn new(seed: u64, keep: Keep) -> Arc<Self> {
        let time = VirtualTime::start(seed);
        let profile = Profile::of(seed);
        let endpoints = profile
            .receivers
            .iter()
            .map(|receiver| EndpointBook {
                id: None,
                told_version: 0,
                states: Vec::new(),
                paced: receiver.per_second.is_some(),
                secrets: None,
                rotations: 0,
            })
            .collect();
        let book = Book { endpoints, ..Book::default() };
        Arc::new(Self {
            seed,
            profile,
            faults: Arc::new(Faults::new(Arc::clone(&time), Rng::new(seed, "faults"))),
            time,
            alarm: Notify::new(),
            order: AtomicU64::new(1),
            book: Mutex::new(book),
            trace: Mutex::new(Trace { hash: 0xcbf2_9ce4_8422_2325, keep, lines: Vec::new() }),
            violation: Mutex::new(None),
            store: Mutex::new(None),
            process: Mutex::new(None),
            network: Mutex::new(Rng::new(seed, "network")),
            delays: Mutex::new(Rng::new(seed, "delays")),
        })
    }

    /// Puts something on record; gives its place in the order of things.
    pub(crate) fn note(&self, what: fmt::Arguments<'_>) -> u64 {
        let order = self.order.fetch_add(1, SeqCst);
        let mut trace = lock(&self.trace);
        let at_ms = self.time.now_ms();
        // Writing to the hash never fails.
        let _infallible = write!(Hashing(&mut trace.hash), "{at_ms} {what}");
        if trace.keep != Keep::Hash {
            let line = format!("{order:>6} {:>14} {what}", Shown(at_ms));
            trace.add(line);
        }
        order
    }

    /// A promise was broken: the world ends. The first one counts.
    pub(crate) fn violate(&self, what: String) {
        let mut violation = lock(&self.violation);
        if violation.is_none() {
            self.note(format_args!("VIOLATION {what}"));
            *violation = Some(what);
            self.alarm.notify_one();
        }
    }

    /// The broken promise, if there is one.
    pub(crate) fn violation(&self) -> Option<String> {
        lock(&self.violation).clone()
    }

    /// The hash of everything on record.
    pub(crate) fn hash(&self) -> u64 {
        lock(&self.trace).hash
    }

    /// The last lines on record, if they were kept.
    pub(crate) fn tail(&self) -> String {
        lock(&self.trace).lines.join("\n")
    }

    /// The book; not to be held across an await.
    pub(crate) fn book(&self) -> MutexGuard<'_, Book> {
        lock(&self.book)
    }

    /// Chance for the network.
    pub(crate) fn network(&self) -> MutexGuard<'_, Rng> {
        lock(&self.network)
    }

    /// Waits as long as the store takes for half of a call.
    pub(crate) async fn delay(&self) {
        let longest_ms = self.profile.store_ms;
        if longest_ms == 0 {
            return;
        }
        let ms = lock(&self.delays).between(0, longest_ms);
        tokio::time::sleep(Duration::from_millis(u64::try_from(ms).unwrap_or(0))).await;
    }

    /// The store of the process that has the database.
    pub(crate) fn store(&self) -> Option<Arc<SqliteStore>> {
        lock(&self.store).clone()
    }

    /// Another process has the database.
    pub(crate) fn set_store(&self, store: Arc<SqliteStore>) {
        *lock(&self.store) = Some(store);
    }

    /// The running process.
    pub(crate) fn process(&self) -> Option<Arc<Process>> {
        lock(&self.process).clone()
    }

    /// A process runs, or none.
    pub(crate) fn set_process(&self, process: Option<Arc<Process>>) {
        *lock(&self.process) = process;
    }

    /// A claim has leased deliveries to a process.
    pub(crate) fn claimed(&self, generation: u32, leased: &[LeasedDelivery]) {
        for delivery in leased {
            let (id, number) = (delivery.id, delivery.number);
            self.note(format_args!("g{generation} claimed {id} #{number}"));
            if !self.book().leased.insert(id) {
                self.violate(format!("{id} was leased while it was leased already"));
            }
        }
    }

    /// The store has answered settlements.
    pub(crate) fn settled(
        &self,
        generation: u32,
        zombie: bool,
        settlements: &[Settlement],
        settled: &[Settled],
    ) {
        for (settlement, settled) in settlements.iter().zip(settled) {
            let id = settlement.delivery;
            let what = match &settlement.result {
                SettlementResult::Released => "released",
                SettlementResult::Finished(report) if report.outcome.is_success() => "success",
                SettlementResult::Finished(_) => "failure",
            };
            self.note(format_args!("g{generation} settled {id} {what}: {settled:?}"));
            match (zombie, settled) {
                (false, Settled::Recorded) => {
                    self.book().leased.remove(&id);
                }
                (false, Settled::Stale) => {
                    self.violate(format!("{id}: the owner's own result was called stale"));
                }
                (true, Settled::Recorded) if self.book().lapsed => {
                    self.violate(format!("{id}: a result was recorded whose lease had lapsed"));
                }
                // Until the lease has lapsed it holds, whoever has the database.
                (true, Settled::Recorded | Settled::Stale) => {}
            }
        }
    }

    /// Notes the endpoints' states as they are in force, and that no version is older than one that
    /// a caller was told of.
    pub(crate) fn look_at_endpoints(&self) {
        let Some(directory) = self.store().and_then(|store| store.directory().ok()) else { return };
        let now_ms = self.time.now_ms();
        for index in 0..self.profile.receivers.len() {
            let mut all = directory.all();
            let found = all.find(|endpoint| receiver_of(&endpoint.settings.url) == Some(index));
            let mut book = self.book();
            let known = &mut book.endpoints[index];
            let Some(endpoint) = found else {
                if known.told_version > 0 {
                    drop(book);
                    self.violate(format!("endpoint {index} was created, and is gone"));
                }
                continue;
            };
            known.id = Some(endpoint.id);
            let told = known.told_version;
            if known.state() != Some(endpoint.state) {
                let order = self.note(format_args!("endpoint {index} is {:?}", endpoint.state));
                known.states.push((order, now_ms, endpoint.state));
            }
            drop(book);
            if endpoint.version < told {
                self.violate(format!("a change of endpoint {index} was answered, and is gone"));
            }
        }
    }
}

impl Trace {
    #[expect(clippy::print_stderr, reason = "asked for by whoever runs one seed")]
    fn add(&mut self, line: String) {
        if self.keep == Keep::Print {
            eprintln!("{line}");
        }
        if self.lines.len() == TAIL {
            self.lines.remove(0);
        }
        self.lines.push(line);
    }
}

/// FNV-1a over what is written.
struct Hashing<'a>(&'a mut u64);

impl Write for Hashing<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            *self.0 = (*self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        Ok(())
    }
}

/// Virtual milliseconds as hours, minutes and seconds.
struct Shown(i64);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ms, s) = (self.0 % 1_000, self.0 / 1_000);
        let text = format!("{:02}:{:02}:{:02}.{ms:03}", s / 3_600, s / 60 % 60, s % 60);
        f.pad(&text)
    }
}

/// Takes a lock; nothing here is left half-changed by a panic that matters.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
