//! Finds earlier sampled ids by their text.
//!
//! A reply comes back as text in the next request, and tokenising that text may give other ids than the sampled ones.
//! The cache, merging and training must use the same ids. So if a conversation begins like one that was served here, it
//! gets that one's ids, as far into its reply as the texts agree: to its end, or to the last token before a stop text,
//! white space that a template trims, or an edit. Only the rest is tokenised.
//!
//! The comparison uses the rendered form, in which a control token differs from text that spells it ([`Rendered`]). A
//! conversation that only spells the end of a turn does not match one in which the turn ended.

use std::collections::VecDeque;

use parking_lot::Mutex;

use crate::tokenizer::{
    CONTROL_BYTES, ChatTokenizer, EncodeError, KeyPart, Place, Rendered, parts, push_control,
};

/// Served sequences, limited in bytes. The least recently used is removed first.
#[derive(Debug)]
pub struct ServedTokenIndex {
    budget: usize,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    /// The most recently used is the last one.
    sequences: VecDeque<ServedSequence>,
    bytes: usize,
}

#[derive(Debug)]
struct ServedSequence {
    key: Vec<u8>,
    ids: Vec<u32>,
    /// Positions at which the key may be left: the end of the prompt, and the end of each token of the reply that does
    /// not end within a character.
    cuts: Vec<Cut>,
}

/// So many bytes of a key are so many ids.
#[derive(Debug, Clone, Copy)]
struct Cut {
    n_bytes: usize,
    n_ids: usize,
}

impl ServedSequence {
    fn new(tokenizer: &ChatTokenizer, prompt: Vec<u8>, prompt_ids: &[u32], reply: &[u32]) -> Self {
        let mut cuts = vec![Cut {
            n_bytes: prompt.len(),
            n_ids: prompt_ids.len(),
        }];
        let mut key = prompt;
        let mut decoder = tokenizer.raw_decoder();
        for (i, &id) in reply.iter().enumerate() {
            if tokenizer.is_control(id) {
                key.extend_from_slice(decoder.finish().as_bytes());
                push_control(&mut key, id);
            } else {
                key.extend_from_slice(decoder.push(id).as_bytes());
            }
            if !decoder.is_within_character() {
                cuts.push(Cut {
                    n_bytes: key.len(),
                    n_ids: prompt_ids.len() + i + 1,
                });
            }
        }
        key.extend_from_slice(decoder.finish().as_bytes());
        cuts.push(Cut {
            n_bytes: key.len(),
            n_ids: prompt_ids.len() + reply.len(),
        });
        Self {
            key,
            ids: [prompt_ids, reply].concat(),
            cuts,
        }
    }

    /// Returns the sequence as a client sends it back that got the reply without its first blank.
    fn without_blank(&self, tokenizer: &ChatTokenizer) -> Option<Self> {
        let start = self.cuts.first()?.n_bytes;
        if !tokenizer.strips_blank() || self.key.get(start) != Some(&b' ') {
            return None;
        }
        let mut key = self.key.clone();
        key.remove(start);
        let shift = |cut: &Cut| Cut {
            n_bytes: cut.n_bytes.saturating_sub(1).max(start),
            n_ids: cut.n_ids,
        };
        Some(Self {
            key,
            ids: self.ids.clone(),
            cuts: self.cuts.iter().map(shift).collect(),
        })
    }

    fn bytes(&self) -> usize {
        let numbers = self.ids.len() * size_of::<u32>() + self.cuts.len() * size_of::<Cut>();
        self.key.len() + numbers + size_of::<Self>()
    }

    fn shared(&self, key: &[u8]) -> Option<Cut> {
        let n = n_shared(&self.key, key);
        let within = self.cuts.partition_point(|cut| cut.n_bytes <= n);
        within.checked_sub(1).map(|at| self.cuts[at])
    }
}

fn end_of_last(key: &[u8], id: u32) -> Option<usize> {
    let (mut at, mut end) = (0, None);
    for part in parts(key) {
        at += match part {
            KeyPart::Text(text) => text.len(),
            KeyPart::Control(_) => CONTROL_BYTES,
        };
        if part == KeyPart::Control(id) {
            end = Some(at);
        }
    }
    end
}

