//! Exports the log as JSON lines: one complete turn per line, in the order in which they came.

use metaclaw_chat::TurnId;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncWrite, AsyncWriteExt as _};

use crate::{
    error::{ExportError, LogError},
    log::TurnLog,
    statistics::LogCounts,
    turn::Turn,
};

/// A line of an export.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExportedTurn {
    #[serde(flatten)]
    pub turn: Turn,
    /// The counts of the whole log, beside the last turn. They may cover more than the exported turns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_counts: Option<LogCounts>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Exported {
    pub n_turns: u64,
    /// Damaged turns, which are missing because they cannot be read.
    pub unreadable: Vec<TurnId>,
}

// === impl TurnLog ===

impl TurnLog {
    /// Writes all turns as JSON lines, in the order in which they came.
    ///
    /// # Errors
    /// Returns [`ExportError`]. Everything written before it is complete lines.
    pub async fn export(
        &self,
        to: &mut (dyn AsyncWrite + Send + Unpin),
    ) -> Result<Exported, ExportError> {
        let mut exported = Exported::default();
        let mut last: Option<Turn> = None;
        for id in self.by_arrival().await? {
            match self.get(id).await {
                Ok(Some(turn)) => {
                    if let Some(before) = last.replace(turn) {
                        write(to, before, None).await?;
                    }
                    exported.n_turns += 1;
                }
                // The turn was deleted in the meantime.
                Ok(None) => {}
                Err(error @ LogError::Damaged { .. }) => {
                    tracing::warn!(turn = %id, %error, "a turn is missing in an export");
                    exported.unreadable.push(id);
                }
                Err(error) => return Err(error.into()),
            }
        }
        if let Some(last) = last {
            write(to, last, Some(self.counts().await?)).await?;
        }
        to.flush().await?;
        Ok(exported)
    }
}

async fn write(
    to: &mut (dyn AsyncWrite + Send + Unpin),
    turn: Turn,
    log_counts: Option<LogCounts>,
) -> Result<(), ExportError> {
    let exported = ExportedTurn { turn, log_counts };
    let mut line = serde_json::to_vec(&exported).map_err(LogError::from)?;
    line.push(b'\n');
    Ok(to.write_all(&line).await?)
}
