//! Reads what a client says in its own headers, fields and lines: the session, and whether the request is a side turn.
//!
//! `data/clients.tsv` has what differs from client to client. The headers are those of Claude Code 2.1.331, Codex
//! 0.169.0 and opencode 1.18.33. Header names change between releases, so a name of the general form counts for any
//! client.

use std::sync::LazyLock;

use http::{HeaderMap, HeaderValue};
use metaclaw_chat::{AgentId, Role, SessionId};
use metaclaw_dialects::request::{ChatRequest, MessageRef};
use serde_json::Value;

use super::claims::text;

const TABLE: &str = include_str!("../../data/clients.tsv");
pub(super) static CLIENTS: LazyLock<Clients> = LazyLock::new(Clients::read);

/// Codex describes the purpose of a request in JSON. In the body it is below [`METADATA_FIELD`].
const METADATA: &str = "x-codex-turn-metadata";
const METADATA_FIELD: &str = "client_metadata";
/// All threads of Codex that began with the same one have the same session, so a sub-agent's turns belong to its
/// parent's session.
const CODEX_SESSION: &str = "session-id";
const CODEX_THREAD: &str = "thread-id";
/// opencode's header for a sub-agent, whose turns belong to its parent's session.
const PARENT: &str = "x-parent-session-id";
/// Names a session only in the form of a known client, because nanobot sends one value for all requests of a process.
const AFFINITY: &str = "x-session-affinity";
/// OpenClaw names its session by default only in a line about itself, in the system text or in the first user message
/// of a session: `Runtime: agent=main | session=agent:main:explicit:<uuid> | sessionId=<uuid> | host=…`.
const RUNTIME: &str = "Runtime: agent=";

