//! The ids that were sampled, found again by their text.
//!
//! A reply comes back as text in the next request, and tokenising that text again need not give the
//! ids that were sampled. So that cache, merging and training agree, a rendered text that begins
//! with the text of a sequence served here is given that sequence's ids, and only the rest is tokenised.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use crate::tokenizer::{ChatTokenizer, EncodeError};

/// Sequences that were served, bounded in bytes; the least recently used goes first.
#[derive(Debug)]
pub struct SequenceMemory {
    budget: usize,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    /// The most recently used last.
    sequences: VecDeque<Sequence>,
    bytes: usize,
}

#[derive(Debug)]
struct Sequence {
    text: String,
    ids: Vec<u32>,
}

impl Sequence {
    fn bytes(&self) -> usize {
        self.text.len() + self.ids.len() * size_of::<u32>() + size_of::<Self>()
    }
}

impl SequenceMemory {
    /// A memory of at most `budget` bytes; 0 remembers nothing.
    pub fn new(budget: usize) -> Self {
        Self {
            budget,
            held: Mutex::new(Held::default()),
        }
    }

    /// Remembers that `text` (rendered prompt and what was generated, special tokens included) is `ids`.
    pub fn remember(&self, text: String, ids: Vec<u32>) {
        let sequence = Sequence { text, ids };
        if sequence.text.is_empty() || sequence.bytes() > self.budget {
            return;
        }
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = held.sequences.iter().position(|s| s.text == sequence.text) {
            held.remove(at);
        }
        held.bytes += sequence.bytes();
        held.sequences.push_back(sequence);
        while held.bytes > self.budget {
            held.remove(0);
        }
    }

    /// Ids of a rendered text: those of the longest sequence served that it begins with, then the rest tokenised.
    ///
    /// # Errors
    /// As [`ChatTokenizer::encode`].
    pub fn encode(&self, tokenizer: &ChatTokenizer, text: &str) -> Result<Vec<u32>, EncodeError> {
        let (mut ids, rest) = self.recall(text);
        ids.extend(tokenizer.encode(rest)?);
        Ok(ids)
    }

    /// The known ids at the beginning of `text`, and the text after them.
    pub fn recall<'a>(&self, text: &'a str) -> (Vec<u32>, &'a str) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let known = held.sequences.iter().enumerate();
        let longest = known
            .filter(|(_, s)| text.starts_with(&s.text))
            .max_by_key(|(_, s)| s.text.len());
        let Some((at, _)) = longest else {
            return (Vec::new(), text);
        };
        let Some(sequence) = held.sequences.remove(at) else {
            return (Vec::new(), text);
        };
        let found = (sequence.ids.clone(), &text[sequence.text.len()..]);
        held.sequences.push_back(sequence);
        found
    }
}

impl Held {
    fn remove(&mut self, at: usize) {
        if let Some(sequence) = self.sequences.remove(at) {
            self.bytes -= sequence.bytes();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::write_tiny_model;

    #[test]
    fn a_text_that_continues_a_served_one_keeps_its_ids() {
        let dir = tempfile::tempdir().unwrap();
        write_tiny_model(dir.path(), 0).unwrap();
        let tokenizer = ChatTokenizer::load(dir.path()).unwrap();
        let memory = SequenceMemory::new(10_000);
        memory.remember("user: hi".into(), vec![1, 2]);
        memory.remember("user: hi\nbot: yo".into(), vec![1, 2, 3]);
        assert_eq!(
            memory.encode(&tokenizer, "user: hi\nbot: yo!").unwrap(),
            [1, 2, 3, 33]
        );
        assert_eq!(memory.encode(&tokenizer, "user: hi\n").unwrap(), [1, 2, 10]);
        assert_eq!(memory.encode(&tokenizer, "us").unwrap(), [117, 115]);
    }

    #[test]
    fn the_least_recently_used_goes_first() {
        let one = Sequence {
            text: "a".repeat(100),
            ids: vec![0; 10],
        }
        .bytes();
        let memory = SequenceMemory::new(2 * one);
        let text = |c: char| c.to_string().repeat(100);
        memory.remember(text('a'), vec![0; 10]);
        memory.remember(text('b'), vec![0; 10]);
        assert_eq!(memory.recall(&text('a')).0.len(), 10);
        memory.remember(text('c'), vec![0; 10]);
        assert_eq!(memory.recall(&text('b')).0.len(), 0);
        assert_eq!(memory.recall(&text('a')).0.len(), 10);
        memory.remember("d".repeat(10 * one), vec![]);
        assert_eq!(
            memory.recall(&text('c')).0.len(),
            10,
            "what is too large displaces nothing"
        );
    }
}
