//! One thing for each of several threads: a shim until its last users are gone; there is one runtime.

/// One thing for each thread.
#[derive(Debug)]
pub(crate) struct PerThread<T>(T);

// === impl PerThread ===

impl<T> PerThread<T> {
    pub(crate) fn new(_: usize, mut make: impl FnMut() -> T) -> Self {
        Self(make())
    }

    pub(crate) fn get(&self) -> &T {
        &self.0
    }
}
