//! Finds what the owner typed in a user message as a client sends it. No other place decides this, for any client.
//!
//! A text is the owner's if all of these conditions hold. Otherwise it belongs to nobody or to somebody else:
//!
//! - It is in a user message that names no participant and answers no tool call, as a string or in a part of type `text`
//!   or `input_text` ([`Message::utterance`](crate::Message::utterance)).
//! - It is outside all that a client wrote: OpenClaw's lines and blocks, complete texts, notes, rules and elements. If a
//!   part has an element or block twice, all from its first beginning to its last end is the client's, because the
//!   content may contain the same marks.
//! - No line before it begins like a tool's result in the words of a framework (`data/wrappers.tsv`).
//! - If an element that holds what was typed is there (`data/elements.tsv`), it is in this element, the element is the
//!   only one of them, and nothing but the client's text is beside it.
//! - It is not in the arguments of an earlier tool call ([`CallTexts`](crate::CallTexts)).
//! - It neither answers a call of a tool nor repeats an earlier result or reply
//!   ([`utterance_at`](crate::utterance_at)).
//!
//! Each part of a message is read separately, so that a mistake in one part does not affect the others. What the owner
//! quotes or pastes within such a text is found by `metaclaw-skills`, where it matters.

mod brackets;
mod elements;
mod markup;
mod openclaw;
mod speaker;
mod tables;
mod tags;
pub mod work;
mod wrappers;

use std::{borrow::Cow, collections::HashMap};

pub(crate) use self::openclaw::INTERNAL as OPENCLAW_INTERNAL;
pub use self::speaker::Speaker;
pub(crate) use self::wrappers::{calls_in_words, is_context, without_rules};
use self::{
    elements::{Command, Place, Split},
    tags::{Kind, Tag},
};
use crate::{call_texts::CallTexts, names::SenderId};

/// What was typed of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Utterance<'t> {
    /// The typed text without what a client wrote around it, trimmed. It is empty for a client's own message.
    pub text: Cow<'t, str>,
    /// Whose words they are.
    pub speaker: Speaker,
    /// The person who sent the message, where the host names her.
    pub sender: Option<SenderId>,
    /// Whether the text contains a summary of earlier messages by the client or a model. Then the conversation does not
    /// begin here.
    pub has_summary: bool,
}

#[derive(Debug)]
struct MessagePart<'t> {
    speaker: Speaker,
    sender: Option<SenderId>,
    /// Whether it had text before anything was removed.
    was_said: bool,
    pieces: Vec<(Place, Cow<'t, str>)>,
    n_inside: usize,
    command: Option<Command>,
    has_summary: bool,
}

// === impl Utterance ===

impl<'t> Utterance<'t> {
    /// Reads a user message that is one text.
    pub fn parse(text: &'t str) -> Self {
        Self::of_parts([Cow::Borrowed(text)])
    }

    /// Reads a user message from the texts of its parts.
    pub fn of_parts(parts: impl IntoIterator<Item = Cow<'t, str>>) -> Self {
        let parts: Vec<MessagePart<'t>> = read(parts.into_iter().collect());
        let mut speaker =
            parts
                .iter()
                .fold(Speaker::Owner, |all, part| match (all, part.speaker) {
                    (Speaker::Forwarded, _) | (_, Speaker::Forwarded) => Speaker::Forwarded,
                    (Speaker::Group, _) | (_, Speaker::Group) => Speaker::Group,
                    (Speaker::Owner | Speaker::Client, Speaker::Owner | Speaker::Client) => {
                        Speaker::Owner
                    }
                });
        let typed = typed(&parts);
        let is_in_doubt = typed.is_none();
        let mut text = unquoted(typed.unwrap_or_default());
        if text.is_empty() && parts.iter().any(|part| part.was_said) {
            // What a tool found may need an answer too.
            let is_there =
                |place| place == Place::Results || place == Place::Outside && is_in_doubt;
            text = joined(pieces_in(&parts, is_there));
            speaker = if text.is_empty() {
                Speaker::Client
            } else {
                Speaker::Forwarded
            };
        }
        let has_summary = parts.iter().any(|part| part.has_summary);
        let sender = parts.into_iter().find_map(|part| part.sender);
        Self {
            text,
            speaker,
            sender,
            has_summary,
        }
    }

    /// Reads the text of an agent's internal request, which may contain a whole conversation with its owner's words.
    /// Only text that no owner ever typed is removed.
    pub fn in_errand(text: &str) -> String {
        Split::known(text).outside.concat()
    }

    /// Makes the utterance of somebody who is not the owner.
    pub fn of_another(text: Cow<'t, str>) -> Self {
        Self {
            text: trimmed(text),
            speaker: Speaker::Forwarded,
            sender: None,
            has_summary: false,
        }
    }

    /// Removes text that also occurs in the arguments of the model's earlier tool calls. `calls` is evaluated only if
    /// it can matter.
    #[must_use]
    pub fn without_calls(self, calls: impl FnOnce() -> CallTexts) -> Self {
        if self.speaker != Speaker::Owner || !CallTexts::may_have(&self.text) {
            return self;
        }
        self.without(&calls())
    }

