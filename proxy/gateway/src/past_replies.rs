//! What was said up to a reply: a request of Responses may name the reply instead of repeating it.

use std::{future::Future, pin::Pin, time::Duration};

use metaclaw_chat::{AgentId, Message, SessionId};
use metaclaw_turns::{LogError, Replied, TurnLog};
use tokio::time::{Instant, sleep};

/// How long a reply that has just been given may take to its place in the log.
const WRITTEN_WITHIN: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The conversations of the log.
pub trait PastReplies: Send + Sync + 'static {
    /// What this agent's conversation was up to the reply that its upstream named so, the reply the last message;
    /// `None` where the log has none.
    fn conversation<'a>(&'a self, agent: &'a AgentId, reply_id: &'a str) -> Finding<'a>;

    /// The replies of a session, the oldest first.
    fn replies<'a>(&'a self, agent: &'a AgentId, session: &'a SessionId) -> Replies<'a>;
}

/// What [`PastReplies::conversation`] gives.
pub type Finding<'a> =
    Pin<Box<dyn Future<Output = Result<Option<Vec<Message>>, LogError>> + Send + 'a>>;

/// What [`PastReplies::replies`] gives.
pub type Replies<'a> = Pin<Box<dyn Future<Output = Result<Vec<Replied>, LogError>> + Send + 'a>>;

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

    fn replies<'a>(&'a self, agent: &'a AgentId, session: &'a SessionId) -> Replies<'a> {
        Box::pin(self.replies(agent, session))
    }
}

/// The same, and where the reply `is_known` to be under way to the log, once it is there.
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
