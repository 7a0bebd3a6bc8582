//! Named crash points and planted faults: how the test suites reach into the running product.
//!
//! Without the feature `faults`, which no release has, every function here is an empty inline one.
//! With it, a test (for its own thread) or the binary (for the process) installs a hook that is
//! asked at every [`Step`], and chooses at most one [`Plant`], a deliberate bug that a suite must
//! find.

/// A named step on the way of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// A publishing request was parsed; nothing is stored.
    AcceptParsed,
    /// A batch of commands is about to begin its transaction.
    CommitBegin,
    /// Everything is written; the commit comes next.
    CommitBefore,
    /// The commit is on the disk; nobody has been told.
    CommitAfter,
    /// The caller knows of the commit; the answer comes next.
    AnswerBefore,
    /// A delivery was handed to its lane.
    HandedOver,
    /// A request is about to be sent.
    SendBefore,
    /// The answer to a request was read; nothing is recorded.
    SendAfter,
    /// Results are about to be recorded.
    SettleBefore,
    /// Results were recorded.
    SettleAfter,
    /// Due deliveries were claimed; no request was sent for them.
    Claimed,
    /// Interrupted leases were found at start and are due again.
    Lapsed,
}

impl Step {
    /// Every step.
    pub const ALL: [Self; 12] = [
        Self::AcceptParsed,
        Self::CommitBegin,
        Self::CommitBefore,
        Self::CommitAfter,
        Self::AnswerBefore,
        Self::HandedOver,
        Self::SendBefore,
        Self::SendAfter,
        Self::SettleBefore,
        Self::SettleAfter,
        Self::Claimed,
        Self::Lapsed,
    ];

    /// The step's name: `commit-before`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AcceptParsed => "accept-parsed",
            Self::CommitBegin => "commit-begin",
            Self::CommitBefore => "commit-before",
            Self::CommitAfter => "commit-after",
            Self::AnswerBefore => "answer-before",
            Self::HandedOver => "handed-over",
            Self::SendBefore => "send-before",
            Self::SendAfter => "send-after",
            Self::SettleBefore => "settle-before",
            Self::SettleAfter => "settle-after",
            Self::Claimed => "claimed",
            Self::Lapsed => "lapsed",
        }
    }

    /// The step with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|step| step.name() == name)
    }
}

/// What happens at a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Nothing: go on.
    Go,
    /// The step fails, as an I/O error would make it fail.
    Fail,
}

/// A deliberate bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Plant {
    /// Results are taken whatever lease they were made under.
    NoTokenCompare,
    /// Callers are answered before the commit.
    AnswerBeforeCommit,
    /// An interruption uses up an attempt number.
    InterruptionCounts,
    /// Retries send the body after parsing and writing it again.
    BodyReserialised,
    /// Retries are due a second early.
    StepEarly,
    /// A claim does not take what it claims away from the next claim.
    DuplicateClaim,
    /// The database does not wait for the disk.
    NoSync,
    /// What comes to a source is looked up, and remembered, before its signature is verified.
    DedupeBeforeVerification,
    /// What was received is remembered in a transaction before the one that makes its deliveries.
    MarkedBeforeStored,
    /// A dedupe key is the same for every source.
    KeyWithoutSource,
}

impl Plant {
    /// Every plant.
    pub const ALL: [Self; 10] = [
        Self::NoTokenCompare,
        Self::AnswerBeforeCommit,
        Self::InterruptionCounts,
        Self::BodyReserialised,
        Self::StepEarly,
        Self::DuplicateClaim,
        Self::NoSync,
        Self::DedupeBeforeVerification,
        Self::MarkedBeforeStored,
        Self::KeyWithoutSource,
    ];

    /// The plant's name: `step-early`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoTokenCompare => "no-token-compare",
            Self::AnswerBeforeCommit => "answer-before-commit",
            Self::InterruptionCounts => "interruption-counts",
            Self::BodyReserialised => "body-reserialised",
            Self::StepEarly => "step-early",
            Self::DuplicateClaim => "duplicate-claim",
            Self::NoSync => "no-sync",
            Self::DedupeBeforeVerification => "dedupe-before-verification",
            Self::MarkedBeforeStored => "marked-before-stored",
            Self::KeyWithoutSource => "key-without-source",
        }
    }

    /// The plant with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|plant| plant.name() == name)
    }
}

#[cfg(feature = "faults")]
pub use enabled::{Hook, install_for_process, install_for_thread, planted, reach};

#[cfg(feature = "faults")]
mod enabled {
    use std::cell::RefCell;
    use std::sync::OnceLock;

    use super::{Fate, Plant, Step};

    /// Asked at every step.
    pub type Hook = Box<dyn Fn(Step) -> Fate + Send + Sync>;

    type Installed = (Option<Plant>, Hook);

    static PROCESS: OnceLock<Installed> = OnceLock::new();

    thread_local! {
        static THREAD: RefCell<Option<Installed>> = const { RefCell::new(None) };
    }

    /// Installs a hook for the whole process; only the first call counts.
    pub fn install_for_process(plant: Option<Plant>, hook: Hook) {
        let _already = PROCESS.set((plant, hook));
    }

    /// Installs a hook for this thread, which then ignores the process's; `None` removes it.
    pub fn install_for_thread(installed: Option<(Option<Plant>, Hook)>) {
        THREAD.with(|thread| *thread.borrow_mut() = installed);
    }

    fn with<T>(read: impl Fn(&Installed) -> T) -> Option<T> {
        THREAD
            .with(|thread| thread.borrow().as_ref().map(&read))
            .or_else(|| PROCESS.get().map(&read))
    }

    /// Tells the hook that a step is reached.
    pub fn reach(step: Step) -> Fate {
        with(|(_, hook)| hook(step)).unwrap_or(Fate::Go)
    }

    /// Whether this bug was planted.
    pub fn planted(plant: Plant) -> bool {
        with(|(chosen, _)| *chosen == Some(plant)).unwrap_or(false)
    }
}

/// Tells the hook that a step is reached.
#[cfg(not(feature = "faults"))]
#[inline(always)]
pub const fn reach(_: Step) -> Fate {
    Fate::Go
}

/// Whether this bug was planted.
#[cfg(not(feature = "faults"))]
#[inline(always)]
pub const fn planted(_: Plant) -> bool {
    false
}