    #[must_use]
    pub(crate) fn without(self, calls: &CallTexts) -> Self {
        if self.speaker != Speaker::Owner || !CallTexts::may_have(&self.text) {
            return self;
        }
        let text = match self.text {
            Cow::Borrowed(text) => calls.strip(text),
            Cow::Owned(text) => Cow::Owned(calls.strip(&text).into_owned()),
        };
        let speaker = if text.is_empty() {
            Speaker::Client
        } else {
            self.speaker
        };
        Self {
            text,
            speaker,
            ..self
        }
    }

    /// Removes what OpenClaw writes around a text: the time, the context, and the line about itself. The author of the
    /// text may be anybody.
    pub fn undecorated(text: &'t str) -> Cow<'t, str> {
        openclaw::undecorated(text).text
    }

    /// Returns whether the owner typed it.
    pub fn is_owners(&self) -> bool {
        self.speaker == Speaker::Owner
    }
}

/// Reads parts one by one, except for parts that an earlier one declares as the client's.
fn read(parts: Vec<Cow<'_, str>>) -> Vec<MessagePart<'_>> {
    let last_end = parts.iter().rposition(|part| brackets::closes_block(part));
    let mut last_close: HashMap<String, usize> = HashMap::new();
    for (at, part) in parts.iter().enumerate() {
        if let Some(tag) = Tag::alone(part).filter(|tag| tag.kind == Kind::Close) {
            last_close.insert(tag.name.to_owned(), at);
        }
    }
    // The last part of what earlier parts opened.
    let (mut end, mut is_call) = (None, false);
    let read = parts.into_iter().enumerate().map(|(at, part)| {
        let was_call = std::mem::replace(&mut is_call, wrappers::is_call(&part));
        let close = || last_close.get(Tag::alone(&part).filter(|tag| tag.kind == Kind::Open)?.name);
        let opened = if brackets::opens_block(&part) {
            last_end
        } else {
            close().copied()
        };
        end = end.max(opened.filter(|last| at < *last));
        match part {
            _ if was_call || end.is_some_and(|end| at <= end) => MessagePart::clients(),
            Cow::Borrowed(text) => MessagePart::read(text),
            Cow::Owned(text) => MessagePart::read(&text).into_owned(),
        }
    });
    read.collect()
}

/// Joins what was typed in all parts, or returns `None` if it is in doubt.
fn typed<'t>(parts: &[MessagePart<'t>]) -> Option<Cow<'t, str>> {
    let has = |place| parts.iter().any(|part| part.has(place));
    let n_inside: usize = parts.iter().map(|part| part.n_inside).sum();
    let is_alone = || n_inside == 1 && !parts.iter().any(MessagePart::has_outside);
    let is_framed = || {
        let mut outside = parts.iter().flat_map(|part| &part.pieces);
        n_inside == 1 && outside.all(|(place, text)| place.is_inside() || wrappers::is_frame(text))
    };
    // If the client executes a command itself, the command's output is beside it. Otherwise, the text that the command
    // stands for is in the following parts. The command comes first, with nothing beside it.
    let commands = || parts.iter().filter_map(|part| part.command);
    let first = parts.iter().position(|part| part.command.is_some());
    let is_first = first.is_some_and(|at| !parts[..=at].iter().any(MessagePart::has_outside));
    let is_prompt = is_first && commands().all(|command| command == Command::Prompt);
    let place = if has(Place::Typed) {
        if !is_alone() {
            return None;
        }
        Place::Typed
    } else if is_prompt {
        if n_inside != 1 || first.is_none_or(|at| !parts[at].has(Place::Arguments)) {
            return Some(Cow::default());
        }
        Place::Arguments
    } else if has(Place::TypedAlone) && is_framed() {
        Place::TypedAlone
    } else {
        Place::Outside
    };
    Some(joined(pieces_in(parts, |of| of == place)))
}

fn pieces_in<'t>(
    parts: &[MessagePart<'t>],
    is_there: impl Fn(Place) -> bool,
) -> impl Iterator<Item = Cow<'t, str>> {
    let pieces = parts.iter().flat_map(|part| &part.pieces);
    let there = pieces.filter(move |piece| is_there(piece.0));
    there.map(|piece| piece.1.clone())
}

fn joined<'t>(texts: impl Iterator<Item = Cow<'t, str>>) -> Cow<'t, str> {
    let pieces = texts.map(trimmed).filter(|text| !text.is_empty());
    let mut said: Vec<Cow<'t, str>> = pieces.collect();
    match said.len() {
        0 | 1 => said.pop().unwrap_or_default(),
        _ => Cow::Owned(said.join("\n")),
    }
}

fn trimmed(text: Cow<'_, str>) -> Cow<'_, str> {
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.trim()),
        Cow::Owned(text) if text.trim().len() == text.len() => Cow::Owned(text),
        Cow::Owned(text) => Cow::Owned(text.trim().to_owned()),
    }
}

