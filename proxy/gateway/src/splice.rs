//! Raw bytes in, raw bytes out: what the gateway changes in a chat request, and nothing else.
//!
//! Lessons go to the end of the system text, where they cost a prompt cache least; a configured
//! model replaces the caller's; our own fields are cut out. Every other byte stays where it was:
//! key order, numbers, escapes, spaces, fields that nobody here knows.

use bytes::Bytes;
use serde_json::Value;

use crate::scan::{Layout, Member, MessageSpan, Messages, Span};

/// Fields of a request that are addressed to us; no upstream sees them.
pub(crate) const OWN_FIELDS: [&str; 6] = [
    "session_id",
    "session_done",
    "turn_type",
    "memory_scope",
    "user_id",
    "workspace_id",
];

/// The field by which our own trainer takes lessons when the conversation has no system message, so
/// that the chat template's own default system text stands in front of them.
pub(crate) const APPEND_FIELD: &str = "metaclaw_system_append";

/// What stands between the client's text and ours.
const GAP: &str = "\n\n";

/// What to change.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Changes<'a> {
    /// The model to ask for instead of the caller's.
    pub model: Option<&'a str>,
    /// Text for the end of the system text.
    pub system: Option<&'a str>,
    /// Where that goes if the conversation has no system message.
    pub absent: Absent,
    /// Text for the end of each of the owner's messages.
    pub user_line: Option<&'a str>,
}

/// What to do where there is no system message to append to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Absent {
    /// Put one in front of the conversation.
    #[default]
    Insert,
    /// Say it in [`APPEND_FIELD`].
    Field,
}

/// One replacement. Those of one request never overlap.
#[derive(Debug)]
struct Edit {
    span: Span,
    with: Vec<u8>,
}

/// Applies `changes` to a request that was laid out by [`crate::scan::scan`].
///
/// `owners` has, for each message, whether the owner wrote it. Without anything to change the same
/// bytes come back, uncopied.
pub(crate) fn splice(raw: &Bytes, layout: &Layout, owners: &[bool], changes: Changes<'_>) -> Bytes {
    let mut edits = cuts(&layout.members);
    let mut fields = Vec::new();
    if let Some(model) = changes.model {
        match layout.member("model") {
            Some(member) => edits.push(Edit::replace(&member.value, quoted(model))),
            None => fields.push(field("model", model)),
        }
    }
    if let (Some(text), Some(messages)) = (changes.system, &layout.messages) {
        match leading_system(raw, messages) {
            Some(message) => edits.extend(append(raw, message, text)),
            None if changes.absent == Absent::Field => fields.push(field(APPEND_FIELD, text)),
            None => edits.push(first_message(messages, text)),
        }
    }
    if let (Some(line), Some(messages)) = (changes.user_line, &layout.messages) {
        let theirs = messages
            .each
            .iter()
            .zip(owners)
            .filter(|(_, is_owners)| **is_owners);
        edits.extend(theirs.filter_map(|(message, _)| append(raw, message, line)));
    }
    edits.extend(new_fields(layout, &fields));
    apply(raw, edits)
}

/// The system message that lessons are appended to: the last of those that open the conversation.
fn leading_system<'a>(raw: &[u8], messages: &'a Messages) -> Option<&'a MessageSpan> {
    let is_system = |message: &&MessageSpan| {
        let role = message.role.as_ref().map(|span| &raw[span.clone()]);
        let role = role.and_then(|role| serde_json::from_slice::<String>(role).ok());
        matches!(role.as_deref(), Some("system" | "developer"))
    };
    messages.each.iter().take_while(is_system).last()
}

