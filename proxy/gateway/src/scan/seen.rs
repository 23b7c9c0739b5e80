//! Values that requests repeat: what was read once is compared, not read again.
//!
//! An agent says the same system text, the same tools and the same history with every request: 37 KB
//! of 40. A JSON string, array or object shows where it ends. So bytes that begin with one that was
//! found valid hold that very value, and to compare is ten times as fast as to read.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, OnceLock, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

use metaclaw_chat::SaidHash;
use metaclaw_dialects::Api;
use metaclaw_turns::JsonText;

use super::{Item, Span};

/// The shortest value that is kept; to look a shorter one up costs as much as to read it.
const SHORTEST: usize = 1 << 10;
/// The longest; a longer one would push out all others.
const LONGEST: usize = 256 << 10;
/// Bytes of all of them; as many again may be taken by the texts that were made of them.
const BOUND: usize = 4 << 20;
/// How much of either end of the first [`SHORTEST`] bytes tells values apart before they are compared.
const END: usize = 64;
/// Values that are alike so far: of sessions whose long system texts differ in their last lines. The
/// oldest goes first.
const ALIKE: usize = 16;
/// Parts of a value whose hashes are kept: calls of several tools return together.
const PARTS: usize = 32;

/// The values of late.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    shelf: RwLock<Shelf>,
}

#[derive(Debug, Default)]
struct Shelf {
    values: HashMap<u64, Vec<Arc<SeenValue>>>,
    n_bytes: usize,
    /// How often room had to be made.
    age: u64,
}

/// Where a value stands, and so how deep it may be nested, what is looked for in it and how it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// A member of the request.
    Member(Api),
    /// An element of the conversation.
    Item(Api),
}

/// A value that was found valid.
#[derive(Debug)]
pub(crate) struct SeenValue {
    place: Place,
    raw: Box<[u8]>,
    /// Its parts, counted from its own beginning.
    item: Item,
    /// The shelf's age when it was last seen.
    last: AtomicU64,
    text: OnceLock<(Form, JsonText)>,
    /// What its first parts add to the hash of a conversation, as far as it was asked for.
    said: Mutex<Vec<(usize, Option<SaidHash>)>>,
}

/// How the log's text is made of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// As it stands.
    Plain,
    /// A system text beside the conversation.
    System(Api),
    /// Tools.
    Tools(Api),
}

/// Whether the value there is one to keep. A number does not show where it ends.
pub(super) fn is_one(raw: &[u8], span: &Span) -> bool {
    let shows_its_end = matches!(raw.get(span.start), Some(b'"' | b'[' | b'{'));
    shows_its_end && (SHORTEST..=LONGEST).contains(&span.len())
}

// === impl Seen ===

impl Seen {
    /// The value that `rest` begins with, if it was seen there before. Of those that were compared in
    /// vain, `misses` is left: a request that is made to miss is read as if nothing had been seen.
    pub(super) fn at(
        &self,
        place: Place,
        rest: &[u8],
        misses: &mut usize,
    ) -> Option<Arc<SeenValue>> {
        let key = key(rest)?;
        let shelf = self.shelf.read().unwrap_or_else(PoisonError::into_inner);
        let alike = shelf.values.get(&key)?.iter().rev();
        let mut alike = alike.filter(|value| value.place == place);
        let found = alike.find(|value| {
            let may_miss = *misses > 0;
            let is_it = may_miss && value.is_at(rest);
            *misses = misses.saturating_sub(usize::from(!is_it));
            is_it
        })?;
        // Read by all threads: written only where that changes something.
        if found.last.load(Ordering::Relaxed) != shelf.age {
            found.last.store(shelf.age, Ordering::Relaxed);
        }
        Some(Arc::clone(found))
    }

    /// Keeps a value whose parts are counted from its own beginning; nothing where it is too short.
    pub(super) fn keep(&self, place: Place, raw: &[u8], item: Item) -> Option<Arc<SeenValue>> {
        let key = key(raw)?;
        let mut shelf = self.shelf.write().unwrap_or_else(PoisonError::into_inner);
        shelf.make_room(raw.len());
        let value = Arc::new(SeenValue {
            place,
            raw: raw.into(),
            item,
            last: shelf.age.into(),
            text: OnceLock::new(),
            said: Mutex::default(),
        });
        shelf.put(key, Arc::clone(&value));
        Some(value)
    }

