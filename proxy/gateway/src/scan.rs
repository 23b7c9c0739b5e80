//! Where things stand in a chat request: one validating pass over the raw JSON, no value built.
//!
//! A request is edited by its bytes, so that everything else in it stays as the client wrote it: key
//! order, numbers, escapes, spaces, unknown fields. This finds the spans to edit, in the shapes of
//! all three chat APIs. Of keys that occur twice the last counts, as in JSON parsers. Long values that
//! came before are known again and not read ([`Seen`]).

mod scanner;
mod seen;
pub(crate) mod text;

use std::{ops::Range, sync::Arc};

use metaclaw_dialects::Api;

pub(crate) use self::seen::{Form, Seen, SeenValue};
use self::{scanner::Scanner, seen::Place};

/// The deepest nesting that is read, the request's own object included.
pub(crate) const MAX_DEPTH: usize = 128;

/// Values seen before that one request is compared with in vain: 256 KB each, at the most.
const MISSES: usize = 64;

/// A piece of the raw bytes.
pub(crate) type Span = Range<usize>;

/// Why the bytes are no JSON object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ScanError {
    /// A byte that cannot stand there.
    #[error("byte {at}: expected {expected}")]
    Syntax {
        /// Where, from 0.
        at: usize,
        /// What could have stood there.
        expected: &'static str,
    },
    /// Deeper than [`MAX_DEPTH`].
    #[error("byte {at}: nested deeper than {MAX_DEPTH} levels")]
    TooDeep {
        /// Where, from 0.
        at: usize,
    },
}

/// Where the parts of a chat request stand.
#[derive(Debug, Clone, Default)]
pub(crate) struct Layout {
    /// Right after the opening brace.
    pub open: usize,
    /// The members, in order, duplicates included.
    pub members: Vec<Member>,
    /// The conversation: the last member of that name, if it is an array.
    pub items: Option<Items>,
    /// Long members and elements of the conversation, by where they begin.
    long: Vec<(usize, Arc<SeenValue>)>,
}

/// One `"key": value` of the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    /// The key, unescaped.
    pub key: String,
    /// From the key's opening quote to the value's end.
    pub whole: Span,
    /// The value.
    pub value: Span,
}

/// An array of messages, or of what stands beside messages in the Responses API.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Items {
    /// The array with its brackets.
    pub whole: Span,
    /// Its elements.
    pub each: Vec<Item>,
}

/// One element of the conversation, and the values of those members that tell what was said.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Item {
    /// The element.
    pub whole: Span,
    /// `role`
    pub role: Option<Span>,
    /// `content`
    pub content: Option<Span>,
    /// `type`, as the Responses API has it.
    pub kind: Option<Span>,
    /// `output`: what a tool returned, in the Responses API.
    pub output: Option<Span>,
}

/// The member that holds the conversation.
pub(crate) const fn conversation(api: Api) -> &'static str {
    match api {
        Api::Chat | Api::Messages => "messages",
        Api::Responses => "input",
    }
}

/// The values of a request that came before.
struct Again<'a> {
    seen: &'a Seen,
    misses: usize,
    found: Vec<(Span, Arc<SeenValue>)>,
}

/// Finds the parts of a request; what it repeats of those before is `seen`.
///
/// # Errors
///
/// [`ScanError`] unless `raw` is one JSON object and nothing else.
pub(crate) fn scan(raw: &[u8], api: Api, seen: &Seen) -> Result<Layout, ScanError> {
    let mut again = Again {
        seen,
        misses: MISSES,
        found: Vec::new(),
    };
    let mut layout = read(raw, api, &mut again)?;
    again.check_utf8(raw)?;
    let found = again.found.into_iter();
    layout.long = found.map(|(span, value)| (span.start, value)).collect();
    layout.remember(raw, api, seen);
    Ok(layout)
}

fn read(raw: &[u8], api: Api, again: &mut Again<'_>) -> Result<Layout, ScanError> {
    let mut scanner = Scanner { raw, at: 0 };
    scanner.space();
    let mut layout = Layout {
        open: scanner.at + 1,
        ..Layout::default()
    };
    scanner.object(1, |scanner, quoted| {
        let key = scanner.key(&quoted);
        let begin = scanner.at;
        if key == conversation(api) {
            // Whatever this one is, an earlier one does not count any more.
            layout.items = items(scanner, api, again)?;
        } else if again.at(scanner, Place::Member(api)).is_none() {
            scanner.value(2)?;
        }
        layout.members.push(Member {
            key: key.into_owned(),
            whole: quoted.start..scanner.at,
            value: begin..scanner.at,
        });
        Ok(())
    })?;
    scanner.space();
    if scanner.at == raw.len() {
        Ok(layout)
    } else {
        Err(scanner.expected("the end of the request"))
    }
}

/// The conversation with its elements, if it is an array.
fn items(
    scanner: &mut Scanner<'_>,
    api: Api,
    again: &mut Again<'_>,
) -> Result<Option<Items>, ScanError> {
    if scanner.peek() != Some(b'[') {
        scanner.value(2)?;
        return Ok(None);
    }
    let start = scanner.at;
    let mut each = Vec::new();
    scanner.array(2, |scanner| {
        each.push(item(scanner, api, again)?);
        Ok(())
    })?;
    let whole = start..scanner.at;
    Ok(Some(Items { whole, each }))
}

