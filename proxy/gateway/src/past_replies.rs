//! Finds the conversation up to a reply, because a request in Responses may name the reply instead of repeating the
//! conversation.

use std::{future::Future, pin::Pin, time::Duration};

use metaclaw_chat::{AgentId, Message, SessionId};
use metaclaw_turns::{LogError, Replied, TurnLog};
use tokio::time::{Instant, sleep};

/// How long a reply that was just given may take to reach the log.
const WRITTEN_WITHIN: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The conversations of the log.
pub trait PastReplies: Send + Sync + 'static {
    /// Returns this agent's conversation up to the reply with its upstream's id, with the reply as the last message, or
    /// `None` if the log has none.
    fn conversation<'a>(&'a self, agent: &'a AgentId, reply_id: &'a str) -> Finding<'a>;

    /// Returns the replies of a session, the oldest first.
    fn replies<'a>(&'a self, agent: &'a AgentId, session: &'a SessionId) -> RepliesFuture<'a>;
}

/// The future that [`PastReplies::conversation`] returns.
pub type Finding<'a> =
    Pin<Box<dyn Future<Output = Result<Option<Vec<Message>>, LogError>> + Send + 'a>>;

/// The future that [`PastReplies::replies`] returns.
pub type RepliesFuture<'a> =
    Pin<Box<dyn Future<Output = Result<Vec<Replied>, LogError>> + Send + 'a>>;

impl PastReplies for TurnLog {
    fn conversation<'a>(&'a self, agent: &'a AgentId, reply_id: &'a str) -> Finding<'a> {
        Box::pin(async move {
            for id in self.by_reply(reply_id).await?.into_iter().rev() {
                let turn = self.get(id).await?.filter(|turn| turn.agent == *agent);
                if let Some((mut said, reply)) =
                    turn.and_then(|turn| Some((turn.request.messages, turn.reply?)))
                {
                    said.push(reply);
                    return Ok(Some(said));
                }
            }
            Ok(None)
        })
    }

    fn replies<'a>(&'a self, agent: &'a AgentId, session: &'a SessionId) -> RepliesFuture<'a> {
        Box::pin(self.replies(agent, session))
    }
}

/// Finds the conversation. If the reply `is_known` to be on its way to the log, waits for it.
pub(crate) async fn find(
    past: &dyn PastReplies,
    agent: &AgentId,
    reply_id: &str,
    is_known: bool,
) -> Result<Option<Vec<Message>>, LogError> {
    let until = Instant::now() + WRITTEN_WITHIN;
    loop {
        let found = past.conversation(agent, reply_id).await?;
        if found.is_some() || !is_known || Instant::now() >= until {
            return Ok(found);
        }
        sleep(LOOK_EVERY).await;
    }
}