/// The lists of `data/clients.tsv`, which explains them.
pub(super) struct Clients {
    session_headers: Vec<&'static str>,
    class_headers: Vec<&'static str>,
    sub_agent_headers: Vec<&'static str>,
    errand_headers: Vec<&'static str>,
    pub(super) users: Vec<&'static str>,
    pub(super) user_patterns: Vec<&'static str>,
    pub(super) systems: Vec<&'static str>,
    pub(super) sub_agent_lines: Vec<&'static str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ErrandMark {
    /// A sub-agent's request, which the owner's agent started.
    SubAgent,
    Errand,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Naming {
    /// There is no name, so the conversation identifies the session.
    Unnamed,
    /// Its client may empty the history and keep the name, as OpenClaw does with `/new`.
    Reused,
    /// Its client gives each conversation a unique name, so a history that begins again was summarised.
    Unique,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NamedSession {
    pub session: SessionId,
    pub naming: Naming,
    /// Whether the name was given only for this proxy.
    pub is_ours: bool,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Runtime {
    pub agent: Option<AgentId>,
    pub session: Option<SessionId>,
}

// === impl Clients ===

impl Clients {
    fn read() -> Self {
        let rows = || TABLE.lines().filter_map(|line| line.split_once('\t'));
        let list = |kind| {
            let of_kind = rows().filter(|(found, _)| *found == kind);
            of_kind.map(|(_, text)| text).collect()
        };
        Self {
            session_headers: list("session"),
            class_headers: list("class"),
            sub_agent_headers: list("sub-agent"),
            errand_headers: list("errand"),
            users: list("user"),
            user_patterns: list("user-pattern"),
            systems: list("system"),
            sub_agent_lines: list("sub-agent-line"),
        }
    }
}

// === impl ErrandMark ===

impl ErrandMark {
    /// Returns the kind that the headers give, or `None` if they give none, or say that it is the owner's.
    pub(super) fn read(headers: &HeaderMap, chat: &ChatRequest) -> Option<Self> {
        let said = headers.iter().filter(|(_, value)| says_something(value));
        let marks = said.filter_map(|(name, value)| Self::of_header(name.as_str(), value));
        marks.reduce(Self::or).or_else(|| {
            let metadata = headers.get(METADATA).and_then(|value| value.to_str().ok());
            match metadata {
                Some(metadata) => Self::of_metadata(metadata),
                None => Self::of_metadata(chat.field(METADATA_FIELD)?[METADATA].as_str()?),
            }
        })
    }

    fn of_header(name: &str, value: &HeaderValue) -> Option<Self> {
        if CLIENTS.class_headers.contains(&name) {
            return match value.to_str().ok()?.trim() {
                "main" => None,
                "subagent" | "workflow" => Some(Self::SubAgent),
                _ => Some(Self::Errand),
            };
        }
        let mut endings = CLIENTS.sub_agent_headers.iter();
        if endings.any(|ending| name.ends_with(ending)) {
            return Some(Self::SubAgent);
        }
        CLIENTS
            .errand_headers
            .contains(&name)
            .then_some(Self::Errand)
    }

    fn of_metadata(metadata: &str) -> Option<Self> {
        let metadata: Value = serde_json::from_str(metadata).ok()?;
        let is_other = |field: &str, owners: &str| {
            let said = metadata[field].as_str();
            said.is_some_and(|said| said != owners)
        };
        if is_other("thread_source", "user") {
            return Some(Self::SubAgent);
        }
        is_other("request_kind", "turn").then_some(Self::Errand)
    }

    fn or(self, other: Self) -> Self {
        if other == Self::SubAgent { other } else { self }
    }
}

// === impl NamedSession ===

impl NamedSession {
    pub(super) fn new(session: SessionId, naming: Naming) -> Self {
        Self {
            session,
            naming,
            is_ours: false,
        }
    }

    fn parse(session: &str, naming: Naming) -> Option<Self> {
        Some(Self::new(session.parse().ok()?, naming))
    }

    /// Takes the name in our own header or field, in which opencode sends its own name.
    pub(super) fn of_ours(session: SessionId) -> Self {
        Self::of_form(session.as_str()).unwrap_or(Self {
            session,
            naming: Naming::Reused,
            is_ours: true,
        })
    }

    /// Recognises a form that only one client writes: `<uuid>:0` is OpenClaw's, which writes `<uuid>` in its text.
    /// `ses_…` is opencode's.
    fn of_form(name: &str) -> Option<Self> {
        if let Some(own) = name.strip_prefix("ses_") {
            let is_id = own.len() >= 8 && own.bytes().all(|b| b.is_ascii_alphanumeric());
            return Self::parse(name, Naming::Unique).filter(|_| is_id);
        }
        let (id, attempt) = name.split_once(':')?;
        let is_number = !attempt.is_empty() && attempt.bytes().all(|b| b.is_ascii_digit());
        (is_number && is_uuid(id)).then(|| Self::parse(id, Naming::Reused))?
    }

    pub(super) fn of_parent(headers: &HeaderMap) -> Option<Self> {
        Self::parse(header(headers, PARENT)?, Naming::Unique)
    }

    /// Takes the session that a header or field of a client or provider names. An invalid name is left to the upstream
    /// and is no reason to refuse.
    pub(super) fn of_client(
        headers: &HeaderMap,
        chat: &ChatRequest,
        mark: Option<ErrandMark>,
    ) -> Option<Self> {
        let unique = |name: &str| Self::parse(name, Naming::Unique);
        let mut session_headers = CLIENTS.session_headers.iter();
        session_headers
            .find_map(|name| unique(header(headers, name)?))
            .or_else(|| unique(codex(headers, mark)?))
            .or_else(|| Self::of_form(header(headers, AFFINITY)?))
            .or_else(|| {
                let name = header(headers, "session_id")?;
                Self::of_form(name).or_else(|| Self::parse(name, Naming::Reused))
            })
            .or_else(|| unique(&of_user_id(&chat.field("metadata")?)?))
            .or_else(|| Self::of_form(chat.field("prompt_cache_key")?.as_str()?))
    }
}

// === impl Runtime ===

impl Runtime {
    /// Reads the line of the first user message. Later messages and results of tools do not count. The text may be
    /// anybody's: a forwarded mail, or another sender in a channel.
    pub(super) fn in_user(chat: &ChatRequest) -> Self {
        let first = chat.messages().find(|message| message.role() == Role::User);
        let line = first.as_ref().and_then(runtime_line);
        line.map_or_else(Self::default, |line| Self::parse(&line))
    }

    pub(super) fn parse(line: &str) -> Self {
        let field = |name: &str| {
            let mut fields = line.trim_start_matches("Runtime: ").split(" | ");
            fields.find_map(|field| field.strip_prefix(name)?.strip_prefix('='))
        };
        Self {
            agent: field("agent")
                .and_then(|agent| agent.trim().parse().ok())
                .filter(|agent: &AgentId| !agent.is_shared()),
            session: field("sessionId").and_then(|session| session.parse().ok()),
        }
    }
}

pub(super) fn begins_with(text: &str, phrase: &str) -> bool {
    let mut said_words = text.split_whitespace();
    let mut words = phrase.split_whitespace().peekable();
    while let Some(word) = words.next() {
        let Some(said) = said_words.next() else {
            return false;
        };
        let head = said.get(..word.len());
        let is_whole = words.peek().is_none() || said.len() == word.len();
        if !is_whole || head.is_none_or(|head| !head.eq_ignore_ascii_case(word)) {
            return false;
        }
    }
    true
}

fn says_something(value: &HeaderValue) -> bool {
    const NO: [&[u8]; 6] = [b"", b"0", b"false", b"no", b"none", b"null"];
    let value = value.as_bytes().trim_ascii();
    !NO.iter().any(|no| value.eq_ignore_ascii_case(no))
}

pub(super) fn cache_key(headers: &HeaderMap, chat: &ChatRequest) -> Option<String> {
    match chat.field("prompt_cache_key") {
        Some(Value::String(key)) => Some(key),
        _ => header(headers, AFFINITY).map(str::to_owned),
    }
}

fn header<'a>(headers: &'a HeaderMap, name: &'static str) -> Option<&'a str> {
    text(headers, name).ok().flatten()
}

/// Returns the conversation of Codex, in which a thread of the owner is one conversation.
fn codex(headers: &HeaderMap, mark: Option<ErrandMark>) -> Option<&str> {
    let session = header(headers, CODEX_SESSION)?;
    let thread = header(headers, CODEX_THREAD).filter(|_| mark != Some(ErrandMark::SubAgent));
    Some(thread.unwrap_or(session))
}

/// Returns the session in Claude Code's `metadata.user_id`: in a JSON text, or in the older form
/// `user_<hash>_account_<uuid>_session_<uuid>`.
fn of_user_id(metadata: &Value) -> Option<String> {
    let id = metadata["user_id"].as_str()?;
    let session = match serde_json::from_str::<Value>(id) {
        Ok(Value::Object(id)) => id.get("session_id")?.as_str()?.to_owned(),
        _ => id.rsplit_once("_session_")?.1.to_owned(),
    };
    is_uuid(&session).then_some(session)
}

fn is_uuid(id: &str) -> bool {
    let is_digit = |(at, b): (usize, u8)| match at {
        8 | 13 | 18 | 23 => b == b'-',
        _ => b.is_ascii_hexdigit(),
    };
    id.len() == 36 && id.bytes().enumerate().all(is_digit)
}

/// Returns the last line of OpenClaw's form. OpenClaw writes its own line after the user's text, which may quote
/// another one.
pub(super) fn runtime_line(message: &MessageRef<'_>) -> Option<String> {
    // Most texts have none, and are long.
    if !message.may_say(RUNTIME) {
        return None;
    }
    let text = message.text();
    let line = text.lines().rev().find(|line| line.starts_with(RUNTIME));
    line.map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use http::HeaderName;
    use metaclaw_chat::Message;
    use metaclaw_dialects::Api;
    use serde_json::json;

    use super::*;
    use crate::identity::testing::request;

    #[test]
    fn every_line_of_the_table_is_read() {
        let clients = &*CLIENTS;
        let lists = [
            &clients.session_headers,
            &clients.class_headers,
            &clients.sub_agent_headers,
            &clients.errand_headers,
            &clients.users,
            &clients.user_patterns,
            &clients.systems,
            &clients.sub_agent_lines,
        ];
        let is_row = |line: &&str| !line.is_empty() && !line.starts_with('#');
        let n_read: usize = lists.iter().map(|list| list.len()).sum();
        assert_eq!(n_read, TABLE.lines().filter(is_row).count());
    }

    fn mark(name: &'static str, value: &'static str) -> Option<ErrandMark> {
        let body = r#"{"input":"hi"}"#;
        let chat = ChatRequest::parse(Api::Responses, body.into()).unwrap();
        let mut headers = HeaderMap::new();
        headers.insert(name, HeaderValue::from_static(value));
        ErrandMark::read(&headers, &chat)
    }

    #[test]
    fn clients_say_in_their_headers_what_is_no_turn_with_the_owner() {
        const SUB_AGENT: Option<ErrandMark> = Some(ErrandMark::SubAgent);
        const ERRAND: Option<ErrandMark> = Some(ErrandMark::Errand);
        let delegated = r#"{"request_kind":"turn","thread_source":"subagent"}"#;
        let compaction = r#"{"request_kind":"compaction","thread_source":"user"}"#;
        let owners = r#"{"request_kind":"turn","thread_source":"user","turn_id":"t"}"#;
        for (name, value, expected) in [
            ("x-claude-code-agent-id", "a1b2", SUB_AGENT),
            ("x-claude-code-request-class", "subagent", SUB_AGENT),
            ("x-parent-session-id", "ses_1", SUB_AGENT),
            ("x-codex-parent-thread-id", "0f0e", SUB_AGENT),
            ("x-openai-subagent", "review", SUB_AGENT),
            (METADATA, delegated, SUB_AGENT),
            ("x-new-client-subagent-id", "7", SUB_AGENT),
            ("x-claude-code-request-class", "compaction", ERRAND),
            ("x-claude-code-auxiliary-type", "memory_save", ERRAND),
            ("x-openai-memgen-request", "true", ERRAND),
            (METADATA, compaction, ERRAND),
            ("x-claude-code-request-class", "main", None),
            (METADATA, owners, None),
            (METADATA, "no JSON", None),
            ("x-openai-subagent", "", None),
            ("x-openai-memgen-request", "false", None),
            ("x-agent-id", "codex", None),
            ("x-session-id", "ses_1", None),
            ("x-datadog-parent-id", "7", None),
        ] {
            assert_eq!(mark(name, value), expected, "{name}: {value}");
        }
    }

    #[test]
    fn codex_says_it_in_the_body_as_well() {
        let body = r#"{"input":"hi","client_metadata":{"x-codex-turn-metadata":"{\"request_kind\":\"compaction\"}"}}"#;
        let chat = ChatRequest::parse(Api::Responses, body.into()).unwrap();
        let headers = HeaderMap::new();
        assert_eq!(ErrandMark::read(&headers, &chat), Some(ErrandMark::Errand));
    }

    const A: &str = "0f0e0d0c-1111-4222-8333-444455556666";
    const B: &str = "aaaabbbb-1111-4222-8333-444455556666";

    /// Headers and fields of requests, in which A and B are sessions, and the session that each names.
    const NAMES: &str = include_str!("clients/names.txt");

    #[test]
    fn each_clients_name_is_known() {
        let is_id = |c: char| c == 'A' || c == 'B';
        for line in NAMES.lines() {
            let parts = line
                .split_inclusive(is_id)
                .map(|part| match part.strip_suffix(is_id) {
                    Some(before) if part.ends_with('A') => format!("{before}{A}"),
                    Some(before) => format!("{before}{B}"),
                    None => part.to_owned(),
                });
            let whole: String = parts.collect();
            let [headers, fields, expected] =
                whole.split('|').map(str::trim).collect::<Vec<_>>()[..]
            else {
                panic!("{line}");
            };
            let pairs = headers
                .split(", ")
                .filter_map(|header| header.split_once(": "));
            let headers: HeaderMap = pairs
                .map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap()))
                .collect();
            let mut body = json!({"messages": [{"role": "user", "content": "hi"}]});
            let fields: serde_json::Map<_, _> = serde_json::from_str(fields).unwrap();
            body.as_object_mut().unwrap().extend(fields);
            let chat = ChatRequest::parse(Api::Chat, body.to_string().into()).unwrap();
            let mark = ErrandMark::read(&headers, &chat);
            let named = NamedSession::of_client(&headers, &chat, mark);
            let named = named.map(|named| format!("{:?} {}", named.naming, named.session));
            assert_eq!(named.unwrap_or_default(), expected, "{line}");
        }
    }

    const TEXT: &str = "[Fri 2026-11-20 05:31 UTC] Say hello.\n\nRuntime: agent=main | session=agent:main:explicit:0b3 | sessionId=0b3c9a52-0000-4000-8000-000000000001 | host=x | model=proxied/mock-model";

    #[test]
    fn the_line_is_read_where_openclaw_writes_it_and_nowhere_else() {
        let user = |messages: &[Message]| Runtime::in_user(&request(messages));
        let first = user(&[Message::system("You are…"), Message::user(TEXT)]);
        assert_eq!(first.agent.unwrap().as_str(), "main");
        let session = first.session.unwrap();
        assert_eq!(session.as_str(), "0b3c9a52-0000-4000-8000-000000000001");
        assert_eq!(user(&[Message::system(TEXT)]), Runtime::default());
        let later = [Message::user("hi"), Message::user(TEXT)];
        assert_eq!(user(&later), Runtime::default());
        let tools = [Message::user("hi"), Message::new("tool", TEXT)];
        assert_eq!(user(&tools), Runtime::default());
        // A text that is passed on has no say: OpenClaw's own line comes last.
        let quoted = format!("Runtime: agent=other | sessionId=theirs\n\n{TEXT}");
        let agent = user(&[Message::user(quoted)]).agent;
        assert_eq!(agent.unwrap().as_str(), "main");
        for none in ["Runtime: agent=../x | host=y", "no Runtime: agent=main"] {
            assert_eq!(user(&[Message::user(none)]), Runtime::default());
        }
    }
}
