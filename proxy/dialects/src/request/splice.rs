//! Changes a chat request on its way upstream, and nothing else in it.
//!
//! Lessons are added at the end of the system prompt, where they affect a prompt cache least. A configured model
//! replaces the caller's. The proxy's own fields are removed, and so are those that it shares with providers if the
//! upstream would refuse them. Every other byte stays the same.

use std::{collections::BTreeMap, ops::Range};

use bytes::Bytes;
use metaclaw_chat::{Role, SenderId, Speaker};

use super::{
    chat::ChatRequest,
    content::Content,
    conversation::ConversationItem,
    layout::{Layout, Member},
    walk::ByteSpan,
};
use crate::api::Api;

/// Fields of a request that are only for the proxy. No upstream sees them.
pub const OWN_FIELDS: [&str; 4] = ["session_done", "turn_type", "memory_scope", "workspace_id"];
/// Fields that both the proxy and providers read: OpenRouter keeps a `session_id` at one provider, DeepSeek and Z.ai
/// distinguish users by `user_id`.
pub const SHARED_FIELDS: [&str; 2] = ["session_id", "user_id"];

/// The field in which our own trainer receives lessons if the conversation has no system message, so that the chat
/// template's default system prompt comes before them.
pub const APPEND_FIELD: &str = "metaclaw_system_append";

const GAP: &str = r"\n\n";

#[derive(Debug, Clone, Copy, Default)]
pub struct Changes<'a> {
    /// The model name that replaces the caller's.
    pub model: Option<&'a str>,
    /// Text for the end of the system prompt.
    pub system: Option<&'a str>,
    /// Where this text goes if the conversation has no system message.
    pub absent: Absent,
    /// Text for the end of each of the owner's messages.
    pub user_line: Option<&'a str>,
    /// Text for the end of each message whose sender is one of these, behind `user_line`.
    pub sender_lines: Option<&'a BTreeMap<SenderId, String>>,
    /// Fields to set, with their values as JSON.
    pub fields: &'a [(&'a str, &'a str)],
    /// Whether [`SHARED_FIELDS`] are removed too, because the upstream refuses unknown fields.
    pub cuts_shared: bool,
    /// Runs of elements of the conversation to leave out, in order, as [`super::TrimmedPrompt`] has them.
    pub dropped: &'a [Range<usize>],
}

/// What to do if there is no system message to append to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Absent {
    /// Insert one at the beginning of the conversation.
    #[default]
    Insert,
    /// Put the text into [`APPEND_FIELD`].
    Field,
}

/// One replacement. The replacements of one request never overlap.
#[derive(Debug)]
struct Edit {
    span: ByteSpan,
    with: String,
}

/// Returns the request with `changes` in pieces. Unchanged parts are not copied.
pub fn splice(request: &ChatRequest, changes: Changes<'_>) -> Vec<Bytes> {
    let raw = request.raw();
    let mut edits = edits(request, changes);
    edits.sort_by_key(|edit| (edit.span.start, edit.span.end));
    let mut pieces = Vec::with_capacity(2 * edits.len() + 1);
    let mut done = 0;
    for edit in edits {
        pieces.push(raw.slice(done..edit.span.start));
        pieces.push(edit.with.into());
        done = edit.span.end;
    }
    pieces.push(raw.slice(done..));
    pieces.retain(|piece| !piece.is_empty());
    pieces
}

fn edits(request: &ChatRequest, changes: Changes<'_>) -> Vec<Edit> {
    let (api, layout) = (request.api(), &request.layout);
    let is_cut = |member: &Member| is_cut(member, changes.cuts_shared);
    let mut edits = cuts(&layout.members, is_cut);
    let mut fields = Vec::new();
    let model = changes.model.map(quoted);
    let model = model.as_deref().map(|model| ("model", model));
    for (name, value) in model.iter().chain(changes.fields) {
        match layout.member(name) {
            Some(member) => edits.push(Edit::replace(&member.value, (*value).to_owned())),
            None => fields.push(field(name, value)),
        }
    }
    if let Some(text) = changes.system.map(quoted) {
        match (system(request), changes.absent, api) {
            (Some(place), ..) => edits.extend(append(request, place, &text)),
            (None, Absent::Field, _) => fields.push(field(APPEND_FIELD, &text)),
            (None, Absent::Insert, Api::Chat) => edits.extend(first_message(request, &text)),
            (None, Absent::Insert, Api::Messages) => fields.push(field("system", &text)),
            (None, Absent::Insert, Api::Responses) => fields.push(field("instructions", &text)),
        }
    }
    let sender_lines = changes.sender_lines.filter(|lines| !lines.is_empty());
    if changes.user_line.is_some() || sender_lines.is_some() {
        let line_of = |sender: Option<&SenderId>| {
            let own = sender.and_then(|sender| sender_lines?.get(sender));
            let lines = changes.user_line.into_iter().chain(own.map(String::as_str));
            let lines: Vec<&str> = lines.collect();
            (!lines.is_empty()).then(|| quoted(&lines.join("\n\n")))
        };
        let typed = typed_messages(request, changes.dropped);
        edits.extend(typed.filter_map(|message| {
            let line = line_of(message.sender.as_ref())?;
            append(request, message.place, &line)
        }));
    }
    edits.extend(new_fields(layout, &fields, is_cut));
    edits.extend(drops(request, changes.dropped));
    edits
}