/// Removes quotation marks around a whole message. It was typed like that, or a shell's wrapper quoted it.
fn unquoted(text: Cow<'_, str>) -> Cow<'_, str> {
    const MARKS: [&str; 8] = ["„“", "«»", "\"\"", "''", "“”", "‘’", "「」", "『』"];
    let inner = MARKS.iter().find_map(|marks| {
        let behind = text.strip_prefix(marks.chars().next()?)?;
        let inner = behind.strip_suffix(marks.chars().next_back()?)?;
        // A mark inside may be escaped, or be an apostrophe.
        let mut before = None;
        let is_one = inner.chars().all(|c| {
            let is_apostrophe =
                matches!(c, '\'' | '’') && before.is_some_and(char::is_alphanumeric);
            let is_mark = marks.contains(c) && before != Some('\\');
            before = Some(c);
            !is_mark || is_apostrophe
        });
        (is_one && !inner.trim().is_empty()).then_some(inner)
    });
    match inner {
        Some(inner) => Cow::Owned(inner.replace("\\\"", "\"").trim().to_owned()),
        None => text,
    }
}

// === impl Part ===

impl<'t> MessagePart<'t> {
    fn read(text: &'t str) -> Self {
        let was_said = !text.trim().is_empty();
        // The rest of such a text may contain any mark of a client.
        if wrappers::is_by_itself(text) {
            return Self {
                has_summary: wrappers::is_summary(text),
                ..Self::clients()
            };
        }
        if wrappers::is_result(text) {
            return Self {
                pieces: vec![(Place::Results, Cow::Borrowed(text))],
                ..Self::clients()
            };
        }
        let openclaw::Undecorated {
            text,
            speaker,
            sender,
        } = openclaw::read(wrappers::without_language(text));
        let part = match text {
            Cow::Borrowed(text) => Self::without_wrappers(text),
            Cow::Owned(text) => MessagePart::without_wrappers(&text).into_owned(),
        };
        Self {
            speaker,
            sender,
            was_said,
            ..part
        }
    }

    fn without_wrappers(text: &'t str) -> Self {
        let mut part = Self {
            has_summary: wrappers::is_summary(text),
            ..Self::clients()
        };
        if wrappers::is_by_itself(text) {
            return part;
        }
        match brackets::without_brackets(wrappers::trim(text)) {
            Cow::Borrowed(text) => part.take_apart(text),
            Cow::Owned(text) => {
                let mut owned = part.into_owned();
                owned.take_apart(&text);
                return owned.into_owned();
            }
        }
        part
    }

    fn take_apart(&mut self, text: &'t str) {
        let split = Split::at_elements(text);
        let outside = wrappers::without_headings(match split.outside.as_slice() {
            [one] => Cow::Borrowed(*one),
            many => Cow::Owned(many.concat()),
        });
        self.has_summary |= split.has_summary || wrappers::is_summary(&outside);
        self.command = split.command;
        self.n_inside = split.n_inside;
        let is_blank = outside.trim().is_empty();
        if !wrappers::is_by_itself(&outside) {
            let results = wrappers::results_begin(&outside).unwrap_or(outside.len());
            let (own, results) = split_at(outside, results);
            self.pieces.push((Place::Outside, own));
            self.pieces.push((Place::Results, results));
        }
        for (place, text) in split.inside {
            let place = match place {
                Place::Queued if is_blank => Place::Outside,
                place => place,
            };
            self.pieces.push((place, Cow::Borrowed(text)));
        }
    }

    fn has(&self, place: Place) -> bool {
        self.pieces.iter().any(|piece| piece.0 == place)
    }

    fn has_outside(&self) -> bool {
        let mut outside = self.pieces.iter().filter(|piece| !piece.0.is_inside());
        outside.any(|piece| !piece.1.trim().is_empty())
    }

    fn clients() -> Self {
        Self {
            speaker: Speaker::Owner,
            sender: None,
            was_said: true,
            pieces: Vec::new(),
            n_inside: 0,
            command: None,
            has_summary: false,
        }
    }

    fn into_owned<'o>(self) -> MessagePart<'o> {
        let own = |(place, text): (Place, Cow<'t, str>)| (place, Cow::Owned(text.into_owned()));
        MessagePart {
            speaker: self.speaker,
            sender: self.sender,
            was_said: self.was_said,
            pieces: self.pieces.into_iter().map(own).collect(),
            n_inside: self.n_inside,
            command: self.command,
            has_summary: self.has_summary,
        }
    }
}

fn split_at(text: Cow<'_, str>, at: usize) -> (Cow<'_, str>, Cow<'_, str>) {
    match text {
        Cow::Borrowed(text) => {
            let (before, behind) = text.split_at(at);
            (Cow::Borrowed(before), Cow::Borrowed(behind))
        }
        Cow::Owned(mut text) => {
            let behind = text.split_off(at);
            (Cow::Owned(text), Cow::Owned(behind))
        }
    }
}

#[cfg(test)]
mod tests;
