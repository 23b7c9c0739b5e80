//! Reads the session's name in the forms of each client.

use http::HeaderMap;
use metaclaw_chat::SessionId;
use metaclaw_dialects::request::ChatRequest;
use serde_json::Value;

use super::{claims::text, marks::ErrandMark};

/// The source of a session's name, and how its client uses the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Naming {
    /// There is no name, so the conversation identifies the session.
    Unnamed,
    /// Its client may empty the history and keep the name, as OpenClaw does with `/new`.
    Reused,
    /// Its client gives each conversation a unique name, so a history that begins again was summarised.
    Unique,
}

/// A session that a client names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NamedSession {
    pub session: SessionId,
    pub naming: Naming,
    /// Whether the name was given only for this proxy.
    pub is_ours: bool,
}

/// Headers whose value names one conversation: Claude Code's, opencode's for its own provider, Open WebUI's, and xAI's,
/// which Hermes sends.
const OF_CONVERSATIONS: [&str; 4] = [
    "x-claude-code-session-id",
    "x-opencode-session",
    "x-openwebui-chat-id",
    "x-grok-conv-id",
];
/// Codex's header. The session is the same for all threads that began with one, so a sub-agent's turns belong to its
/// parent's session.
const CODEX_SESSION: &str = "session-id";
const CODEX_THREAD: &str = "thread-id";
/// opencode's header for a sub-agent, whose turns belong to its parent's session.
const PARENT: &str = "x-parent-session-id";
/// Names a session only in the form of a known client, because nanobot sends one value for all requests of a process.
pub(super) const AFFINITY: &str = "x-session-affinity";

// === impl NamedSession ===

impl NamedSession {
    fn new(session: &str, naming: Naming) -> Option<Self> {
        let session = session.parse().ok()?;
        Some(Self {
            session,
            naming,
            is_ours: false,
        })
    }

    /// Takes the name in our own header or field, in which opencode sends its own name.
    pub(super) fn of_ours(session: SessionId) -> Self {
        Self::of_form(session.as_str()).unwrap_or(Self {
            session,
            naming: Naming::Reused,
            is_ours: true,
        })
    }

    /// Takes the name in a line of OpenClaw's.
    pub(super) fn of_runtime(session: SessionId) -> Self {
        Self {
            session,
            naming: Naming::Reused,
            is_ours: false,
        }
    }

    /// Takes the session whose model started a conversation.
    pub(super) fn of_caller(session: SessionId) -> Self {
        Self {
            session,
            naming: Naming::Unique,
            is_ours: false,
        }
    }

    /// Recognises a form that only one client writes: `<uuid>:0` is OpenClaw's, which writes `<uuid>` in its text.
    /// `ses_…` is opencode's.
    pub(super) fn of_form(name: &str) -> Option<Self> {
        if let Some(own) = name.strip_prefix("ses_") {
            let is_id = own.len() >= 8 && own.bytes().all(|b| b.is_ascii_alphanumeric());
            return Self::new(name, Naming::Unique).filter(|_| is_id);
        }
        let (id, attempt) = name.split_once(':')?;
        let is_number = !attempt.is_empty() && attempt.bytes().all(|b| b.is_ascii_digit());
        (is_number && is_uuid(id)).then(|| Self::new(id, Naming::Reused))?
    }

    /// Takes the session whose sub-agent sends the request.
    pub(super) fn of_parent(headers: &HeaderMap) -> Option<Self> {
        Self::new(header(headers, PARENT)?, Naming::Unique)
    }

