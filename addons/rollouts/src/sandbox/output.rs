//! The output of a command: its beginning and its end, within a limit.

use std::collections::VecDeque;

/// Keeps the first and the last bytes of a stream, half of the limit each.
#[derive(Debug)]
pub(super) struct BoundedOutput {
    half: usize,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    omitted: u64,
}

// === impl BoundedOutput ===

impl BoundedOutput {
    /// `limit` is in bytes.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            half: limit / 2,
            head: Vec::new(),
            tail: VecDeque::new(),
            omitted: 0,
        }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        let (first, rest) = bytes.split_at(bytes.len().min(self.half - self.head.len()));
        self.head.extend_from_slice(first);
        self.tail.extend(rest);
        let excess = self.tail.len().saturating_sub(self.half);
        self.tail.drain(..excess);
        self.omitted += excess as u64;
    }

    /// Returns the bytes, and how many were left out between the halves.
    pub(super) fn into_parts(self) -> (Vec<u8>, Vec<u8>, u64) {
        (self.head, self.tail.into(), self.omitted)
    }
}

#[cfg(test)]
mod tests {
    use super::BoundedOutput;

    #[test]
    fn the_beginning_and_the_end_are_kept_however_the_bytes_arrive() {
        for size in [1, 2, 3, 7, 100] {
            let mut output = BoundedOutput::new(8);
            for piece in b"abcdefghijklm".chunks(size) {
                output.push(piece);
            }
            let (head, tail, omitted) = output.into_parts();
            assert_eq!((&*head, &*tail, omitted), (&b"abcd"[..], &b"jklm"[..], 5));
        }
        let mut short = BoundedOutput::new(8);
        short.push(b"abcdef");
        assert_eq!(short.into_parts(), (b"abcd".to_vec(), b"ef".to_vec(), 0));
    }
}
