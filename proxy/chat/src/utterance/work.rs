//! Counts the bytes that a thread looks at, so that tests can show how this number grows with a text, and how often a
//! request is read on its way. Every function that may look at a whole text calls [`looks_at`]: one that reads JSON,
//! unescapes, searches or hashes. Copying bytes and comparing equal ones do not count.

use std::cell::Cell;

std::thread_local! {
    static LOOKED_AT: Cell<usize> = const { Cell::new(0) };
}

/// Adds to the thread's number. A build without debug assertions does nothing here.
pub fn looks_at(n_bytes: usize) {
    if cfg!(any(test, debug_assertions)) {
        LOOKED_AT.set(LOOKED_AT.get() + n_bytes);
    }
}

/// Returns the thread's number, which begins at 0 again.
pub fn looked_at() -> usize {
    LOOKED_AT.replace(0)
}
