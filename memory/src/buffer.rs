//! The messages of the owner that were not read for facts yet: `.buffer.jsonl` in the folder of memories.
//!
//! The file survives a restart. It is small, because a session is read after a few messages.

use std::path::PathBuf;

use metaclaw_chat::{AgentId, SessionId, TurnId, head};
use serde::{Deserialize, Serialize};

use crate::{
    error::MemoryError,
    lines::{read_lines, write_lines},
    scope::MemoryScope,
    store::MemoryStore,
};

const FILE: &str = ".buffer.jsonl";
/// The most messages in the buffer. Beyond this, the oldest are dropped, because a lasting fact is usually repeated.
const MAX_TURNS: usize = 2_000;
/// The most bytes of all messages together. JSON escapes may make the file six times as long, and a file of more than
/// 16 MiB is not read.
const MAX_TOTAL: usize = 2 << 20;
/// The longest message that is kept, in bytes. A longer one is cut off.
const MAX_BYTES: usize = 16 * 1024;

/// One message of the owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BufferedTurn {
    pub agent: AgentId,
    pub session: SessionId,
    pub scope: MemoryScope,
    /// The turn in the log, or `None` if a program sent the message to the memory API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<TurnId>,
    pub said: String,
    /// When it was said, in Unix milliseconds.
    pub at_ms: u64,
}

/// The messages of one session, oldest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BufferedSession {
    pub agent: AgentId,
    pub session: SessionId,
    pub turns: Vec<BufferedTurn>,
}

// === impl BufferedSession ===

impl BufferedSession {
    /// Returns the time of the last message, in Unix milliseconds.
    pub fn last_ms(&self) -> u64 {
        self.turns
            .iter()
            .map(|it| it.at_ms)
            .max()
            .unwrap_or_default()
    }
}

// === impl MemoryStore ===

impl MemoryStore {
    fn buffer_path(&self) -> PathBuf {
        self.dir().join(FILE)
    }

    /// Adds a message of the owner, and returns the number of messages of its session in the buffer. A turn that is in
    /// the buffer already is not added again. It accesses the file system.
    ///
    /// # Errors
    /// [`MemoryError`] if the file cannot be read or written.
    pub fn buffer(&self, mut turn: BufferedTurn) -> Result<usize, MemoryError> {
        turn.said = head(&turn.said, MAX_BYTES).to_owned();
        let _lock = self.files().lock()?;
        let path = self.buffer_path();
        let mut all: Vec<BufferedTurn> = read_lines(&path)?;
        let is_known = turn.turn.is_some() && all.iter().any(|it| it.turn == turn.turn);
        if !is_known {
            all.push(turn.clone());
            drop_oldest(&mut all);
            write_lines(&path, &all)?;
        }
        let of_session = all
            .iter()
            .filter(|it| it.agent == turn.agent && it.session == turn.session);
        Ok(of_session.count())
    }

    /// Returns the messages for which `fits` is true, by session. They stay in the buffer until [`Self::unbuffer`]
    /// removes them, so that no message is lost if the process ends before it has stored the facts.
    ///
    /// # Errors
    /// [`MemoryError`] if the file cannot be read.
    pub fn buffered(
        &self,
        fits: impl Fn(&BufferedTurn) -> bool,
    ) -> Result<Vec<BufferedSession>, MemoryError> {
        let mut sessions: Vec<BufferedSession> = Vec::new();
        for turn in read_lines::<BufferedTurn>(&self.buffer_path())? {
            if !fits(&turn) {
                continue;
            }
            let known = sessions
                .iter_mut()
                .find(|it| it.agent == turn.agent && it.session == turn.session);
            match known {
                Some(session) => session.turns.push(turn),
                None => sessions.push(BufferedSession {
                    agent: turn.agent.clone(),
                    session: turn.session.clone(),
                    turns: vec![turn],
                }),
            }
        }
        Ok(sessions)
    }

    /// Changes the scope of the messages for which `fits` is true.
    ///
    /// # Errors
    /// [`MemoryError`] if the file cannot be read or written.
    pub fn rescope(
        &self,
        scope: &MemoryScope,
        fits: impl Fn(&BufferedTurn) -> bool,
    ) -> Result<(), MemoryError> {
        let _lock = self.files().lock()?;
        let path = self.buffer_path();
        let mut all: Vec<BufferedTurn> = read_lines(&path)?;
        let moved = all.iter_mut().filter(|it| fits(it) && it.scope != *scope);
        let n = moved.map(|it| it.scope = scope.clone()).count();
        if n > 0 {
            write_lines(&path, &all)?;
        }
        Ok(())
    }

    /// Removes the messages for which `goes` is true. Returns their number.
    ///
    /// # Errors
    /// [`MemoryError`] if the file cannot be read or written.
    pub fn unbuffer(&self, goes: impl Fn(&BufferedTurn) -> bool) -> Result<usize, MemoryError> {
        let path = self.buffer_path();
        if !path.exists() {
            return Ok(0);
        }
        let _lock = self.files().lock()?;
        let mut all: Vec<BufferedTurn> = read_lines(&path)?;
        let before = all.len();
        all.retain(|it| !goes(it));
        let n = before - all.len();
        if n > 0 {
            write_lines(&path, &all)?;
        }
        Ok(n)
    }
}

/// Keeps the newest messages that the limits allow.
fn drop_oldest(all: &mut Vec<BufferedTurn>) {
    let mut n_bytes = 0;
    let newest = all.iter().rev().take(MAX_TURNS).take_while(|turn| {
        n_bytes += turn.said.len();
        n_bytes <= MAX_TOTAL
    });
    let n_kept = newest.count();
    all.drain(..all.len() - n_kept);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_messages_stay_and_the_file_can_be_read() {
        let turn = |at_ms: u64| BufferedTurn {
            agent: AgentId::default_agent(),
            session: "a".parse().unwrap(),
            scope: MemoryScope::default(),
            turn: None,
            said: "\u{1}".repeat(MAX_BYTES),
            at_ms,
        };
        let mut all: Vec<BufferedTurn> = (0..140).map(turn).collect();
        drop_oldest(&mut all);
        assert_eq!((all.len(), all[0].at_ms), (MAX_TOTAL / MAX_BYTES, 12));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        write_lines(&path, &all).unwrap();
        assert_eq!(read_lines::<BufferedTurn>(&path).unwrap(), all);
    }
}
