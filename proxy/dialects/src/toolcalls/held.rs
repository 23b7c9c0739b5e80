//! Text that is held back, and released from its beginning.

/// Released text is not removed each time, because this would move all following text.
#[derive(Debug, Default)]
pub(super) struct Held {
    all: String,
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

    pub(super) fn take(&mut self, n: usize) -> String {
        let taken = self.text()[..n].to_owned();
        self.skip(n);
        taken
    }

    pub(super) fn skip(&mut self, n: usize) {
        self.n_done = self.all.len().min(self.n_done + n);
    }

    pub(super) fn skip_blanks(&mut self) {
        let text = self.text();
        self.skip(text.len() - text.trim_start().len());
    }
}