    #[cfg(test)]
    pub(super) fn n_bytes(&self) -> usize {
        self.shelf.read().unwrap().n_bytes
    }
}

/// Nearly always another one for another value; none for a short one. Made for each value of a request,
/// most of them short. Whoever makes values on purpose that have the same is bounded by [`ALIKE`].
fn key(rest: &[u8]) -> Option<u64> {
    /// The golden ratio: odd, and half of its bits are set.
    const RATIO: u64 = 0x9e37_79b9_7f4a_7c15;
    let (first, _) = rest.get(..END)?.as_chunks();
    let (last, _) = rest.get(SHORTEST - END..SHORTEST)?.as_chunks();
    let words = first.iter().chain(last);
    let words = words.map(|word| u64::from_le_bytes(*word));
    let add = |key: u64, word: u64| (key.rotate_left(29) ^ word).wrapping_mul(RATIO);
    Some(words.fold(0, add))
}

// === impl Shelf ===

impl Shelf {
    /// Lets go of what was not seen of late, and of everything where that is not enough.
    fn make_room(&mut self, n_bytes: usize) {
        if self.n_bytes + n_bytes <= BOUND {
            return;
        }
        let age = self.age;
        for alike in self.values.values_mut() {
            alike.retain(|value| value.last.load(Ordering::Relaxed) == age);
        }
        self.values.retain(|_, alike| !alike.is_empty());
        let left = self.values.values().flatten();
        self.n_bytes = left.map(|value| value.raw.len()).sum();
        if self.n_bytes > BOUND / 2 {
            self.values.clear();
            self.n_bytes = 0;
        }
        self.age += 1;
    }

    fn put(&mut self, key: u64, value: Arc<SeenValue>) {
        self.n_bytes += value.raw.len();
        let alike = self.values.entry(key).or_default();
        alike.push(value);
        if alike.len() > ALIKE {
            self.n_bytes -= alike.remove(0).raw.len();
        }
    }
}

// === impl SeenValue ===

impl SeenValue {
    /// Whether `rest` begins with it. The ends first: that is where long texts differ.
    fn is_at(&self, rest: &[u8]) -> bool {
        let Some(there) = rest.get(..self.raw.len()) else {
            return false;
        };
        let half = self.raw.len() / 2;
        there[half..] == self.raw[half..] && there[..half] == self.raw[..half]
    }

    pub(super) fn n_bytes(&self) -> usize {
        self.raw.len()
    }

    /// Its parts, counted from its own beginning.
    pub(super) fn item(&self) -> &Item {
        &self.item
    }

    /// The text that `make` makes of it, now or before; and whether it was before, so that it takes no
    /// memory of its own.
    ///
    /// # Errors
    /// Those of `make`.
    pub(crate) fn text<E>(
        &self,
        form: Form,
        make: impl FnOnce(&[u8]) -> Result<JsonText, E>,
    ) -> Result<(JsonText, bool), E> {
        match self.text.get() {
            Some((known, text)) if *known == form => Ok((text.clone(), true)),
            // One shape of bytes is read in one way nearly always: there is one place.
            Some(_) => Ok((make(&self.raw)?, false)),
            None => {
                let text = make(&self.raw)?;
                // Whoever else made it meanwhile made the same.
                let _ = self.text.set((form, text.clone()));
                Ok((text, false))
            }
        }
    }

    /// What one of its parts adds to the hash of a conversation, as `read` finds it, now or before: the
    /// whole history of a session would have to be hashed with each of its requests.
    pub(crate) fn said(
        &self,
        part: usize,
        read: impl FnOnce() -> Option<SaidHash>,
    ) -> Option<SaidHash> {
        if part >= PARTS {
            return read();
        }
        let mut known = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, said)) = known.iter().find(|(known, _)| *known == part) {
            return *said;
        }
        let said = read();
        known.push((part, said));
        said
    }
}
