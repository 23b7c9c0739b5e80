//! What the owner typed, of a user's message as a client sends it: the one place that decides it, for every client.
//!
//! Clients write around it and beside it: reminders, the files and rules of a project, what a command printed, the
//! summary of a conversation. A message is a list of parts, and each is read for itself, so that what is wrong with one
//! ends with it:
//!
//! 1. OpenClaw's lines and blocks go, and say whose words they are;
//! 2. what a known client writes by itself, and its texts before and behind, go;
//! 3. elements of clients go, by their closing tags; where one holds what was typed, only that stays.
//!
//! What remains is the owner's, however long the rest was. What stood in a call of the model's is nobody's words too:
//! [`CallTexts`](crate::CallTexts).

mod brackets;
mod elements;
mod markup;
mod openclaw;
mod speaker;
mod tags;
mod work;
mod wrappers;

use std::borrow::Cow;

use self::elements::{Command, Place, Split};
pub(crate) use self::openclaw::INTERNAL as OPENCLAW_INTERNAL;
pub use self::speaker::Speaker;
pub(crate) use self::wrappers::{is_context, without_rules};
use crate::call_texts::CallTexts;

/// What was typed of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Utterance<'t> {
    /// Without what a client wrote around it, trimmed; nothing of a client's own message.
    pub text: Cow<'t, str>,
    /// Whose words they are.
    pub speaker: Speaker,
    /// What was said before stands in it too, summed up by the client or by a model: the conversation does not begin here.
    pub has_summary: bool,
}

/// One part of a message, read.
#[derive(Debug)]
struct Part<'t> {
    speaker: Speaker,
    /// It said something before anything was taken out.
    was_said: bool,
    pieces: Vec<(Place, Cow<'t, str>)>,
    command: Option<Command>,
    has_summary: bool,
}

// === impl Utterance ===

impl<'t> Utterance<'t> {
    /// Reads a user's message that is one text.
    pub fn parse(text: &'t str) -> Self {
        Self::of_parts([Cow::Borrowed(text)])
    }

    /// Reads a user's message by the texts of its parts.
    pub fn of_parts(parts: impl IntoIterator<Item = Cow<'t, str>>) -> Self {
        let parts: Vec<Part<'t>> = read(parts.into_iter().collect());
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
        let text = unquoted(typed(&parts));
        if text.is_empty() && parts.iter().any(|part| part.was_said) {
            speaker = Speaker::Client;
        }
        let has_summary = parts.iter().any(|part| part.has_summary);
        Self {
            text,
            speaker,
            has_summary,
        }
    }

    /// Reads the text of an agent's errand, which may have a whole conversation in it, with its owner's words: only
    /// what no owner ever typed goes.
    pub fn in_errand(text: &str) -> String {
        Split::known(text).outside.concat()
    }

    /// The same without what stood in the arguments of the model's calls before it, which are read only where they may
    /// matter.
    #[must_use]
    pub fn without_calls(self, calls: impl FnOnce() -> CallTexts) -> Self {
        if self.speaker != Speaker::Owner || !CallTexts::may_have(&self.text) {
            return self;
        }
        self.without(&calls())
    }

    /// The same without what stood in those.
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
            has_summary: self.has_summary,
        }
    }

    /// A text without the time, the context and the line about itself that OpenClaw writes around it, be it the owner's
    /// or not.
    pub fn undecorated(text: &'t str) -> Cow<'t, str> {
        openclaw::undecorated(text).0
    }

    /// Whether the owner typed it.
    pub fn is_owners(&self) -> bool {
        self.speaker == Speaker::Owner
    }
}

