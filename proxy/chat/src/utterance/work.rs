//! Counts the bytes that are looked at, so that a test can tell that they grow with the text and no faster.

#[cfg(test)]
std::thread_local! {
    static LOOKED_AT: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Some bytes of a text are looked at.
pub(super) fn looks_at(n_bytes: usize) {
    #[cfg(test)]
    LOOKED_AT.with(|it| it.set(it.get() + n_bytes));
    #[cfg(not(test))]
    let _ = n_bytes;
}

/// How many were, since this was last asked.
#[cfg(test)]
pub(super) fn looked_at() -> usize {
    LOOKED_AT.with(|it| it.replace(0))
}
