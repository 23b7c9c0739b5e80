//! What was said, as far as it has to be known while the agent waits: by whom, and where it stands.
//!
//! No value is built: a text is read where it stands, when somebody asks for it. Most never are: of
//! system texts the first words and one line matter, of assistants that they spoke. What the log and
//! learning need is read when the reply has ended, by `record`.

use std::{borrow::Cow, sync::Arc};

use bytes::Bytes;
use metaclaw_chat::{ChainHash, Role, SaidHash};
use metaclaw_dialects::Api;

use crate::scan::{self, Item, Layout, SeenValue, Span, text};

/// Enough of a text to tell whether a person wrote it.
const OPENING: usize = 128;

/// The messages of a request, in the order and the roles of a chat completion.
#[derive(Debug, Default)]
pub(crate) struct Conversation {
    raw: Bytes,
    said: Vec<Said>,
    /// How many elements of the request they come from.
    n_items: usize,
}

/// One message.
#[derive(Debug, Clone)]
pub(crate) struct Said {
    pub role: Role,
    /// A person wrote it.
    pub is_owners: bool,
    /// Its content; of assistants it is not looked for.
    content: Option<Content>,
    /// The element that it comes from; none for a system text beside the conversation.
    item: Option<usize>,
    /// Which of its element's it is: what tools returned stands in the user's message in one API.
    part: usize,
    /// That element, where it is long.
    long: Option<Arc<SeenValue>>,
}

/// Where a content stands.
#[derive(Debug, Clone)]
struct Content {
    span: Span,
    /// What tools returned stands among its parts, and is another's.
    has_results: bool,
}

/// Puts a conversation together.
struct Reader<'a> {
    raw: &'a [u8],
    layout: &'a Layout,
    said: Vec<Said>,
}

// === impl Conversation ===

impl Conversation {
    /// Reads a request that was laid out as one of `api`.
    pub(crate) fn read(api: Api, raw: &Bytes, layout: &Layout) -> Self {
        let mut reader = Reader {
            raw,
            layout,
            said: Vec::with_capacity(layout.each().len() + 1),
        };
        let value = |name| layout.member(name).map(|member| member.value.clone());
        match api {
            Api::Chat => {}
            Api::Messages => reader.beside(value("system")),
            Api::Responses => reader.beside(value("instructions")),
        }
        for (index, item) in layout.each().iter().enumerate() {
            match api {
                Api::Chat => reader.message(index, item),
                Api::Messages => reader.anthropic(index, item),
                Api::Responses => reader.response_item(index, item),
            }
        }
        let mut n_items = layout.each().len();
        let input = value("input").filter(|_| api == Api::Responses);
        if let Some(input) = input.filter(|input| scan::is_string(raw, input)) {
            reader.push(Role::User, Some(input), Some(0));
            n_items = 1;
        }
        Self {
            raw: raw.clone(),
            said: reader.said,
            n_items,
        }
    }

    /// The messages, in order.
    pub(crate) fn each(&self) -> &[Said] {
        &self.said
    }

    /// For each element of the request, whether the owner wrote it.
    pub(crate) fn owners(&self) -> Vec<bool> {
        let mut owners = vec![false; self.n_items];
        for said in self.said.iter().filter(|said| said.is_owners) {
            if let Some(owners) = said.item.and_then(|item| owners.get_mut(item)) {
                *owners = true;
            }
        }
        owners
    }

    /// The last thing that the owner said.
    pub(crate) fn last_owners(&self) -> Option<&Said> {
        self.said.iter().rev().find(|said| said.is_owners)
    }

    /// Whether the model has answered before.
    pub(crate) fn goes_on(&self) -> bool {
        self.said.iter().any(|said| said.role == Role::Assistant)
    }

