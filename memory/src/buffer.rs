//! What the owner typed and was not read for facts yet: `.buffer.jsonl` in the folder of memories. It outlives a
//! restart, and is small, because a session is read after a few messages.

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
/// The most messages that wait. Beyond it, the oldest are dropped: what they say is said again.
const MAX_TURNS: usize = 2_000;
/// The longest message that is kept, in bytes. Of a longer one, the beginning is.
const MAX_BYTES: usize = 16 * 1024;

/// One message of the owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BufferedTurn {
    pub agent: AgentId,
    pub session: SessionId,
    pub scope: MemoryScope,
    /// The turn in the log, or `None` if it came by the memory API.
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
    /// Returns when something was said in it last.
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

    /// Adds a message of the owner. Returns how many of its session wait now. It accesses the file system.
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
            let too_many = all.len().saturating_sub(MAX_TURNS);
            all.drain(..too_many);
            write_lines(&path, &all)?;
        }
        let of_session = all
            .iter()
            .filter(|it| it.agent == turn.agent && it.session == turn.session);
        Ok(of_session.count())
    }

    /// Returns what waits, by session, of those that fit. It stays there until [`Self::unbuffer`] removes it, so that a
    /// process that ends meanwhile loses nothing.
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

    /// Gives messages that wait another scope.
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

    /// Removes messages that were read, or are to be forgotten. Returns their number.
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
