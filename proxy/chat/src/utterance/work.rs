//! Counts the bytes that are looked at, so that a test can show that their number grows linearly with the text.

#[cfg(test)]
std::thread_local! {
    static LOOKED_AT: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

pub(super) fn looks_at(n_bytes: usize) {
    #[cfg(test)]
    LOOKED_AT.set(LOOKED_AT.get() + n_bytes);
    #[cfg(not(test))]
    let _ = n_bytes;
}

#[cfg(test)]
pub(super) fn looked_at() -> usize {
    LOOKED_AT.replace(0)
}