    /// The text of a message: its content, or the texts of its parts, joined by newlines.
    pub(crate) fn text(&self, said: &Said) -> Cow<'_, str> {
        said.content.as_ref().map_or(Cow::Borrowed(""), |content| {
            content_text(&self.raw, content)
        })
    }

    /// The beginning of that text: `limit` bytes or a few more.
    pub(crate) fn head(&self, said: &Said, limit: usize) -> Cow<'_, str> {
        let content = said.content.as_ref();
        content.map_or_else(Cow::default, |content| head(&self.raw, content, limit))
    }

    /// The types of its parts, where it has any.
    pub(crate) fn part_kinds(&self, said: &Said) -> Vec<String> {
        let content = said.content.as_ref();
        let is_list = |content: &&Content| self.raw.get(content.span.start) == Some(&b'[');
        let parts = content.filter(is_list);
        let parts = parts.map_or_else(Vec::new, |content| scan::elements(&self.raw, &content.span));
        let kind = |part: Span| {
            let kind = scan::member(&self.raw, &part, "type")?;
            Some(text::read(&self.raw[kind]).into_owned())
        };
        parts.into_iter().filter_map(kind).collect()
    }

    /// The last line of that text that begins with `beginning`, which holds no letter that JSON
    /// escapes.
    pub(crate) fn last_line(&self, said: &Said, beginning: &str) -> Option<String> {
        let texts = texts(&self.raw, said.content.as_ref()?);
        let mut last_first = texts.into_iter().rev();
        last_first.find_map(|span| text::last_line(&self.raw[span], beginning))
    }

    /// The hash of the conversation before its first message, which is `start`, and after each, as
    /// [`ChainHash::then`] has it.
    pub(crate) fn chains(&self, start: ChainHash) -> Vec<ChainHash> {
        let mut chains = Vec::with_capacity(self.said.len() + 1);
        chains.push(start);
        let mut chain = start;
        for said in &self.said {
            if let Some(said) = self.said_hash(said) {
                chain = chain.then_said(said);
            }
            chains.push(chain);
        }
        chains
    }

    /// What a message adds to the hash; none where it does not count.
    pub(crate) fn said_hash(&self, said: &Said) -> Option<SaidHash> {
        match said.role {
            Role::User if !said.is_owners => None,
            role @ (Role::User | Role::Tool) => {
                let read = || SaidHash::of(role, &self.text(said));
                match &said.long {
                    Some(long) => long.said(said.part, read),
                    None => read(),
                }
            }
            role => SaidHash::of(role, ""),
        }
    }
}

// === impl Reader ===

impl Reader<'_> {
    fn push(&mut self, role: Role, content: Option<Span>, item: Option<usize>) {
        let content = content.map(|span| Content {
            span,
            has_results: false,
        });
        self.say(role, content, item);
    }

    fn say(&mut self, role: Role, content: Option<Content>, item: Option<usize>) {
        let text = |content: &Content| opening(self.raw, content);
        let is_owners = role == Role::User
            && match &content {
                Some(content) => role.is_owners(&text(content)),
                None => true,
            };
        let before = self.said.last().filter(|last| last.item == item);
        let element = item.and_then(|item| self.layout.each().get(item));
        let long = element.and_then(|element| self.layout.long(element.whole.start));
        self.said.push(Said {
            role,
            is_owners,
            content,
            item,
            part: before.map_or(0, |before| before.part + 1),
            long: long.cloned(),
        });
    }

    /// A system text that stands beside the conversation.
    fn beside(&mut self, value: Option<Span>) {
        let Some(value) = value else {
            return;
        };
        let has_parts =
            || self.begins(&value, b'[') && !scan::elements(self.raw, &value).is_empty();
        if scan::is_string(self.raw, &value) || has_parts() {
            self.push(Role::System, Some(value), None);
        }
    }

    /// A message of a chat completion.
    fn message(&mut self, index: usize, item: &Item) {
        let role = self.role(item);
        let content = item.content.clone().filter(|_| role != Role::Assistant);
        self.push(role, content, Some(index));
    }

    /// A message of Anthropic's: what tools returned stands in the user's.
    fn anthropic(&mut self, index: usize, item: &Item) {
        let role = self.role(item);
        let parts = match &item.content {
            Some(content) if role != Role::Assistant && self.begins(content, b'[') => {
                scan::elements(self.raw, content)
            }
            _ => return self.message(index, item),
        };
        let n_parts = parts.len();
        let mut n_results = 0;
        for part in parts {
            if is_result(self.raw, &part) {
                let content = self.member(&part, "content");
                self.push(Role::Tool, content, Some(index));
                n_results += 1;
            }
        }
        if n_parts == 0 || n_results < n_parts {
            let content = item.content.clone().map(|span| Content {
                span,
                has_results: n_results > 0,
            });
            self.say(role, content, Some(index));
        }
    }

    /// An item of the Responses API. What a model said in one turn is several of them.
    fn response_item(&mut self, index: usize, item: &Item) {
        if item.role.is_some() {
            let role = self.role(item);
            match role {
                Role::Assistant => self.assistant(index),
                _ => self.push(role, item.content.clone(), Some(index)),
            }
        } else if self.ends_with(item, b"_output") {
            self.push(Role::Tool, item.output.clone(), Some(index));
        } else if item.kind.is_some() {
            self.assistant(index);
        }
    }

    fn assistant(&mut self, index: usize) {
        let last = self.said.last().map(|said| said.role);
        if last != Some(Role::Assistant) {
            self.push(Role::Assistant, None, Some(index));
        }
    }

    fn ends_with(&self, item: &Item, end: &[u8]) -> bool {
        let kind = item
            .kind
            .as_ref()
            .and_then(|span| self.raw.get(span.clone()));
        kind.and_then(|kind| kind.strip_suffix(b"\""))
            .is_some_and(|kind| kind.ends_with(end))
    }

    fn begins(&self, value: &Span, byte: u8) -> bool {
        self.raw.get(value.start) == Some(&byte)
    }

    fn role(&self, item: &Item) -> Role {
        let role = item.role.as_ref();
        let role = role.filter(|role| scan::is_string(self.raw, role));
        role.map_or(Role::Other, |role| {
            Role::named(&text::read(&self.raw[role.clone()]))
        })
    }

    fn member(&self, object: &Span, name: &str) -> Option<Span> {
        scan::member(self.raw, object, name)
    }
}