fn item(scanner: &mut Scanner<'_>, api: Api, again: &mut Again<'_>) -> Result<Item, ScanError> {
    let start = scanner.at;
    if let Some(value) = again.at(scanner, Place::Item(api)) {
        return Ok(value.item().moved(|at| at + start));
    }
    let mut item = Item::default();
    if scanner.peek() == Some(b'{') {
        scanner.object(3, |scanner, quoted| {
            let key = scanner.key(&quoted);
            let span = Some(scanner.spanned(4)?);
            match &*key {
                "role" => item.role = span,
                "content" => item.content = span,
                "type" => item.kind = span,
                "output" => item.output = span,
                _ => {}
            }
            Ok(())
        })?;
    } else {
        scanner.value(3)?;
    }
    item.whole = start..scanner.at;
    Ok(item)
}

/// The values of an array that has been scanned before; none where there is no array.
pub(crate) fn elements(raw: &[u8], array: &Span) -> Vec<Span> {
    let mut found = Vec::new();
    let mut scanner = Scanner::within(raw, array);
    scanner.space();
    // What was read once without an error is read so again.
    let _ = scanner.array(1, |scanner| {
        found.push(scanner.spanned(2)?);
        Ok(())
    });
    found
}

/// The value of one member of an object that has been scanned before; of several the last.
pub(crate) fn member(raw: &[u8], object: &Span, name: &str) -> Option<Span> {
    let mut found = None;
    let mut scanner = Scanner::within(raw, object);
    scanner.space();
    // As in `elements`.
    let _ = scanner.object(1, |scanner, quoted| {
        let is_it = scanner.key(&quoted) == name;
        let value = scanner.spanned(2)?;
        if is_it {
            found = Some(value);
        }
        Ok(())
    });
    found
}

/// Whether a string, given where it stands, says just this.
pub(crate) fn says(raw: &[u8], span: Option<&Span>, text: &str) -> bool {
    span.is_some_and(|span| is_string(raw, span) && text::read(&raw[span.clone()]) == text)
}

/// Whether a value, given where it stands, is a string.
pub(crate) fn is_string(raw: &[u8], span: &Span) -> bool {
    raw.get(span.start) == Some(&b'"')
}

// === impl Layout ===

impl Layout {
    /// The member of that name that counts.
    pub(crate) fn member(&self, key: &str) -> Option<&Member> {
        self.members.iter().rev().find(|member| member.key == key)
    }

    /// The elements of the conversation.
    pub(crate) fn each(&self) -> &[Item] {
        self.items.as_ref().map_or(&[], |items| &items.each)
    }

    /// The long member or element of the conversation that begins there.
    pub(crate) fn long(&self, at: usize) -> Option<&Arc<SeenValue>> {
        let index = self.long.binary_search_by_key(&at, |(at, _)| *at).ok()?;
        Some(&self.long[index].1)
    }

    /// Keeps what is long and new for the requests that come.
    fn remember(&mut self, raw: &[u8], api: Api, seen: &Seen) {
        let mut new = Vec::new();
        let beside = |member: &&Member| member.key != conversation(api);
        let members = self.members.iter().filter(beside);
        let members = members.map(|member| (&member.value, None));
        let items = self.each().iter().map(|item| (&item.whole, Some(item)));
        for (span, item) in members.chain(items) {
            if seen::is_one(raw, span) && self.long(span.start).is_none() {
                let start = span.start;
                let (place, item) = match item {
                    None => (Place::Member(api), Item::default()),
                    Some(item) => (Place::Item(api), item.moved(|at| at - start)),
                };
                let kept = seen.keep(place, &raw[span.clone()], item);
                new.extend(kept.map(|value| (start, value)));
            }
        }
        self.long.extend(new);
        self.long.sort_unstable_by_key(|(at, _)| *at);
    }
}

// === impl Item ===

impl Item {
    /// The same, counted from elsewhere.
    fn moved(&self, to: impl Fn(usize) -> usize) -> Self {
        let span = |span: &Span| to(span.start)..to(span.end);
        Self {
            whole: span(&self.whole),
            role: self.role.as_ref().map(span),
            content: self.content.as_ref().map(span),
            kind: self.kind.as_ref().map(span),
            output: self.output.as_ref().map(span),
        }
    }
}

// === impl Again ===

impl Again<'_> {
    /// Goes past a value that was seen before, if it is next.
    fn at(&mut self, scanner: &mut Scanner<'_>, place: Place) -> Option<&SeenValue> {
        let value = self
            .seen
            .at(place, &scanner.raw[scanner.at..], &mut self.misses)?;
        let start = scanner.at;
        scanner.at += value.n_bytes();
        self.found.push((start..scanner.at, value));
        self.found.last().map(|(_, value)| &**value)
    }

    /// Whether the request is UTF-8: what was seen is, and so is all if what stands between is.
    fn check_utf8(&self, raw: &[u8]) -> Result<(), ScanError> {
        let mut start = 0;
        let found = self.found.iter().map(|(span, _)| (span.start, span.end));
        for (end, next) in found.chain([(raw.len(), raw.len())]) {
            if let Err(error) = std::str::from_utf8(&raw[start..end]) {
                let (at, expected) = (start + error.valid_up_to(), "UTF-8");
                return Err(ScanError::Syntax { at, expected });
            }
            start = next;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
