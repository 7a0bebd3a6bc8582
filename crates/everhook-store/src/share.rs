//! The queues of a lane.

use everhook_domain::delivery::Progress;

/// Which queue of a lane a waiting delivery stands in, so that none of them waits behind another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Share {
    /// Never tried.
    Fresh = 0,
    /// Tried before.
    Retry = 1,
    /// Interrupted so often that it is tried alone.
    Suspect = 2,
}

impl Share {
    /// The share in which a delivery waits that has come so far.
    pub(crate) const fn of(progress: &Progress) -> Self {
        if progress.is_suspect() {
            Self::Suspect
        } else if progress.number == 0 {
            Self::Fresh
        } else {
            Self::Retry
        }
    }
}
