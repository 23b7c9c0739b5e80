//! A helper for mutexes.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex. A lock that was poisoned by a panic is used anyway, because nothing here is left half changed under a
/// lock.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
