//! Reads OpenClaw's line about itself, the only place where it names its session by default.
//!
//! The line is `Runtime: agent=main | session=agent:main:explicit:<uuid> | sessionId=<uuid> | host=…`, in the system
//! text, or in the first user message of a session (as observed of OpenClaw 2026.9.6).

use metaclaw_chat::{AgentId, Role, SessionId};
use metaclaw_dialects::request::{ChatRequest, MessageRef};

const LINE: &str = "Runtime: agent=";

/// The fields of such a line that are used.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Runtime {
    pub agent: Option<AgentId>,
    pub session: Option<SessionId>,
}

// === impl Runtime ===

impl Runtime {
    /// Reads the line of the system text, which is the application's own.
    pub(super) fn in_system(chat: &ChatRequest) -> Self {
        let mut system = chat.messages().filter(|it| it.role() == Role::System);
        let line = system.find_map(|message| line(&message));
        line.map_or_else(Self::default, |line| Self::parse(&line))
    }

    /// Reads the line of the first user message. Later messages and results of tools do not count. The text may be
    /// anybody's: a forwarded mail, or another sender in a channel.
    pub(super) fn in_user(chat: &ChatRequest) -> Self {
        let first = chat.messages().find(|it| it.role() == Role::User);
        let line = first.as_ref().and_then(line);
        line.map_or_else(Self::default, |line| Self::parse(&line))
    }

    fn parse(line: &str) -> Self {
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

/// Returns the last such line, because OpenClaw writes its own after the user's text, which may quote another.
fn line(message: &MessageRef<'_>) -> Option<String> {
    // Most texts have none, and are long.
    if !message.may_say(LINE) {
        return None;
    }
    let text = message.text();
    let line = text.lines().rev().find(|line| line.starts_with(LINE));
    line.map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use metaclaw_chat::Message;

    use super::*;
    use crate::identity::testing::request;

    const TEXT: &str = "[Fri 2026-11-20 05:31 UTC] Say hello.\n\nRuntime: agent=main | session=agent:main:explicit:0b3 | sessionId=0b3c9a52-0000-4000-8000-000000000001 | host=x | model=proxied/mock-model";

    #[test]
    fn the_line_is_read_where_openclaw_writes_it_and_nowhere_else() {
        let user = |messages: &[Message]| Runtime::in_user(&request(messages));
        let system = |messages: &[Message]| Runtime::in_system(&request(messages));
        let first = user(&[Message::system("You are…"), Message::user(TEXT)]);
        assert_eq!(first.agent.unwrap().as_str(), "main");
        assert_eq!(
            first.session.unwrap().as_str(),
            "0b3c9a52-0000-4000-8000-000000000001"
        );
        assert!(system(&[Message::system(TEXT)]).session.is_some());
        assert_eq!(user(&[Message::system(TEXT)]), Runtime::default());
        assert_eq!(system(&[Message::user(TEXT)]), Runtime::default());
        let later = [Message::user("hi"), Message::user(TEXT)];
        assert_eq!(user(&later), Runtime::default());
        let tools = [Message::user("hi"), Message::new("tool", TEXT)];
        assert_eq!(user(&tools), Runtime::default());
        let quoted = format!("Runtime: agent=other | sessionId=theirs\n\n{TEXT}");
        assert_eq!(
            user(&[Message::user(quoted)]).agent.unwrap().as_str(),
            "main",
            "a text that is passed on has no say: OpenClaw's own line comes last"
        );
        for none in ["Runtime: agent=../x | host=y", "no Runtime: agent=main"] {
            assert_eq!(user(&[Message::user(none)]), Runtime::default());
        }
    }
}
