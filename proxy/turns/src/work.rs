//! Counts the bytes that are decoded, searched and written, so that a test can show that their number grows linearly
//! with a conversation.

#[cfg(test)]
std::thread_local! {
    static COUNT: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

pub(crate) fn count(n_bytes: usize) {
    #[cfg(test)]
    COUNT.set(COUNT.get() + n_bytes);
    #[cfg(not(test))]
    let _ = n_bytes;
}

#[cfg(test)]
pub(crate) fn counted() -> usize {
    COUNT.replace(0)
}
