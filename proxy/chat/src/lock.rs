//! Mutexes that a panic does not make unusable.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex. A lock that was poisoned by a panic is used anyway. Its users leave nothing half changed under it.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
