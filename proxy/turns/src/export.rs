//! The log as JSON lines: one turn a line, whole, session by session.

use metaclaw_chat::{AgentId, SessionId, TurnId};
use tokio::io::{AsyncWrite, AsyncWriteExt as _};

use crate::{
    error::{ExportError, LogError},
    keys,
    log::TurnLog,
    query,
    resolve::Resolver,
    store::Table,
    tail::SessionRecord,
    turn::Turn,
    txn::{Reader, Source},
};

/// Turns that are read at once: a long session is never whole in memory.
const PAGE: usize = 16;

/// What to export; all of it by default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExportFilter {
    /// Only this agent's.
    pub agent: Option<AgentId>,
    /// Only this session's.
    pub session: Option<SessionId>,
}

// === impl TurnLog ===

impl TurnLog {
    /// Writes turns as JSON lines, by session and place; returns how many.
    ///
    /// # Errors
    /// [`ExportError`]; what was written until then is whole lines.
    pub async fn export<W: AsyncWrite + Unpin>(
        &self,
        to: &mut W,
        filter: &ExportFilter,
    ) -> Result<u64, ExportError> {
        let mut sessions = self.sessions(filter.agent.as_ref(), usize::MAX).await?;
        sessions.retain(|it| {
            filter
                .session
                .as_ref()
                .is_none_or(|name| *name == it.session)
        });
        let mut n_turns = 0;
        for session in sessions.into_iter().rev() {
            let (agent, number) = (session.agent, session.number);
            let ids = self
                .read(move |reader| query::turn_ids(reader, &agent, number))
                .await?;
            for page in ids.chunks(PAGE) {
                for turn in self.page(page.to_vec()).await? {
                    let mut line =
                        serde_json::to_vec(&turn).map_err(|error| LogError::Damaged {
                            what: format!("turn {}", turn.id),
                            why: error.to_string(),
                        })?;
                    line.push(b'\n');
                    to.write_all(&line).await?;
                    n_turns += 1;
                }
            }
        }
        to.flush().await?;
        Ok(n_turns)
    }

    /// Some turns of one session.
    async fn page(&self, ids: Vec<TurnId>) -> Result<Vec<Turn>, LogError> {
        self.read(move |reader: &Reader| {
            let Some(number) = ids.first().map(|id| id.session) else {
                return Ok(Vec::new());
            };
            let session: Option<SessionRecord> =
                reader.get_json(Table::Sessions, &keys::session(number))?;
            let Some(session) = session else {
                return Ok(Vec::new());
            };
            let mut resolver = Resolver::new(reader, number);
            let turns = ids.iter().map(|id| resolver.turn(&session, id.seq));
            turns.filter_map(Result::transpose).collect()
        })
        .await
    }
}
