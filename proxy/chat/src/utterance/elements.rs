//! Removes the elements of clients from a text: `<system-reminder>…</system-reminder>` and similar ones.
//!
//! A table of names is not enough. Clients put text that nobody typed into elements at the beginning of a line, with
//! names in lower or upper case. Web pages, drawings, components and documents that a person pasted must stay.

use std::{cell::LazyCell, ops::RangeInclusive};

use super::{
    markup::{is_document, is_markup},
    tables::{Name, is_named},
    tags::{Kind, Tag},
    work::looks_at,
    wrappers,
};

const SUMMARIES: [&str; 2] = ["summary", "snapshot"];
const ARGUMENTS: &str = "command-args";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// Outside all elements of clients.
    Outside,
    /// A tool's result, or what a tool found.
    Results,
    /// In an element of [`Name::Typed`].
    Typed,
    /// In an element of [`Name::TypedAlone`].
    TypedAlone,
    /// In [`ARGUMENTS`].
    Arguments,
    /// In a reminder of Claude Code about a message that was typed while it worked.
    Queued,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Command {
    /// A prompt replaces it, as for `/review`.
    Prompt,
    /// The client executes it itself, as for `/clear`.
    Local,
}

#[derive(Debug, Default)]
pub(super) struct Split<'t> {
    /// Pieces outside all elements of clients.
    pub outside: Vec<&'t str>,
    /// Pieces in elements that hold what was typed.
    pub inside: Vec<(Place, &'t str)>,
    /// The number of these elements.
    pub n_inside: usize,
    pub command: Option<Command>,
    /// Whether an element summarises earlier messages.
    pub has_summary: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    /// A client's, at any place.
    Known,
    /// A client's, at the beginning of a line: a name of several words, or in upper case.
    Compound,
    /// A client's, at the beginning of a line, if it is closed and is not a document.
    Word,
    Subject,
}

// === impl Place ===

impl Place {
    pub(super) fn is_inside(self) -> bool {
        !matches!(self, Self::Outside | Self::Results)
    }
}

// === impl Split ===

impl<'t> Split<'t> {
    pub(super) fn at_elements(text: &'t str) -> Self {
        Self::without(text, class, false)
    }

    pub(super) fn known(text: &'t str) -> Self {
        let class = |tag: &Tag<'_>| {
            if is_named(Name::Known, tag.name) {
                Class::Known
            } else {
                Class::Subject
            }
        };
        Self::without(text, class, false)
    }

    fn without(text: &'t str, class: impl Fn(&Tag<'_>) -> Class, is_inner: bool) -> Self {
        let tags = Tag::all(text, is_of_clients);
        let mut fences = Fences::find(text, &tags);
        let results = LazyCell::new(|| wrappers::results_begin(text).unwrap_or(text.len()));
        let mut split = Self::default();
        // The text from `from` on is not split yet. General rules apply from `subject` on.
        let (mut from, mut subject) = (0, 0);
        for (index, tag) in tags.iter().enumerate() {
            if tag.span.start < from {
                continue;
            }
            let class = class(tag);
            let is_typed = is_named(Name::Typed, tag.name);
            let is_subject = (class != Class::Known || is_typed && tag.opens_line)
                && (!tag.opens_line
                    || tag.span.start < subject
                    || fences.is_code(from, tag.span.start));
            if is_subject {
                continue;
            }
            // Its content may open it again.
            let close = tag.close.or(tag.last_close);
            match (tag.kind, close.zip(tag.last_close)) {
                (Kind::Open, Some((close, last)))
                    if is_persons(text, &tags, index..=close, class, close == last) =>
                {
                    subject = tags[close].span.end;
                }
                (Kind::Open, Some((_, last))) => {
                    split.outside.push(&text[from..tag.span.start]);
                    let inner = &text[tag.span.end..tags[last].span.start];
                    let is_again = tags[index + 1..last]
                        .iter()
                        .any(|inner| inner.kind == Kind::Open && inner.name == tag.name);
                    split.element(tag, inner, is_inner || is_again || !tag.opens_line);
                    from = tags[last].span.end;
                }
                // It may have been truncated, and its end is not known.
                (Kind::Open, None) if is_doubtful(text, tag, class) => {
                    split.outside.push(&text[from..tag.span.start]);
                    from = text.len();
                    break;
                }
                (Kind::Empty, _) if matches!(class, Class::Known | Class::Compound) => {
                    split.outside.push(&text[from..tag.span.start]);
                    from = tag.span.end;
                }
                // Its beginning was truncated, unless a result brings it.
                (Kind::Close, _)
                    if class == Class::Known
                        && tag.opens_line
                        && !tag.is_paired
                        && tag.span.start >= subject
                        && *results >= tag.span.start =>
                {
                    split.outside.clear();
                    from = tag.span.end;
                }
                (Kind::Open | Kind::Empty | Kind::Close, _) => {}
            }
        }
        split.outside.push(&text[from..]);
        split
    }

    fn element(&mut self, tag: &Tag<'_>, inner: &'t str, is_in_doubt: bool) {
        let name = tag.name;
        self.has_summary |= SUMMARIES.iter().any(|part| name.contains(part));
        // A person's element has no id or state attributes.
        if is_in_doubt || !tag.attributes.is_empty() {
            return;
        }
        if let Some(typed) = wrappers::queued(inner).filter(|_| name == "system-reminder") {
            self.typed(Place::Queued, typed);
        } else if is_named(Name::Typed, name) {
            self.typed(Place::Typed, inner);
        } else if is_named(Name::TypedAlone, name) {
            self.typed(Place::TypedAlone, inner);
        } else if name == ARGUMENTS {
            self.typed(Place::Arguments, inner);
        } else if name == "command-name" {
            self.command.get_or_insert(Command::Prompt);
        } else if name.starts_with("local-command-") {
            self.command = Some(Command::Local);
        }
    }

    fn typed(&mut self, place: Place, inner: &'t str) {
        let split = Self::without(inner, class, true);
        self.n_inside += 1;
        self.inside
            .extend(split.outside.into_iter().map(|text| (place, text)));
    }
}

