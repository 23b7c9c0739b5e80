//! Raw bytes in, raw bytes out: what the gateway changes in a chat request, and nothing else.
//!
//! Lessons go to the end of the system text, where they cost a prompt cache least; a configured
//! model replaces the caller's; our own fields are cut out. Every other byte stays where it was:
//! key order, numbers, escapes, spaces, fields that nobody here knows.

use bytes::Bytes;
use metaclaw_dialects::Api;
use metaclaw_turns::JsonText;

use crate::{
    pieces::Pieces,
    scan::{self, Item, Layout, Member, Span},
};

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

/// What stands between the client's text and ours, as JSON writes it.
const GAP: &str = r"\n\n";

/// What to change.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Changes<'a> {
    /// The model to ask for instead of the caller's.
    pub model: Option<&'a str>,
    /// Text for the end of the system text.
    pub system: Option<&'a Quoted>,
    /// Where that goes if the conversation has no system message.
    pub absent: Absent,
    /// Text for the end of each of the owner's messages.
    pub user_line: Option<&'a Quoted>,
    /// Fields to set, with their values as JSON.
    pub fields: &'a [(&'a str, &'a str)],
}

/// A text as a JSON string, with its quotes: what a session is given is written once, and said with
/// each of its requests.
#[derive(Debug, Clone)]
pub(crate) struct Quoted(pub JsonText);

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
/// `owners` has, for each element of the conversation, whether the owner wrote it. What stays is not
/// copied.
pub(crate) fn splice(
    api: Api,
    raw: &Bytes,
    layout: &Layout,
    owners: &[bool],
    changes: Changes<'_>,
) -> Pieces {
    apply(raw, edits(api, raw, layout, owners, changes))
}

fn edits(
    api: Api,
    raw: &[u8],
    layout: &Layout,
    owners: &[bool],
    changes: Changes<'_>,
) -> Vec<Edit> {
    let mut edits = cuts(&layout.members);
    let mut fields = Vec::new();
    if let Some(model) = changes.model {
        match layout.member("model") {
            Some(member) => edits.push(Edit::replace(
                &member.value,
                Quoted::of(model).as_str().to_owned(),
            )),
            None => fields.push(field("model", &Quoted::of(model))),
        }
    }
    for (key, value) in changes.fields {
        match layout.member(key) {
            Some(member) if raw[member.value.clone()] == *value.as_bytes() => {}
            Some(member) => edits.push(Edit::replace(&member.value, (*value).to_owned())),
            None => fields.push(format!("\"{key}\":{value}")),
        }
    }
    if let Some(text) = changes.system {
        match (system(api, raw, layout), changes.absent) {
            (Some(place), _) => edits.extend(append(api, raw, place, text)),
            (None, Absent::Field) => fields.push(field(APPEND_FIELD, text)),
            (None, Absent::Insert) => match api {
                Api::Chat => edits.extend(first_message(layout, text)),
                Api::Messages => fields.push(field("system", text)),
                Api::Responses => fields.push(field("instructions", text)),
            },
        }
    }
    if let Some(line) = changes.user_line {
        let theirs = said(layout)
            .zip(owners)
            .filter(|(_, is_owners)| **is_owners);
        edits.extend(theirs.filter_map(|(place, _)| append(api, raw, place, line)));
    }
    edits.extend(new_fields(layout, &fields));
    edits
}

/// Where a text can be added to.
#[derive(Debug, Clone, Copy)]
enum Place<'a> {
    /// A value of the request: a string, a list of parts, or null.
    Value(&'a Span),
    /// An element of the conversation.
    Item(&'a Item),
}

/// Where the system text of a request ends: beside the conversation where the API has it there, else
/// in the last of the system messages that open it.
fn system<'a>(api: Api, raw: &[u8], layout: &'a Layout) -> Option<Place<'a>> {
    let value = |key| layout.member(key).map(|member| &member.value);
    let beside = match api {
        Api::Chat => None,
        Api::Messages => value("system"),
        Api::Responses => value("instructions"),
    };
    let opening = match api {
        Api::Messages => None,
        Api::Chat | Api::Responses => layout
            .each()
            .iter()
            .take_while(|item| is_system(raw, item))
            .last(),
    };
    let is_null = |span: &&Span| raw.get(span.start) == Some(&b'n');
    let place = beside.filter(|span| !is_null(span)).map(Place::Value);
    place
        .or_else(|| opening.map(Place::Item))
        .or_else(|| beside.map(Place::Value))
}

fn is_system(raw: &[u8], item: &Item) -> bool {
    let role = item.role.as_ref();
    scan::says(raw, role, "system") || scan::says(raw, role, "developer")
}

/// The elements of the conversation; a conversation that is one text is one element.
fn said(layout: &Layout) -> impl Iterator<Item = Place<'_>> {
    let input = layout.items.is_none().then(|| layout.member("input"));
    let input = input.flatten().map(|member| Place::Value(&member.value));
    layout.each().iter().map(Place::Item).chain(input)
}

/// Adds `text` to the end of what stands at `place`, by its shape. What has no known shape is the
/// upstream's to refuse.
fn append(api: Api, raw: &[u8], place: Place<'_>, text: &Quoted) -> Option<Edit> {
    let quoted = text.as_str();
    let (value, kind) = match (place, api) {
        (Place::Value(value), _) => (value, "text"),
        (Place::Item(item), api) => {
            let Some(content) = &item.content else {
                // The element is an object, or it would have no role: its last byte is the brace.
                let member = format!(",\"content\":{quoted}");
                return Some(Edit::insert(item.whole.end - 1, member));
            };
            let kind = match api {
                Api::Chat | Api::Messages => "text",
                Api::Responses => "input_text",
            };
            (content, kind)
        }
    };
    let last = value.end - 1;
    match raw[value.start] {
        b'"' if value.len() == 2 => Some(Edit::replace(value, quoted.to_owned())),
        b'"' => Some(Edit::insert(last, [GAP, text.inside()].concat())),
        b'[' => {
            let mut between = raw[value.start + 1..last].iter();
            let comma = if between.all(u8::is_ascii_whitespace) {
                ""
            } else {
                ","
            };
            let part = format!("{comma}{{\"type\":\"{kind}\",\"text\":{quoted}}}");
            Some(Edit::insert(last, part))
        }
        b'n' => Some(Edit::replace(value, quoted.to_owned())),
        _ => None,
    }
}

fn first_message(layout: &Layout, text: &Quoted) -> Option<Edit> {
    let items = layout.items.as_ref()?;
    let comma = if items.each.is_empty() { "" } else { "," };
    let message = format!(
        "{{\"role\":\"system\",\"content\":{}}}{comma}",
        text.as_str()
    );
    Some(Edit::insert(items.whole.start + 1, message))
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

fn field(key: &str, text: &Quoted) -> String {
    format!("\"{key}\":{}", text.as_str())
}

fn apply(raw: &Bytes, mut edits: Vec<Edit>) -> Pieces {
    edits.sort_by_key(|edit| (edit.span.start, edit.span.end));
    let mut out = Pieces::default();
    let mut done = 0;
    for edit in edits {
        out.push(raw.slice(done..edit.span.start));
        out.push(edit.with.into());
        done = edit.span.end;
    }
    out.push(raw.slice(done..));
    out
}

// === impl Quoted ===

impl Quoted {
    pub(crate) fn of(text: &str) -> Self {
        Self(JsonText::of_str(text))
    }

    fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// The text escaped, without quotes: for the inside of a string that is there already.
    fn inside(&self) -> &str {
        let quoted = self.as_str();
        &quoted[1..quoted.len() - 1]
    }
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
