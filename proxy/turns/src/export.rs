//! The log as JSON lines: one turn a line, whole, session by session; and back.

use metaclaw_chat::TurnId;
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::{
    error::{ExportError, ImportError, LogError},
    log::TurnLog,
    new_turn::NewTurn,
    read,
    turn::{Turn, TurnState},
};

// === impl TurnLog ===

impl TurnLog {
    /// Writes all turns as JSON lines, by session and place; returns how many.
    ///
    /// # Errors
    /// [`ExportError`]; what was written until then is whole lines.
    pub async fn export<W: AsyncWrite + Unpin>(&self, to: &mut W) -> Result<u64, ExportError> {
        let mut n_turns = 0;
        for (number, _) in self.sessions().await? {
            let ids = self.read(move |store| read::turn_ids(store, number));
            for id in ids.await? {
                if let Some(turn) = self.get(id).await? {
                    let mut line = serde_json::to_vec(&turn).map_err(LogError::from)?;
                    line.push(b'\n');
                    to.write_all(&line).await?;
                    n_turns += 1;
                }
            }
        }
        to.flush().await?;
        Ok(n_turns)
    }

    /// Reads turns as [`TurnLog::export`] wrote them; returns how many. They get ids of this log. Verdicts,
    /// ids and what was set aside come along; the steps that used a turn do not, so that one which was
    /// trained is judged here.
    ///
    /// # Errors
    /// [`ImportError`]; the turns of the lines before stay.
    pub async fn import<R: AsyncBufRead + Unpin>(&self, from: &mut R) -> Result<u64, ImportError> {
        let mut lines = from.lines();
        let mut n_turns = 0;
        while let Some(line) = lines.next_line().await? {
            n_turns += 1;
            let turn = serde_json::from_str(&line);
            let turn: Turn = turn.map_err(|source| ImportError::Line { n: n_turns, source })?;
            self.restore(turn).await?;
        }
        Ok(n_turns)
    }

    async fn restore(&self, mut turn: Turn) -> Result<TurnId, LogError> {
        let verdicts = std::mem::take(&mut turn.overruled).into_iter();
        let verdicts: Vec<_> = verdicts.chain(turn.verdict.take()).collect();
        let state = turn.state.clone();
        let id = self.append(NewTurn::again(turn)?).await?;
        for verdict in verdicts {
            self.overrule(id, verdict).await?;
        }
        match state {
            TurnState::Spent { why } => self.spend(id, &why).await?,
            TurnState::HeldOut => self.hold_out(id).await?,
            TurnState::Captured
            | TurnState::Judged
            | TurnState::Taken { .. }
            | TurnState::Trained { .. } => true,
        };
        Ok(id)
    }
}
