//! The internals that the fuzz targets of `tests/fuzz` use. Only `--cfg fuzzing` makes it public. Tests compile it too,
//! so that it stays up to date.

use std::sync::OnceLock;

use http::HeaderMap;
use metaclaw_chat::{AgentId, ChainHash, SessionId};
use metaclaw_dialects::{Api, request::ChatRequest};

use crate::{
    auth::caller::Caller,
    config::{AgentRoutes, CompatConfig},
    headers,
    identity::{Claims, Delegations, Identifier, Lineage, SidePatterns},
};

/// Identifies requests, and remembers them for the next one.
#[derive(Debug)]
pub struct Who {
    identifier: Identifier,
    caller: Caller,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub agent: AgentId,
    pub session: SessionId,
    /// Whether it is not a side turn.
    pub is_main: bool,
    /// Whether the session ends with this turn.
    pub is_last: bool,
    /// The hash of the conversation.
    pub chain: ChainHash,
}

// === impl Who ===

impl Who {
    /// Makes one for a caller whose key is valid for these agents, or for any if there are none.
    ///
    /// # Errors
    ///
    /// Fails if the built-in patterns do not compile.
    pub fn new(agents: &[AgentId], session_implies_side: bool) -> Result<Self, String> {
        let compat = CompatConfig {
            session_implies_side,
            ..CompatConfig::default()
        };
        // The patterns are compiled once, because that takes longer than a thousand requests.
        static SIDE: OnceLock<Result<SidePatterns, String>> = OnceLock::new();
        let side = SIDE.get_or_init(|| SidePatterns::new(&[]).map_err(|error| error.to_string()));
        let side = side.clone()?;
        let lineage = Lineage::new(std::time::Duration::from_secs(600), Vec::new());
        let caller = if agents.is_empty() {
            Caller::Any
        } else {
            Caller::Of(agents.into())
        };
        Ok(Self {
            identifier: Identifier::new(
                lineage,
                Delegations::new(&[]),
                side,
                &compat,
                AgentRoutes::default(),
            ),
            caller,
        })
    }

    /// Identifies the sender of a request.
    ///
    /// # Errors
    ///
    /// Returns the reason of a refusal in the agent's words.
    pub fn asks(&self, api: Api, headers: &HeaderMap, body: &[u8]) -> Result<Found, String> {
        let chat =
            ChatRequest::parse(api, body.to_vec().into()).map_err(|error| error.to_string())?;
        let claims = Claims {
            headers,
            chat: &chat,
            caller: &self.caller,
        };
        let who = self.identifier.identify(&claims);
        let (who, start) = who.map_err(|refusal| refusal.to_string())?;
        Ok(Found {
            agent: who.agent,
            session: who.session,
            is_main: who.kind == metaclaw_turns::TurnKind::Main,
            is_last: who.is_last,
            chain: chat.chains(start).pop().unwrap_or(start),
        })
    }
}

/// Returns a request's headers as they go upstream, if the caller's key is one of ours.
pub fn upwards(headers: HeaderMap) -> HeaderMap {
    headers::upwards(headers, None, false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_the_inside_as_it_is() {
        let raw = br#"{"session_id":"s","messages":[{"role":"user","content":"hi"}]}"#;
        let work: AgentId = "work".parse().unwrap();
        let who = Who::new(std::slice::from_ref(&work), false).unwrap();
        let mut headers = HeaderMap::new();
        let found = who.asks(Api::Chat, &headers, raw).unwrap();
        assert_eq!(
            (found.agent, found.session.as_str(), found.is_main),
            (work, "s", true)
        );
        headers.insert("x-agent-id", http::HeaderValue::from_static("home"));
        who.asks(Api::Chat, &headers, raw).unwrap_err();
        assert!(upwards(headers).is_empty());
    }
}
