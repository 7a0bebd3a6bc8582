//! Short locks on plain data, never held across an await.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Takes the lock. Data behind it is whole after every statement, so a panic elsewhere, which a
/// poisoned lock reports, is no reason to stop.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
