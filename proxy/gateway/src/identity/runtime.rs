//! OpenClaw's own line about itself, the one place where it names its session by default.
//!
//! `Runtime: agent=main | session=agent:main:explicit:<uuid> | sessionId=<uuid> | host=…`, in the
//! first user message of a session, or in the system text (as observed of OpenClaw 2026.9.6).

use metaclaw_chat::{AgentId, Role, SessionId};

use crate::request::Conversation;

const LINE: &str = "Runtime: agent=";

/// What the line says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Runtime {
    pub agent: Option<AgentId>,
    pub session: Option<SessionId>,
}

// === impl Runtime ===

impl Runtime {
    /// Reads the line from the system texts or the first thing that a user said; nothing that a tool
    /// returned, nor what came later, can name a session. OpenClaw writes its line after what the user
    /// said, so of several the last one counts: a text that is quoted there has no say.
    pub(super) fn find(conversation: &Conversation) -> Self {
        let mut all = conversation.each().iter();
        let first = all.clone().find(|said| said.role == Role::User);
        let system = all.by_ref().filter(|said| said.role == Role::System);
        let mut places = first.into_iter().chain(system);
        let line = places.find_map(|said| conversation.last_line(said, LINE));
        line.map_or_else(Self::default, |line| Self::read(&line))
    }

    fn read(line: &str) -> Self {
        let field = |name: &str| {
            let mut fields = line.trim_start_matches("Runtime: ").split(" | ");
            fields.find_map(|field| field.strip_prefix(name)?.strip_prefix('='))
        };
        Self {
            agent: field("agent").and_then(|agent| agent.trim().parse().ok()),
            session: field("sessionId").and_then(|session| session.parse().ok()),
        }
    }
}

#[cfg(test)]
mod tests {
    use metaclaw_chat::Message;

    use super::*;

    const TEXT: &str = "[Fri 2026-11-20 05:31 UTC] Say hello.\n\nRuntime: agent=main | session=agent:main:explicit:0b3 | sessionId=0b3c9a52-0000-4000-8000-000000000001 | host=x | model=proxied/mock-model";

    #[test]
    fn the_line_is_read_where_openclaw_writes_it_and_nowhere_else() {
        let read = |messages: &[Message]| Runtime::find(&Conversation::of(messages));
        let first = read(&[Message::system("You are…"), Message::user(TEXT)]);
        assert_eq!(first.agent.unwrap().as_str(), "main");
        assert_eq!(
            first.session.unwrap().as_str(),
            "0b3c9a52-0000-4000-8000-000000000001"
        );
        assert!(read(&[Message::system(TEXT)]).session.is_some());
        assert_eq!(
            read(&[Message::user("hi"), Message::user(TEXT)]),
            Runtime::default()
        );
        assert_eq!(
            read(&[Message::user("hi"), Message::new("tool", TEXT)]),
            Runtime::default()
        );
        let quoted = format!("Runtime: agent=other | sessionId=theirs\n\n{TEXT}");
        assert_eq!(
            read(&[Message::user(quoted)]).agent.unwrap().as_str(),
            "main",
            "a text that is passed on has no say: OpenClaw's own line comes last"
        );
        let bad = read(&[Message::user("Runtime: agent=../x | host=y")]);
        assert_eq!(bad, Runtime::default());
    }
}
