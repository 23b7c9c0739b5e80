//! Which session a reply belongs to: the Responses API names the reply that a request goes on from.

use std::sync::{Mutex, PoisonError};

use memchr::memmem;
use metaclaw_chat::{AgentId, ChainHash, SessionId};

use crate::{
    recent::Recent,
    record::Format,
    scan::{self, text},
};

/// How many replies are remembered, about: 200 bytes each.
const BOUND: usize = 20_000;

/// The replies of late.
#[derive(Debug)]
pub(crate) struct Replies {
    known: Mutex<Recent<(AgentId, String), Replied>>,
}

/// A reply that a request may go on from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Replied {
    pub session: SessionId,
    /// The hash of the conversation with the reply.
    pub chain: ChainHash,
}

// === impl Replies ===

impl Replies {
    pub(crate) fn new() -> Self {
        Self {
            known: Mutex::new(Recent::new(BOUND)),
        }
    }

    /// The reply of that id, if it was this agent's.
    pub(crate) fn get(&self, agent: &AgentId, id: &str) -> Option<Replied> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get_mut(&(agent.clone(), id.to_owned())).cloned()
    }

    /// Remembers a reply.
    pub(crate) fn put(&self, agent: &AgentId, id: String, replied: Replied) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert((agent.clone(), id), replied);
    }
}

/// The id of a response, which it says in its first event.
///
/// Found before the agent has the reply's last byte: its next request may be quicker than the log.
pub(crate) fn response_id(format: Format, reply: &[u8]) -> Option<String> {
    let response = match format {
        Format::Json => 0..reply.len(),
        Format::Sse => {
            let begin = memmem::find(reply, b"data:")? + b"data:".len();
            let event = &reply[begin..];
            let end = event.iter().position(|b| matches!(b, b'\n' | b'\r'));
            let event = begin..begin + end.unwrap_or(event.len());
            scan::member(reply, &event, "response")?
        }
    };
    let id = scan::member(reply, &response, "id")?;
    scan::is_string(reply, &id).then(|| text::read(&reply[id]).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_names_itself_in_its_first_event_or_its_body() {
        let event = b"event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"object\":\"response\",\"id\":\"resp_1\",\"output\":[]},\"id\":7}\n\ndata: {\"response\":{\"id\":\"x\"}}";
        assert_eq!(response_id(Format::Sse, event).unwrap(), "resp_1");
        let body = b" {\"object\":\"response\",\"id\":\"resp_2\"}";
        assert_eq!(response_id(Format::Json, body).unwrap(), "resp_2");
        for broken in [
            &b"data: {\"response\":{\"id\":"[..],
            b"",
            b"data:",
            b"data: []",
        ] {
            assert_eq!(response_id(Format::Sse, broken), None);
        }
    }

    #[test]
    fn a_reply_is_known_to_its_own_agent_only() {
        let [main, other]: [AgentId; 2] = ["main", "other"].map(|name| name.parse().unwrap());
        let replies = Replies::new();
        let replied = Replied {
            session: "s".parse().unwrap(),
            chain: ChainHash::start(&main),
        };
        replies.put(&main, "resp_1".to_owned(), replied.clone());
        assert_eq!(replies.get(&main, "resp_1"), Some(replied));
        assert_eq!(replies.get(&other, "resp_1"), None);
    }
}