fn n_shared(one: &[u8], other: &[u8]) -> usize {
    // It compares in blocks, because byte by byte a full index would take 20 ms per request.
    const BLOCK: usize = 256;
    let blocks = one.chunks(BLOCK).zip(other.chunks(BLOCK));
    let equal = blocks.take_while(|(one, other)| one == other);
    let n_equal: usize = equal.map(|(block, _)| block.len()).sum();
    let rest = one[n_equal..].iter().zip(&other[n_equal..]);
    n_equal + rest.take_while(|(one, other)| one == other).count()
}

impl ServedTokenIndex {
    /// Makes an index of at most `budget` bytes. 0 remembers nothing.
    pub fn new(budget: usize) -> Self {
        Self {
            budget,
            held: Mutex::new(Held::default()),
        }
    }

    /// Remembers that `prompt` had the ids `prompt_ids`, and that `reply` followed.
    pub fn remember(
        &self,
        tokenizer: &ChatTokenizer,
        prompt: &Rendered,
        prompt_ids: &[u32],
        reply: &[u32],
    ) {
        let key = prompt.key.clone();
        let as_sampled = ServedSequence::new(tokenizer, key, prompt_ids, reply);
        // Some templates put the blank back that clients do not get, and some do not.
        let as_given = as_sampled.without_blank(tokenizer);
        for sequence in [Some(as_sampled), as_given].into_iter().flatten() {
            self.insert(sequence);
        }
    }

    /// Remembers that `prompt_ids` and `reply` are the ids of `conversation` up to the end of its last turn, which is
    /// the reply's. Call it after [`Self::remember`], for a reply that a client sends back in another form than it was
    /// sampled in.
    ///
    /// A reply that was cut off is not remembered, because the two forms have no common end.
    pub fn remember_turn(
        &self,
        tokenizer: &ChatTokenizer,
        conversation: &Rendered,
        prompt_ids: &[u32],
        reply: &[u32],
    ) {
        let end = reply.last().filter(|id| tokenizer.is_control(**id));
        let Some(n_bytes) = end.and_then(|end| end_of_last(&conversation.key, *end)) else {
            return;
        };
        let key = conversation.key[..n_bytes].to_vec();
        let is_known = |it: &ServedSequence| it.key.starts_with(&key);
        if self.held.lock().sequences.iter().rev().any(is_known) {
            return;
        }
        let ids = [prompt_ids, reply].concat();
        let n_ids = ids.len();
        let cuts = vec![Cut { n_bytes, n_ids }];
        self.insert(ServedSequence { key, ids, cuts });
    }

    /// Returns the ids of a rendered conversation: the served ones as far as they match, then the rest tokenised.
    ///
    /// # Errors
    /// Fails like [`ChatTokenizer::encode_rendered`].
    pub fn encode(
        &self,
        tokenizer: &ChatTokenizer,
        rendered: &Rendered,
    ) -> Result<Vec<u32>, EncodeError> {
        let key = &rendered.key;
        let (mut ids, n_bytes) = self.recall(key);
        let place = match ids.last() {
            None => Place::Start,
            Some(&id) if tokenizer.is_control(id) => Place::AfterControl,
            Some(_) => Place::Inside,
        };
        ids.extend(tokenizer.encode_key(&key[n_bytes..], place)?);
        Ok(ids)
    }

    fn recall(&self, key: &[u8]) -> (Vec<u32>, usize) {
        let mut held = self.held.lock();
        let shared = |(at, sequence): (usize, &ServedSequence)| Some((at, sequence.shared(key)?));
        let known = held.sequences.iter().enumerate().filter_map(shared);
        let Some((at, cut)) = known.max_by_key(|(_, cut)| cut.n_bytes) else {
            return (Vec::new(), 0);
        };
        let Some(sequence) = held.sequences.remove(at) else {
            return (Vec::new(), 0);
        };
        let ids = sequence.ids[..cut.n_ids].to_vec();
        held.sequences.push_back(sequence);
        (ids, cut.n_bytes)
    }

    fn insert(&self, sequence: ServedSequence) {
        if sequence.bytes() > self.budget {
            return;
        }
        let mut held = self.held.lock();
        if let Some(at) = held.sequences.iter().position(|s| s.key == sequence.key) {
            held.remove(at);
        }
        held.bytes += sequence.bytes();
        held.sequences.push_back(sequence);
        while held.bytes > self.budget {
            held.remove(0);
        }
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
mod tests;