#[derive(Debug, Clone, Copy)]
enum Place<'a> {
    /// A value of the request: a string, a list of parts, or null.
    Value(&'a ByteSpan),
    /// An element of the conversation.
    Item(&'a ConversationItem),
}

/// Returns the end of a request's system prompt: beside the conversation if the API has it there, else in the last of
/// the system messages at the beginning.
fn system(request: &ChatRequest) -> Option<Place<'_>> {
    let value = |name| request.layout.member(name).map(|member| &member.value);
    let beside = match request.api() {
        Api::Chat => None,
        Api::Messages => value("system"),
        Api::Responses => value("instructions"),
    };
    let items = &request.conversation.items;
    let opening = match request.api() {
        Api::Messages => None,
        Api::Chat | Api::Responses => items
            .iter()
            .take_while(|item| item.role == Some(Role::System))
            .last(),
    };
    let is_null = |span: &&ByteSpan| request.raw().get(span.start) == Some(&b'n');
    let place = beside.filter(|span| !is_null(span)).map(Place::Value);
    place
        .or_else(|| opening.map(Place::Item))
        .or_else(|| beside.map(Place::Value))
}

#[derive(Debug)]
struct TypedMessage<'a> {
    place: Place<'a>,
    sender: Option<SenderId>,
}

/// Returns people's messages that are not dropped, each looked at alone. A conversation that is one text is one element.
fn typed_messages<'a>(
    request: &'a ChatRequest,
    dropped: &'a [Range<usize>],
) -> impl Iterator<Item = TypedMessage<'a>> {
    let conversation = &request.conversation;
    let is_dropped = |item| dropped.iter().any(|run| run.contains(&item));
    let said = conversation.messages.iter();
    let said = said.filter(move |message| message.is_said && !message.item.is_some_and(is_dropped));
    said.filter_map(|message| {
        let utterance = |content: &Content| {
            let utterance = content.utterance(request.text(&content.span));
            (utterance.speaker != Speaker::Client).then_some(utterance.sender)
        };
        let sender = match &message.content {
            Some(content) => utterance(content)?,
            None => None,
        };
        let place = match message.item {
            Some(item) => conversation.items.get(item).map(Place::Item),
            None => message.content.as_ref().map(|it| Place::Value(&it.span)),
        };
        let place = place?;
        Some(TypedMessage { place, sender })
    })
}

/// Adds a text at the end of `place`, according to its type. A value of an unknown type is left for the upstream to
/// refuse.
fn append(request: &ChatRequest, place: Place<'_>, quoted: &str) -> Option<Edit> {
    let raw = request.raw();
    let (value, kind) = match place {
        Place::Value(value) => (value, "text"),
        Place::Item(item) => match &item.content {
            Some(content) if request.api() == Api::Responses => (content, "input_text"),
            Some(content) => (content, "text"),
            None => {
                // It has a role, so it is an object that is not empty, and its last byte is the brace.
                let member = format!(",\"content\":{quoted}");
                return Some(Edit::insert(item.whole.end - 1, member));
            }
        },
    };
    let last = value.end.checked_sub(1)?;
    match raw.get(value.start)? {
        b'"' if value.len() == 2 => Some(Edit::replace(value, quoted.to_owned())),
        b'"' => Some(Edit::insert(
            last,
            [GAP, &quoted[1..quoted.len() - 1]].concat(),
        )),
        b'[' => {
            let mut between = raw.get(value.start + 1..last)?.iter();
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

/// Inserts a system message before all others. There are others, because it would not be a request otherwise.
fn first_message(request: &ChatRequest, quoted: &str) -> Option<Edit> {
    let first = request.conversation.items.first()?;
    let message = format!("{{\"role\":\"system\",\"content\":{quoted}}},");
    Some(Edit::insert(first.whole.start, message))
}

/// Removes elements of the conversation, each with the comma after it. One without a comma after it is the last one, and
/// stays.
fn drops(request: &ChatRequest, dropped: &[Range<usize>]) -> Vec<Edit> {
    let items = &request.conversation.items;
    let start = |index: usize| items.get(index).map(|item| item.whole.start);
    let runs = dropped.iter();
    let runs = runs.filter_map(|run| Some(start(run.start)?..start(run.end)?));
    runs.map(|span| Edit::replace(&span, String::new()))
        .collect()
}

fn cuts(members: &[Member], is_cut: impl Fn(&Member) -> bool) -> Vec<Edit> {
    let mut cuts = Vec::new();
    let mut at = 0;
    while at < members.len() {
        let n_cut = members[at..].iter().take_while(|it| is_cut(it)).count();
        let run = at..at + n_cut;
        at += n_cut.max(1);
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

fn is_cut(member: &Member, cuts_shared: bool) -> bool {
    let name = member.name.as_str();
    OWN_FIELDS.contains(&name) || (cuts_shared && SHARED_FIELDS.contains(&name))
}

/// Inserts new fields before all others. A comma follows if any other stays.
fn new_fields(
    layout: &Layout,
    fields: &[String],
    is_cut: impl Fn(&Member) -> bool,
) -> Option<Edit> {
    if fields.is_empty() {
        return None;
    }
    let comma = if layout.members.iter().all(is_cut) {
        ""
    } else {
        ","
    };
    Some(Edit::insert(layout.open, fields.join(",") + comma))
}

fn field(name: &str, quoted: &str) -> String {
    format!("\"{name}\":{quoted}")
}

#[expect(clippy::expect_used, reason = "any text is a JSON string")]
fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("a text is a JSON string")
}

// === impl Edit ===

impl Edit {
    fn replace(span: &ByteSpan, with: String) -> Self {
        Self {
            span: span.clone(),
            with,
        }
    }

    fn insert(at: usize, with: String) -> Self {
        Self::replace(&(at..at), with)
    }
}

#[cfg(test)]
mod tests;