/// Where the texts of a content stand, in order.
fn texts(raw: &[u8], content: &Content) -> Vec<Span> {
    let Content { span, has_results } = content;
    let is_own = |part: &Span| !has_results || !is_result(raw, part);
    match raw.get(span.start) {
        Some(b'"') => vec![span.clone()],
        Some(b'[') => {
            let parts = scan::elements(raw, span).into_iter().filter(is_own);
            parts.filter_map(|part| part_text(raw, part)).collect()
        }
        _ => Vec::new(),
    }
}

/// Whether a part of a user's content is what a tool returned.
fn is_result(raw: &[u8], part: &Span) -> bool {
    let kind = scan::member(raw, part, "type");
    scan::says(raw, kind.as_ref(), "tool_result")
}

fn part_text(raw: &[u8], part: Span) -> Option<Span> {
    let text = match raw.get(part.start) {
        Some(b'{') => scan::member(raw, &part, "text")?,
        _ => part,
    };
    scan::is_string(raw, &text).then_some(text)
}

fn content_text<'a>(raw: &'a [u8], content: &Content) -> Cow<'a, str> {
    let mut texts = texts(raw, content).into_iter();
    let Some(first) = texts.next() else {
        return Cow::Borrowed("");
    };
    let mut all = text::read(&raw[first]);
    for span in texts {
        let all = all.to_mut();
        all.push('\n');
        text::read_into(all, &raw[span], usize::MAX);
    }
    all
}

fn head<'a>(raw: &'a [u8], content: &Content, limit: usize) -> Cow<'a, str> {
    if scan::is_string(raw, &content.span) {
        return text::head(&raw[content.span.clone()], limit);
    }
    let mut head = String::new();
    for (index, span) in texts(raw, content).into_iter().enumerate() {
        if index > 0 {
            head.push('\n');
        }
        text::read_into(&mut head, &raw[span], limit);
        if head.len() >= limit {
            break;
        }
    }
    Cow::Owned(head)
}

/// The first words of a content, whatever blanks stand before them.
fn opening<'a>(raw: &'a [u8], content: &Content) -> Cow<'a, str> {
    let head = head(raw, content, OPENING);
    if head.trim_start().len() >= OPENING / 2 || head.len() < OPENING {
        head
    } else {
        content_text(raw, content)
    }
}

#[cfg(test)]
impl Conversation {
    /// The conversation of a chat completion with these messages.
    pub(crate) fn of(messages: &[metaclaw_chat::Message]) -> Self {
        let raw = Bytes::from(serde_json::json!({ "messages": messages }).to_string());
        let layout = scan::scan(&raw, Api::Chat, &scan::Seen::default()).unwrap();
        Self::read(Api::Chat, &raw, &layout)
    }
}

#[cfg(test)]
mod tests;
