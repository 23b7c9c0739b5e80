//! Takes the elements of clients out of a text: `<system-reminder>…</system-reminder>` and its like.
//!
//! Not by a table of names alone. Clients put what nobody typed into elements at the beginning of a line, with names in
//! small letters or in capitals; pages, drawings, components and documents that a person pasted stay.

use super::{
    markup::{is_document, is_markup},
    tags::{Kind, Tag},
    work::looks_at,
    wrappers,
};

/// Names that clients are known to write, wherever in a line, even if they are not closed.
const KNOWN: [&str; 24] = [
    "system-reminder",
    "system_reminder",
    "system_notification",
    "local-command-caveat",
    "local-command-stdout",
    "local-command-stderr",
    "command-name",
    "command-message",
    "command-contents",
    "bash-input",
    "bash-stdout",
    "bash-stderr",
    "user-prompt-submit-hook",
    "session-start-hook",
    "task-notification",
    "ide_opened_file",
    "ide_selection",
    "environment_context",
    "environment_details",
    "user_instructions",
    "user_shell_command",
    "turn_aborted",
    "subagent_notification",
    "INSTRUCTIONS",
];
/// Elements that hold what was typed; whatever stands around them is the client's.
const TYPED: [&str; 7] = [
    "user_message",
    "user_query",
    "user-prompt",
    "user_prompt",
    "user-query",
    "user_input",
    "user_request",
];
/// Elements that hold what was typed where the client writes nothing but elements around them: a person may also paste a
/// prompt that has one.
const TYPED_ALONE: [&str; 3] = ["task", "feedback", "answer"];
/// Names of elements that sum up what was said before have one of these in them.
const SUMMARIES: [&str; 2] = ["summary", "snapshot"];
/// What was typed behind a command.
const ARGUMENTS: &str = "command-args";

/// Where a piece of a text stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// Outside of all elements of clients.
    Outside,
    /// In one of [`TYPED`].
    Typed,
    /// In one of [`TYPED_ALONE`].
    TypedAlone,
    /// In [`ARGUMENTS`].
    Arguments,
}

/// What becomes of a command that was typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Command {
    /// A prompt takes its place, as of `/review`.
    Prompt,
    /// The client carried it out by itself, as `/clear`.
    Local,
}

/// A text, taken apart.
#[derive(Debug, Default)]
pub(super) struct Split<'t> {
    /// What stands outside of all elements of clients.
    pub outside: Vec<&'t str>,
    /// What stands in elements that hold what was typed.
    pub inside: Vec<(Place, &'t str)>,
    pub command: Option<Command>,
    /// An element sums up what was said before.
    pub has_summary: bool,
}

/// What a tag is to us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    /// A client's, wherever it stands.
    Known,
    /// A client's at the beginning of a line: a name of several words, or in capitals.
    Compound,
    /// A client's at the beginning of a line, if it is closed and no document.
    Word,
    Subject,
}

// === impl Split ===

impl<'t> Split<'t> {
    /// Takes out all elements of clients.
    pub(super) fn of(text: &'t str) -> Self {
        Self::without(text, class, false)
    }

    /// Takes out those alone that clients are known to write.
    pub(super) fn known(text: &'t str) -> Self {
        let class = |tag: &Tag<'_>| {
            if KNOWN.contains(&tag.name) {
                Class::Known
            } else {
                Class::Subject
            }
        };
        Self::without(text, class, false)
    }

    fn without(text: &'t str, class: impl Fn(&Tag<'_>) -> Class, is_inner: bool) -> Self {
        let tags = Tag::all(text, is_of_clients);
        let mut fences = Fences::of(text, &tags);
        let mut split = Self::default();
        // What begins here is not taken apart yet; general rules hold from `subject` on.
        let (mut from, mut subject) = (0, 0);
        for (index, tag) in tags.iter().enumerate() {
            if tag.span.start < from {
                continue;
            }
            let class = class(tag);
            let is_subject = class != Class::Known
                && (!tag.opens_line
                    || tag.span.start < subject
                    || fences.is_code(from, tag.span.start));
            if is_subject {
                continue;
            }
            match (tag.kind, tag.close) {
                (Kind::Open, Some(close)) if is_persons(text, &tags, index, close, class) => {
                    subject = tags[close].span.end;
                }
                (Kind::Open, Some(close)) => {
                    split.outside.push(&text[from..tag.span.start]);
                    let inner = &text[tag.span.end..tags[close].span.start];
                    split.element(tag, inner, is_inner);
                    from = tags[close].end;
                }
                // It may have been cut, and nobody knows where it ends.
                (Kind::Open, None) if is_doubtful(text, tag, class) => {
                    split.outside.push(&text[from..tag.span.start]);
                    from = text.len();
                    break;
                }
                (Kind::Empty, _) if matches!(class, Class::Known | Class::Compound) => {
                    split.outside.push(&text[from..tag.span.start]);
                    from = tag.span.end;
                }
                // Its beginning was cut.
                (Kind::Close, _) if class == Class::Known && tag.opens_line && !tag.is_paired => {
                    split.outside.clear();
                    from = tag.span.end;
                }
                (Kind::Open | Kind::Empty | Kind::Close, _) => {}
            }
        }
        split.outside.push(&text[from..]);
        split
    }

    fn element(&mut self, tag: &Tag<'_>, inner: &'t str, is_inner: bool) {
        let name = tag.name;
        self.has_summary |= SUMMARIES.iter().any(|it| name.contains(it));
        // What brings its id or its state along is no person's.
        if is_inner || !tag.attributes.is_empty() {
            return;
        }
        if let Some(typed) = wrappers::queued(inner).filter(|_| name == "system-reminder") {
            self.typed(Place::Outside, typed);
        } else if TYPED.contains(&name) {
            self.typed(Place::Typed, inner);
        } else if TYPED_ALONE.contains(&name) {
            self.typed(Place::TypedAlone, inner);
        } else if name == ARGUMENTS {
            self.typed(Place::Arguments, inner);
        } else if name == "command-name" {
            self.command.get_or_insert(Command::Prompt);
        } else if name.starts_with("local-command-") {
            self.command = Some(Command::Local);
        }
    }

    /// What was typed within an element, without elements of clients that stand in it too.
    fn typed(&mut self, place: Place, inner: &'t str) {
        let split = Self::without(inner, class, true);
        self.inside
            .extend(split.outside.into_iter().map(|text| (place, text)));
    }
}

fn is_of_clients(name: &str) -> bool {
    KNOWN.contains(&name) || TYPED.contains(&name) || name == ARGUMENTS
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

fn is_persons(text: &str, tags: &[Tag<'_>], open: usize, close: usize, class: Class) -> bool {
    match class {
        Class::Known | Class::Compound => false,
        Class::Word => is_document(text, tags, open, close),
        Class::Subject => true,
    }
}

/// Whether a tag that is not closed begins a wrapper all the same: one that we know, or that has its line to itself.
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

/// The lines that begin or end code.
struct Fences {
    at: Vec<usize>,
    next: usize,
    is_open: bool,
}

// === impl Fences ===

impl Fences {
    fn of(text: &str, tags: &[Tag<'_>]) -> Self {
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

    /// Whether code stands at `place`: it begins after `from`, and ends somewhere behind. Places only grow.
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
