//! Messages of the owner that were not read for facts yet. They are in `.buffer.jsonl`, and survive a restart.

use std::path::PathBuf;

use metaclaw_chat::{AgentId, SessionId, TurnId, head};
use serde::{Deserialize, Serialize};

use super::{MemoryError, MemoryScope, store::MemoryStore};
use crate::file::read_lines;

const BUFFER: &str = ".buffer.jsonl";
/// The most messages in the buffer. Beyond this, the oldest are dropped, because a lasting fact is usually repeated.
const MAX_TURNS: usize = 2_000;
/// The most bytes of all messages together. JSON escapes may make the file six times as long, and a file of more than
/// 16 MiB is not read.
const MAX_TOTAL: usize = 2 << 20;
/// The longest message that is kept, in bytes. A longer one is cut off.
const MAX_BYTES: usize = 16 * 1024;

/// One message of the owner that was not read for facts yet.
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

// === impl MemoryStore ===

/// The buffer.
impl MemoryStore {
    /// Adds a message of the owner, and returns the number of messages of its session in the buffer. A turn that is in
    /// the buffer already is not added again. It accesses the file system.
    ///
    /// # Errors
    /// [`MemoryError`] if the file cannot be read or written.
    pub fn buffer(&self, mut turn: BufferedTurn) -> Result<usize, MemoryError> {
        turn.said = head(&turn.said, MAX_BYTES).to_owned();
        self.change_lines(&self.buffer_path(), |all: &mut Vec<BufferedTurn>| {
            let is_known = turn.turn.is_some() && all.iter().any(|known| known.turn == turn.turn);
            if !is_known {
                all.push(turn.clone());
                drop_oldest(all);
            }
            let is_beside =
                |known: &&BufferedTurn| known.agent == turn.agent && known.session == turn.session;
            all.iter().filter(is_beside).count()
        })
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
        let turns = read_lines::<BufferedTurn>(&self.buffer_path())?;
        for turn in turns.into_iter().filter(|turn| fits(turn)) {
            let is_its = |session: &&mut BufferedSession| {
                session.agent == turn.agent && session.session == turn.session
            };
            match sessions.iter_mut().find(is_its) {
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
        self.change_lines(&self.buffer_path(), |all: &mut Vec<BufferedTurn>| {
            for turn in all.iter_mut().filter(|turn| fits(turn)) {
                turn.scope = scope.clone();
            }
        })
    }

    /// Removes the messages for which `goes` is true. Returns their number.
    ///
    /// # Errors
    /// [`MemoryError`] if the file cannot be read or written.
    pub fn unbuffer(&self, goes: impl Fn(&BufferedTurn) -> bool) -> Result<usize, MemoryError> {
        if !self.buffer_path().exists() {
            return Ok(0);
        }
        self.change_lines(&self.buffer_path(), |all: &mut Vec<BufferedTurn>| {
            all.extract_if(.., |turn| goes(turn)).count()
        })
    }

    pub(super) fn buffer_path(&self) -> PathBuf {
        self.dir().join(BUFFER)
    }
}

// === impl BufferedSession ===

impl BufferedSession {
    /// Returns the time of the last message, in Unix milliseconds.
    pub fn last_ms(&self) -> u64 {
        self.turns
            .iter()
            .map(|turn| turn.at_ms)
            .max()
            .unwrap_or_default()
    }
}

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
    use crate::{
        config::MemoryConfig,
        file::{write_lines, write_private},
    };

    #[test]
    fn messages_wait_until_they_were_read_and_the_newest_stay() {
        let dir = tempfile::tempdir().unwrap();
        let first = MemoryStore::open(dir.path().join("memory"), MemoryConfig::default());
        let turn = |session: &str, seq: Option<u32>| BufferedTurn {
            agent: "main".parse().unwrap(),
            session: session.parse().unwrap(),
            scope: MemoryScope::default(),
            turn: seq.map(|seq| TurnId { session: 1, seq }),
            said: "My name is Anna.".to_owned(),
            at_ms: 1,
        };
        for (session, seq, n) in [
            ("a", Some(0), 1),
            ("a", Some(1), 2),
            // A turn that comes into the log again is the same.
            ("a", Some(1), 2),
            ("b", None, 1),
            ("b", None, 2),
        ] {
            assert_eq!(first.buffer(turn(session, seq)).unwrap(), n);
        }
        let again = MemoryStore::open(first.dir(), MemoryConfig::default());
        let sessions = again.buffered(|_| true).unwrap();
        assert!(sessions.iter().map(|s| s.turns.len()).eq([2, 2]));
        assert_eq!(
            again.unbuffer(|key| key.session.as_str() == "a").unwrap(),
            2
        );
        again.forget_sessions(|_, it| it.as_str() == "b").unwrap();
        assert!(again.buffered(|_| true).unwrap().is_empty());
        // However long a file the newest messages make, it can be read.
        let long = (0..140).map(|at_ms| BufferedTurn {
            said: "\u{1}".repeat(MAX_BYTES),
            at_ms,
            ..turn("c", None)
        });
        let mut all: Vec<BufferedTurn> = long.collect();
        drop_oldest(&mut all);
        assert_eq!((all.len(), all[0].at_ms), (MAX_TOTAL / MAX_BYTES, 12));
        write_lines(&again.buffer_path(), &all, write_private).unwrap();
        assert_eq!(
            read_lines::<BufferedTurn>(&again.buffer_path()).unwrap(),
            all
        );
    }
}
