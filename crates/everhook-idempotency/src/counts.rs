//! What a layer has done so far, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)+) => {
        /// Requests so far, by what became of them. Each is also a log line where it needs a look.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counts {
            $($(#[$doc])* pub $name: u64,)+
        }

        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: AtomicU64,)+
        }

        impl Counters {
            pub(crate) fn read(&self) -> Counts {
                Counts { $($name: self.$name.load(Ordering::Relaxed),)+ }
            }
        }
    };
}

counts! {
    /// Handlers that ran under a key.
    ran,
    /// Of these: runs after an earlier handler was lost.
    reran,
    /// Of these: their answers are remembered.
    remembered,
    /// Of these: their answers could not be remembered, too large or streams.
    tombstones,
    /// Of these: their keys are free again.
    freed,
    /// Of these: they ended without an answer (a panic, an error of the service, a broken body).
    unanswered,
    /// Of these: their answers came after somebody else had the key.
    fenced,
    /// Answers that were given again.
    replayed,
    /// Refused: the first request still ran (409).
    in_progress,
    /// Refused: nobody knows how the first request ended (409).
    unknown,
    /// Refused: the answer was too large to be given again (409).
    not_replayable,
    /// Refused: another request had the key (422).
    mismatched,
    /// Refused: a key, an account or a body that cannot be used (400, 413).
    invalid,
    /// Refused: the account has too many keys or bytes (429).
    over_quota,
    /// Refused or left unanswered: the store was away (503).
    store_away,
}

/// One more.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
