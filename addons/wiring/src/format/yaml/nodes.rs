//! A document of YAML as nodes, each with its place in the text.

use std::iter::Peekable;

use granit_parser::{Event, Parser, ScalarStyle, Span, StructureStyle};

use crate::document::{PlaceError, beyond};

/// A node, from its first byte to behind its last one. A block ends where its last child ends.
#[derive(Debug)]
pub(super) struct Node {
    pub start: usize,
    pub end: usize,
    pub kind: Kind,
}

#[derive(Debug)]
pub(super) enum Kind {
    Map(Vec<Entry>, Style),
    List(Vec<Node>, Style),
    /// Nothing stands there, or a word for it.
    Null,
    /// A text, a number, or a reference to another node.
    Other,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub name: String,
    pub key: Key,
    pub value: Node,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Key {
    pub start: usize,
    /// Characters before it in its line.
    pub column: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    Block,
    Flow,
}

struct Events<'t> {
    text: &'t str,
    events: Peekable<std::vec::IntoIter<(Event<'t>, Span)>>,
}

const NULLS: [&str; 4] = ["~", "null", "Null", "NULL"];
/// Deeper files are refused: the tree is read by a function that calls itself.
const MAX_DEPTH: usize = 64;

/// The one document of a text; none where it holds comments at most.
pub(super) fn parse(text: &str) -> Result<Option<Node>, PlaceError> {
    let mut parser = Parser::new_from_str(text);
    let mut events = Vec::new();
    while let Some(event) = parser.next_event() {
        let (event, span) = event.map_err(|_| beyond())?;
        if !matches!(
            event,
            Event::StreamStart | Event::StreamEnd | Event::Comment(..)
        ) {
            events.push((event, span));
        }
    }
    let events = events.into_iter().peekable();
    let mut events = Events { text, events };
    match events.events.next() {
        None => return Ok(None),
        Some((Event::DocumentStart(..), _)) => {}
        Some(_) => return Err(beyond()),
    }
    let root = node(&mut events, 0)?;
    let is_over = matches!(events.events.next(), Some((Event::DocumentEnd, _)))
        && events.events.next().is_none();
    if is_over {
        Ok(Some(root))
    } else {
        Err(beyond())
    }
}

fn node(events: &mut Events<'_>, depth: usize) -> Result<Node, PlaceError> {
    let (event, span) = events
        .events
        .next()
        .filter(|_| depth < MAX_DEPTH)
        .ok_or_else(beyond)?;
    let range = span.byte_range().ok_or_else(beyond)?;
    let (start, mut end) = (range.start, range.end);
    let kind = match event {
        Event::Scalar(..) if start == end => Kind::Null,
        Event::Scalar(text, ScalarStyle::Plain, ..) if NULLS.contains(&&*text) => Kind::Null,
        Event::Scalar(..) | Event::Alias(_) => Kind::Other,
        Event::SequenceStart(style, ..) => {
            let mut items = Vec::new();
            while !matches!(events.events.peek(), Some((Event::SequenceEnd, _))) {
                items.push(node(events, depth + 1)?);
            }
            end = closed(events, style, items.last())?;
            Kind::List(items, style.into())
        }
        Event::MappingStart(style, ..) => {
            let mut entries = Vec::new();
            while !matches!(events.events.peek(), Some((Event::MappingEnd, _))) {
                entries.push(entry(events, depth)?);
            }
            end = closed(events, style, entries.last().map(|it: &Entry| &it.value))?;
            Kind::Map(entries, style.into())
        }
        _ => return Err(beyond()),
    };
    Ok(Node { start, end, kind })
}

fn entry(events: &mut Events<'_>, depth: usize) -> Result<Entry, PlaceError> {
    let Some((Event::Scalar(name, ..), span)) = events.events.next() else {
        return Err(beyond());
    };
    let range = span.byte_range().ok_or_else(beyond)?;
    let key = Key {
        start: range.start,
        column: span.start.col(),
    };
    let mut value = node(events, depth + 1)?;
    if value.start == value.end {
        // The parser puts it where the next thing begins; it stands behind the colon.
        let behind = events.text[range.end..].find(':').ok_or_else(beyond)?;
        value.start = range.end + behind + 1;
        value.end = value.start;
    }
    Ok(Entry {
        name: name.into_owned(),
        key,
        value,
    })
}

/// The end of a collection: behind its bracket, or where its last child ends.
fn closed(
    events: &mut Events<'_>,
    style: StructureStyle,
    last: Option<&Node>,
) -> Result<usize, PlaceError> {
    let (_, span) = events.events.next().ok_or_else(beyond)?;
    match (style, last) {
        (StructureStyle::Block, Some(last)) => Ok(last.end),
        _ => Ok(span.byte_range().ok_or_else(beyond)?.end),
    }
}

// === impl Style ===

impl From<StructureStyle> for Style {
    fn from(style: StructureStyle) -> Self {
        match style {
            StructureStyle::Block => Self::Block,
            StructureStyle::Flow => Self::Flow,
        }
    }
}