fn is_of_clients(name: &str) -> bool {
    is_named(Name::Known, name) || is_named(Name::Typed, name) || name == ARGUMENTS
}

fn class(tag: &Tag<'_>) -> Class {
    let name = tag.name;
    if is_of_clients(name) {
        Class::Known
    } else if is_markup(tag) {
        Class::Subject
    } else if name.contains(['-', '_']) || name.bytes().all(|c| !c.is_ascii_lowercase()) {
        Class::Compound
    } else {
        Class::Word
    }
}

fn is_persons(
    text: &str,
    tags: &[Tag<'_>],
    element: RangeInclusive<usize>,
    class: Class,
    is_once: bool,
) -> bool {
    match class {
        Class::Known | Class::Compound => false,
        Class::Word => is_once && is_document(text, tags, *element.start(), *element.end()),
        Class::Subject => true,
    }
}

/// Returns whether an unclosed tag begins a wrapper: either it is a known one, or it is alone on its line.
fn is_doubtful(text: &str, tag: &Tag<'_>, class: Class) -> bool {
    let behind = || {
        let behind = text[tag.span.end..].trim_start_matches([' ', '\t', '\r']);
        looks_at(text.len() - tag.span.end - behind.len());
        behind
    };
    match class {
        Class::Known => tag.opens_line,
        Class::Compound => behind().is_empty() || behind().starts_with('\n'),
        Class::Word | Class::Subject => false,
    }
}

struct Fences {
    at: Vec<usize>,
    next: usize,
    is_open: bool,
}

// === impl Fences ===

impl Fences {
    fn find(text: &str, tags: &[Tag<'_>]) -> Self {
        let mut at = Vec::new();
        if !tags.is_empty() {
            let mut start = 0;
            looks_at(text.len());
            for line in text.split_inclusive('\n') {
                let trimmed = line.trim_start();
                if trimmed.starts_with("```") || trimmed.starts_with("~~~") {
                    at.push(start);
                }
                start += line.len();
            }
        }
        Self {
            at,
            next: 0,
            is_open: false,
        }
    }

    /// Returns whether `place` is inside a code fence: the fence begins after `from`, and ends somewhere later. Callers
    /// pass increasing places.
    fn is_code(&mut self, from: usize, place: usize) -> bool {
        while let Some(at) = self.at.get(self.next).filter(|at| **at < place) {
            if *at >= from {
                self.is_open = !self.is_open;
            }
            self.next += 1;
        }
        self.is_open && self.next < self.at.len()
    }
}
