//! Reads a message's content from its JSON text when a caller needs it.

use std::borrow::Cow;

use metaclaw_chat::{TYPED_PARTS, Utterance};
use serde_json::value::RawValue;

use super::walk::ByteSpan;
use crate::{
    fields::{JsonFields, elements},
    json,
};

const MEDIA: [&str; 9] = [
    "image_url",
    "input_image",
    "image",
    "input_audio",
    "audio",
    "video_url",
    "file",
    "input_file",
    "document",
];

/// For the owner's words, any reminder of Claude Code is equivalent to this short one.
const REMINDER: &str = "<system-reminder></system-reminder>";
const REMINDER_OPEN: &str = "<system-reminder>";
const REMINDER_CLOSE: &str = "</system-reminder>";
/// A reminder with this beginning may contain the owner's words.
const QUEUED: &str = "The user sent a new message";

#[derive(Debug, Clone)]
pub(super) struct Content {
    pub span: ByteSpan,
    /// Whether it contains tool results of Anthropic's API, which are separate messages.
    pub has_results: bool,
    /// Whether its message names somebody else, or answers a tool call.
    pub is_of_another: bool,
}

// === impl Content ===

impl Content {
    pub(super) fn new(span: ByteSpan) -> Self {
        Self {
            span,
            has_results: false,
            is_of_another: false,
        }
    }

    /// Returns the text, or the texts of the parts joined by newlines. `json` is the content's own text.
    pub(super) fn text<'a>(&self, json: &'a str) -> Cow<'a, str> {
        let mut texts = self.texts(json).into_iter().filter_map(json::string);
        let mut all = texts.next().unwrap_or_default();
        for text in texts {
            let all = all.to_mut();
            all.push('\n');
            all.push_str(&text);
        }
        all
    }

    pub(super) fn utterance<'a>(&self, json: &'a str) -> Utterance<'a> {
        if self.is_of_another {
            return Utterance::of_another(self.text(json));
        }
        let texts = self.texts_of(json, is_typed).into_iter();
        Utterance::of_parts(texts.filter_map(|text| {
            if is_reminder(text) {
                return Some(Cow::Borrowed(REMINDER));
            }
            json::string(text)
        }))
    }

    pub(super) fn head<'a>(&self, json: &'a str, limit: usize) -> Cow<'a, str> {
        let mut texts = self.texts(json).into_iter();
        let head = |text| json::string_head(text, limit).unwrap_or_default();
        let mut all = texts.next().map(head).unwrap_or_default();
        while all.len() < limit
            && let Some(text) = texts.next()
        {
            let all = all.to_mut();
            all.push('\n');
            all.push_str(&head(text));
            all.truncate(json::char_end(all, limit));
        }
        all
    }

    pub(super) fn heads<'a>(&self, json: &'a str, limit: usize) -> Vec<Cow<'a, str>> {
        let texts = self.texts(json).into_iter();
        texts
            .filter_map(|text| json::string_head(text, limit))
            .collect()
    }

    pub(super) fn has_media(&self, json: &str) -> bool {
        let is_media = |part: &RawValue| {
            let kind = JsonFields::parse(part.get())?.text("type")?;
            Some(MEDIA.contains(&&*kind))
        };
        let mut parts = self.parts(json).into_iter();
        parts.any(|part| is_media(part) == Some(true))
    }

    fn texts<'a>(&self, json: &'a str) -> Vec<&'a str> {
        self.texts_of(json, |_| true)
    }

    fn texts_of<'a>(&self, json: &'a str, is_one: fn(&JsonFields<'_>) -> bool) -> Vec<&'a str> {
        if json.starts_with('"') {
            return vec![json];
        }
        let parts = self.parts(json).into_iter();
        parts.filter_map(|part| part_text(part, is_one)).collect()
    }

    fn parts<'a>(&self, json: &'a str) -> Vec<&'a RawValue> {
        if !json.starts_with('[') {
            return Vec::new();
        }
        let mut parts = elements(json);
        if self.has_results {
            parts.retain(|part| !is_result(part));
        }
        parts
    }
}

pub(super) fn is_result(part: &RawValue) -> bool {
    let fields = JsonFields::parse(part.get());
    fields.is_some_and(|part| part.text("type").as_deref() == Some("tool_result"))
}

/// Returns whether a text is one complete reminder, without reading it, because Claude Code's first message has 60 KB
/// of them.
fn is_reminder(quoted: &str) -> bool {
    let text = quoted.trim_matches('"').trim_end_matches("\\n");
    let n_of = |mark: &str| memchr::memmem::find_iter(quoted.as_bytes(), mark).count();
    text.starts_with(REMINDER_OPEN)
        && text.ends_with(REMINDER_CLOSE)
        && (n_of(REMINDER_OPEN), n_of(REMINDER_CLOSE)) == (1, 1)
        && n_of(QUEUED) == 0
}

fn is_typed(part: &JsonFields<'_>) -> bool {
    let kind = part.text("type");
    kind.is_some_and(|kind| TYPED_PARTS.contains(&&*kind))
}

fn part_text(part: &RawValue, is_one: fn(&JsonFields<'_>) -> bool) -> Option<&str> {
    let text = match JsonFields::parse(part.get()) {
        Some(fields) => fields.get("text").filter(|_| is_one(&fields))?.get(),
        None => part.get(),
    };
    text.starts_with('"').then_some(text)
}
