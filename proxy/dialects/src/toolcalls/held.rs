//! Text that is held back, and moves on from its beginning.

/// What is moved on is not cut off each time, which would move all that follows it.
#[derive(Debug, Default)]
pub(super) struct Held {
    all: String,
    /// So much of it has moved on.
    n_done: usize,
}

// === impl Held ===

impl Held {
    pub(super) fn text(&self) -> &str {
        &self.all[self.n_done..]
    }

    pub(super) fn push(&mut self, text: &str) {
        if self.n_done > self.all.len() / 2 {
            self.all.drain(..self.n_done);
            self.n_done = 0;
        }
        self.all.push_str(text);
    }

    /// The first `n` bytes, which are held no longer.
    pub(super) fn take(&mut self, n: usize) -> String {
        let taken = self.text()[..n].to_owned();
        self.skip(n);
        taken
    }

    /// Leaves out the first `n` bytes, or what there is.
    pub(super) fn skip(&mut self, n: usize) {
        self.n_done = self.all.len().min(self.n_done + n);
    }

    /// Leaves out the blanks at the beginning.
    pub(super) fn skip_blanks(&mut self) {
        let text = self.text();
        self.skip(text.len() - text.trim_start().len());
    }
}
