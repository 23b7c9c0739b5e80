//! Locks.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks. What a panic left is taken as it is: nothing here is left half changed under a lock.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