/// Adds `text` to the end of a message, by the shape of its content. Content of no known shape is
/// the upstream's to refuse.
fn append(raw: &[u8], message: &MessageSpan, text: &str) -> Option<Edit> {
    let Some(content) = &message.content else {
        // The element is an object, or it would have no role: its last byte is the brace.
        let member = format!(",\"content\":{}", json(text));
        return Some(Edit::insert(message.whole.end - 1, member));
    };
    let last = content.end - 1;
    match raw[content.start] {
        b'"' if content.len() == 2 => Some(Edit::replace(content, quoted(text))),
        b'"' => Some(Edit::insert(last, inside(&format!("{GAP}{text}")))),
        b'[' => {
            let is_empty = raw[content.start + 1..last]
                .iter()
                .all(u8::is_ascii_whitespace);
            let comma = if is_empty { "" } else { "," };
            let part = format!("{comma}{{\"type\":\"text\",\"text\":{}}}", json(text));
            Some(Edit::insert(last, part))
        }
        b'n' => Some(Edit::replace(content, quoted(text))),
        _ => None,
    }
}

fn first_message(messages: &Messages, text: &str) -> Edit {
    let comma = if messages.each.is_empty() { "" } else { "," };
    let message = format!("{{\"role\":\"system\",\"content\":{}}}{comma}", json(text));
    Edit::insert(messages.whole.start + 1, message)
}

/// Cuts our own fields out, each with one of the commas beside it.
fn cuts(members: &[Member]) -> Vec<Edit> {
    let is_ours = |member: &Member| OWN_FIELDS.contains(&member.key.as_str());
    let mut cuts = Vec::new();
    let mut at = 0;
    while at < members.len() {
        let n_ours = members[at..]
            .iter()
            .take_while(|member| is_ours(member))
            .count();
        let run = at..at + n_ours;
        at += n_ours.max(1);
        let Some(last) = members[run.clone()].last() else {
            continue;
        };
        let span = match (members.get(run.end), run.start.checked_sub(1)) {
            (Some(next), _) => members[run.start].whole.start..next.whole.start,
            (None, Some(before)) => members[before].whole.end..last.whole.end,
            (None, None) => members[run.start].whole.start..last.whole.end,
        };
        cuts.push(Edit::replace(&span, String::new()));
    }
    cuts
}

/// Puts new fields in front of all others; a comma follows if any other stays.
fn new_fields(layout: &Layout, fields: &[String]) -> Option<Edit> {
    if fields.is_empty() {
        return None;
    }
    let stays = |member: &Member| !OWN_FIELDS.contains(&member.key.as_str());
    let comma = if layout.members.iter().any(stays) {
        ","
    } else {
        ""
    };
    Some(Edit::insert(layout.open, fields.join(",") + comma))
}

fn field(key: &str, text: &str) -> String {
    format!("{}:{}", json(key), json(text))
}

fn json(text: &str) -> Value {
    Value::from(text)
}

fn quoted(text: &str) -> String {
    json(text).to_string()
}

/// The text escaped, without quotes: for the inside of a string that is there already.
fn inside(text: &str) -> String {
    let quoted = quoted(text);
    quoted[1..quoted.len() - 1].to_owned()
}

fn apply(raw: &Bytes, mut edits: Vec<Edit>) -> Bytes {
    if edits.is_empty() {
        return raw.clone();
    }
    edits.sort_by_key(|edit| (edit.span.start, edit.span.end));
    let added: usize = edits.iter().map(|edit| edit.with.len()).sum();
    let mut out = Vec::with_capacity(raw.len() + added);
    let mut copied = 0;
    for edit in edits {
        out.extend_from_slice(&raw[copied..edit.span.start]);
        out.extend_from_slice(&edit.with);
        copied = edit.span.end;
    }
    out.extend_from_slice(&raw[copied..]);
    out.into()
}

// === impl Edit ===

impl Edit {
    fn replace(span: &Span, with: String) -> Self {
        Self {
            span: span.clone(),
            with: with.into_bytes(),
        }
    }

    fn insert(at: usize, with: String) -> Self {
        Self::replace(&(at..at), with)
    }
}

#[cfg(test)]
mod tests;
