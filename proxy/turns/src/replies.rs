//! The replies of a session, without the requests.

use metaclaw_chat::{AgentId, Message, SessionId, TurnId};

use crate::{
    keys,
    lines::LineReader,
    log::{LogFuture, TurnLog},
    read,
    record::{Record, Setup},
    session::SessionRecord,
    store::Store,
    texts,
    values::{self, TxnError},
};

/// A reply, and the upstream that made it.
#[derive(Debug, Clone, PartialEq)]
pub struct Replied {
    /// The upstream's name in the configuration.
    pub upstream: String,
    /// Whether a part of its text was masked.
    pub masked: bool,
    /// The reply, as far as it arrived.
    pub reply: Message,
}

impl TurnLog {
    /// Returns the replies of a session, the oldest first. Unreadable ones are left out.
    ///
    /// # Errors
    /// Returns the store's error.
    pub fn replies(&self, agent: &AgentId, session: &SessionId) -> LogFuture<'_, Vec<Replied>> {
        let (agent, session) = (agent.clone(), session.clone());
        self.read(move |store| {
            let Some(number) = SessionRecord::number(store, &agent, &session)? else {
                return Ok(Vec::new());
            };
            let mut replies = Vec::new();
            for id in (0..).map(|seq| keys::id(number, seq)) {
                match values::readable(replied(store, id))? {
                    Some(ReplyRead::Reply(reply)) => replies.push(reply),
                    Some(ReplyRead::Silence) | None => {}
                    Some(ReplyRead::End) => break,
                }
            }
            Ok(replies)
        })
    }
}

/// The result of reading one place.
enum ReplyRead {
    Reply(Replied),
    /// A turn without a reply.
    Silence,
    /// No turn. The session has no later one.
    End,
}

fn replied(store: &Store, id: TurnId) -> Result<ReplyRead, TxnError> {
    let Some(record) = Record::get(store, id)? else {
        return Ok(ReplyRead::End);
    };
    let (_, served): Setup = texts::value(store, &record.setup)?;
    let reply = read::reply(&mut LineReader::new(store), id, &record)?;
    Ok(reply.map_or(ReplyRead::Silence, |reply| {
        ReplyRead::Reply(Replied {
            upstream: served.upstream,
            masked: record.meta.masked,
            reply,
        })
    }))
}