    /// Takes the session that a header or field of a client or provider names. An invalid name is left to the upstream
    /// and is no reason to refuse.
    pub(super) fn of_client(
        headers: &HeaderMap,
        chat: &ChatRequest,
        mark: Option<ErrandMark>,
    ) -> Option<Self> {
        let unique = |name: &str| Self::new(name, Naming::Unique);
        let mut of_conversations = OF_CONVERSATIONS.into_iter();
        of_conversations
            .find_map(|name| unique(header(headers, name)?))
            .or_else(|| unique(codex(headers, mark)?))
            .or_else(|| Self::of_form(header(headers, AFFINITY)?))
            .or_else(|| {
                let name = header(headers, "session_id")?;
                Self::of_form(name).or_else(|| Self::new(name, Naming::Reused))
            })
            .or_else(|| unique(&of_user_id(&chat.field("metadata")?)?))
            .or_else(|| Self::of_form(chat.field("prompt_cache_key")?.as_str()?))
    }
}

/// Returns the cache key of a request, with which a provider finds its cached prompts.
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

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};
    use metaclaw_dialects::Api;
    use serde_json::json;

    use super::*;

    const A: &str = "0f0e0d0c-1111-4222-8333-444455556666";
    const B: &str = "aaaabbbb-1111-4222-8333-444455556666";

    fn named(headers: &[(&'static str, &str)], fields: &Value) -> Option<(String, Naming)> {
        let map = headers.iter().map(|(name, value)| {
            let value = HeaderValue::from_str(value).unwrap();
            (HeaderName::from_static(name), value)
        });
        let mut body = json!({"messages": [{"role": "user", "content": "hi"}]});
        let fields = fields.as_object().unwrap().clone();
        body.as_object_mut().unwrap().extend(fields);
        let chat = ChatRequest::parse(Api::Chat, body.to_string().into()).unwrap();
        let map: HeaderMap = map.collect();
        let named = NamedSession::of_client(&map, &chat, ErrandMark::of(&map, &chat))?;
        Some((named.session.to_string(), named.naming))
    }

    #[test]
    fn each_clients_name_is_known() {
        let none = json!({});
        let claude = |id: Value| json!({"metadata": {"user_id": id}});
        let json_id = json!({"device_id": "d", "session_id": A}).to_string();
        let older = format!("user_0a1b_account__session_{A}");
        let subagent = r#"{"thread_source":"subagent"}"#;
        let unique = |name: &str| Some((name.to_owned(), Naming::Unique));
        let reused = |name: &str| Some((name.to_owned(), Naming::Reused));
        for (headers, fields, expected) in [
            (
                vec![("x-claude-code-session-id", A)],
                claude(json!(older.replace(A, B))),
                unique(A),
            ),
            (vec![], claude(json!(json_id)), unique(A)),
            (vec![], claude(json!(older)), unique(A)),
            (vec![], claude(json!("somebody")), None),
            (
                vec![("session-id", A), ("thread-id", A)],
                json!({"prompt_cache_key": A}),
                unique(A),
            ),
            (
                vec![("session-id", A), ("thread-id", B)],
                none.clone(),
                unique(B),
            ),
            (
                vec![
                    ("session-id", A),
                    ("thread-id", B),
                    ("x-codex-turn-metadata", subagent),
                ],
                none.clone(),
                unique(A),
            ),
            (
                vec![("x-session-affinity", "ses_0123abcdEF")],
                none.clone(),
                unique("ses_0123abcdEF"),
            ),
            (
                vec![("x-session-affinity", &format!("{A}:0"))],
                none.clone(),
                reused(A),
            ),
            (
                vec![("x-session-affinity", "e5ee61e5ee61e5ee61e5ee61e5ee61e5")],
                none.clone(),
                None,
            ),
            (vec![("x-session-affinity", A)], none.clone(), None),
            (vec![("session_id", "other")], none.clone(), reused("other")),
            (
                vec![],
                json!({"prompt_cache_key": format!("{B}:2")}),
                reused(B),
            ),
            (vec![], json!({"prompt_cache_key": "my-app:1"}), None),
        ] {
            assert_eq!(
                named(&headers, &fields),
                expected,
                "{headers:?} {fields} {expected:?}"
            );
        }
    }
}
