//! The log as JSON lines: one turn a line, whole, session by session.

use tokio::io::{AsyncWrite, AsyncWriteExt as _};

use crate::{
    error::{ExportError, LogError},
    log::TurnLog,
    read,
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
}