/// Reads parts one by one, but for those that a part before them speaks for.
fn read(parts: Vec<Cow<'_, str>>) -> Vec<Part<'_>> {
    let last_end = parts.iter().rposition(|part| brackets::closes_block(part));
    let (mut is_in_block, mut is_call) = (false, false);
    let read = parts.into_iter().enumerate().map(|(at, part)| {
        let was_in_block = is_in_block;
        let was_call = std::mem::replace(&mut is_call, wrappers::is_call(&part));
        let has_end = last_end.is_some_and(|end| at < end);
        is_in_block = has_end && brackets::opens_block(&part)
            || was_in_block && !brackets::closes_block(&part);
        match part {
            _ if was_in_block || is_in_block || was_call => Part::clients(),
            Cow::Borrowed(text) => Part::read(text),
            Cow::Owned(text) => Part::read(&text).into_owned(),
        }
    });
    read.collect()
}

/// What was typed of all parts.
fn typed<'t>(parts: &[Part<'t>]) -> Cow<'t, str> {
    let pieces = || parts.iter().flat_map(|part| &part.pieces);
    let has = |place| pieces().any(|piece| piece.0 == place);
    let is_framed = || {
        let mut outside = pieces().filter(|piece| piece.0 == Place::Outside);
        outside.all(|(_, text)| wrappers::is_frame(text))
    };
    // A command that the client carries out by itself has its output beside it; else the text that it stands for is in
    // the parts behind it.
    let mut commands = parts.iter().filter_map(|part| part.command);
    let has_prompt = commands.clone().next().is_some() && commands.all(|it| it == Command::Prompt);
    let place = if has(Place::Typed) {
        Place::Typed
    } else if has_prompt {
        Place::Arguments
    } else if has(Place::TypedAlone) && is_framed() {
        Place::TypedAlone
    } else {
        Place::Outside
    };
    joined(
        pieces()
            .filter(|piece| piece.0 == place)
            .map(|piece| piece.1.clone()),
    )
}

fn joined<'t>(texts: impl Iterator<Item = Cow<'t, str>>) -> Cow<'t, str> {
    let said = texts.map(trimmed).filter(|text| !text.is_empty());
    let mut said: Vec<Cow<'t, str>> = said.collect();
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

/// A message that is one quotation and nothing else was typed like that, or put into quotation marks by a shell's wrapper.
fn unquoted(text: Cow<'_, str>) -> Cow<'_, str> {
    const MARKS: [(char, char); 8] = [
        ('„', '“'),
        ('«', '»'),
        ('"', '"'),
        ('\'', '\''),
        ('“', '”'),
        ('‘', '’'),
        ('「', '」'),
        ('『', '』'),
    ];
    let inner = MARKS.iter().find_map(|(open, close)| {
        let inner = text.strip_prefix(*open)?.strip_suffix(*close)?;
        // A mark within may be escaped, or an apostrophe.
        let mut before = None;
        let is_one = inner.chars().all(|c| {
            let is_apostrophe =
                matches!(c, '\'' | '’') && before.is_some_and(char::is_alphanumeric);
            let is_mark = (c == *open || c == *close) && before != Some('\\');
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

impl<'t> Part<'t> {
    fn read(text: &'t str) -> Self {
        let was_said = !text.trim().is_empty();
        let (text, speaker) = openclaw::read(wrappers::without_language(text));
        let part = match text {
            Cow::Borrowed(text) => Self::without_wrappers(text),
            Cow::Owned(text) => Part::without_wrappers(&text).into_owned(),
        };
        Self {
            speaker,
            was_said,
            ..part
        }
    }

    /// What is left of a text without what clients are known to put around what was typed.
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

    /// Adds the pieces of a text by its elements.
    fn take_apart(&mut self, text: &'t str) {
        let split = Split::of(text);
        let outside = match split.outside.as_slice() {
            [one] => Cow::Borrowed(*one),
            many => Cow::Owned(many.concat()),
        };
        let outside = wrappers::without_headings(outside);
        self.has_summary |= split.has_summary || wrappers::is_summary(&outside);
        self.command = split.command;
        if !wrappers::is_by_itself(&outside) {
            self.pieces.push((Place::Outside, outside));
        }
        let inside = split.inside.into_iter();
        self.pieces
            .extend(inside.map(|(place, text)| (place, Cow::Borrowed(text))));
    }

    /// A part that is wholly a client's.
    fn clients() -> Self {
        Self {
            speaker: Speaker::Owner,
            was_said: true,
            pieces: Vec::new(),
            command: None,
            has_summary: false,
        }
    }

    fn into_owned<'o>(self) -> Part<'o> {
        let own = |(place, text): (Place, Cow<'t, str>)| (place, Cow::Owned(text.into_owned()));
        Part {
            speaker: self.speaker,
            was_said: self.was_said,
            pieces: self.pieces.into_iter().map(own).collect(),
            command: self.command,
            has_summary: self.has_summary,
        }
    }
}

#[cfg(test)]
mod tests;
