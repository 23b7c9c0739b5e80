//! Reads from a client's headers whether a request is a side turn: a sub-agent's, a compaction, a title.
//!
//! The headers are those of Claude Code 2.1.331, Codex 0.169.0 and opencode 1.18.33. Names change between releases, so
//! names of a general form count for any client.

use http::{HeaderMap, HeaderValue};
use metaclaw_dialects::request::ChatRequest;
use serde_json::Value;

/// Codex describes the purpose of a request in JSON. In the body it is below [`METADATA_FIELD`].
const METADATA: &str = "x-codex-turn-metadata";
const METADATA_FIELD: &str = "client_metadata";
/// Claude Code describes it in one word, and `main` is the owner's.
const CLASSES: [&str; 2] = ["x-claude-code-request-class", "x-claude-1p-request-class"];
/// Ends of header names that only a sub-agent sends.
const OF_SUB_AGENTS: [&str; 8] = [
    "claude-code-agent-id",
    "-subagent",
    "-subagent-id",
    "-parent-session-id",
    "-parent-thread-id",
    "-parent-agent-id",
    "-parent-conversation-id",
    "-parent-task-id",
];
/// Headers that only a side turn has.
const OF_ERRANDS: [&str; 2] = ["x-claude-code-auxiliary-type", "x-openai-memgen-request"];

/// The kind of a side turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ErrandMark {
    /// A sub-agent's request, which the owner's agent started.
    SubAgent,
    Errand,
}

// === impl ErrandMark ===

impl ErrandMark {
    /// Returns the kind that the headers give, or `None` if they give none, or say that it is the owner's.
    pub(super) fn of(headers: &HeaderMap, chat: &ChatRequest) -> Option<Self> {
        let said = headers.iter().filter(|(_, value)| says_something(value));
        let marks = said.filter_map(|(name, value)| Self::of_header(name.as_str(), value));
        marks.reduce(Self::or).or_else(|| {
            let metadata = headers.get(METADATA).and_then(|it| it.to_str().ok());
            match metadata {
                Some(metadata) => Self::of_metadata(metadata),
                None => Self::of_metadata(chat.field(METADATA_FIELD)?[METADATA].as_str()?),
            }
        })
    }

    fn of_header(name: &str, value: &HeaderValue) -> Option<Self> {
        if CLASSES.contains(&name) {
            return match value.to_str().ok()?.trim() {
                "main" => None,
                "subagent" | "workflow" => Some(Self::SubAgent),
                _ => Some(Self::Errand),
            };
        }
        if OF_SUB_AGENTS.iter().any(|ending| name.ends_with(ending)) {
            return Some(Self::SubAgent);
        }
        OF_ERRANDS.contains(&name).then_some(Self::Errand)
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

/// Returns whether a header's value means more than "no".
fn says_something(value: &HeaderValue) -> bool {
    const NO: [&[u8]; 6] = [b"", b"0", b"false", b"no", b"none", b"null"];
    let value = value.as_bytes().trim_ascii();
    !NO.iter().any(|no| value.eq_ignore_ascii_case(no))
}

#[cfg(test)]
mod tests {
    use http::HeaderName;
    use metaclaw_dialects::Api;

    use super::*;

    fn mark(name: &'static str, value: &'static str) -> Option<ErrandMark> {
        let body = r#"{"input":"hi"}"#;
        let chat = ChatRequest::parse(Api::Responses, body.into()).unwrap();
        let mut headers = HeaderMap::new();
        headers.insert(
            HeaderName::from_static(name),
            HeaderValue::from_static(value),
        );
        ErrandMark::of(&headers, &chat)
    }

    #[test]
    fn clients_say_in_their_headers_what_is_no_turn_with_the_owner() {
        for (name, value) in [
            ("x-claude-code-agent-id", "a1b2"),
            ("x-claude-code-request-class", "subagent"),
            ("x-parent-session-id", "ses_1"),
            ("x-codex-parent-thread-id", "0f0e"),
            ("x-openai-subagent", "review"),
            (
                METADATA,
                r#"{"request_kind":"turn","thread_source":"subagent"}"#,
            ),
            ("x-new-client-subagent-id", "7"),
        ] {
            assert_eq!(
                mark(name, value),
                Some(ErrandMark::SubAgent),
                "{name}: {value}"
            );
        }
        for (name, value) in [
            ("x-claude-code-request-class", "compaction"),
            ("x-claude-code-auxiliary-type", "memory_save"),
            ("x-openai-memgen-request", "true"),
            (
                METADATA,
                r#"{"request_kind":"compaction","thread_source":"user"}"#,
            ),
        ] {
            assert_eq!(
                mark(name, value),
                Some(ErrandMark::Errand),
                "{name}: {value}"
            );
        }
        for (name, value) in [
            ("x-claude-code-request-class", "main"),
            (
                METADATA,
                r#"{"request_kind":"turn","thread_source":"user","turn_id":"t"}"#,
            ),
            (METADATA, "no JSON"),
            ("x-openai-subagent", ""),
            ("x-openai-memgen-request", "false"),
            ("x-agent-id", "codex"),
            ("x-session-id", "ses_1"),
            ("x-datadog-parent-id", "7"),
        ] {
            assert_eq!(mark(name, value), None, "{name}: {value}");
        }
    }

    #[test]
    fn codex_says_it_in_the_body_as_well() {
        let body = r#"{"input":"hi","client_metadata":{"x-codex-turn-metadata":"{\"request_kind\":\"compaction\"}"}}"#;
        let chat = ChatRequest::parse(Api::Responses, body.into()).unwrap();
        let headers = HeaderMap::new();
        assert_eq!(ErrandMark::of(&headers, &chat), Some(ErrandMark::Errand));
    }
}
