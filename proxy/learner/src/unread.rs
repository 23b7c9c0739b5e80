//! Gives each new turn once to the readers of wishes and of facts, even after a kill.

use std::{collections::VecDeque, sync::Arc};

use metaclaw_chat::TurnId;
use metaclaw_turns::{LogError, LogReader, Turn};
use tokio::sync::broadcast::{Receiver, error::RecvError};

use crate::shared::Shared;

/// After this many turns, it is noted that they are read, if no reader has noted it. After a kill, turns without a note
/// are read again.
const UNNOTED: usize = 256;
/// The number of turns whose ids are remembered. A turn that is tried again comes into the log again, under its id.
const REMEMBERED: usize = 64;

/// The turns that at least one of the readers has not read yet. They are read from the log once for all readers.
#[derive(Debug)]
pub(crate) struct UnreadTurns {
    shared: Arc<Shared>,
    /// Each reader, with the last transaction that it had read when the process started.
    readers: Vec<(LogReader, u64)>,
    appended: Receiver<TurnId>,
    waiting: VecDeque<TurnId>,
    /// The transaction that is being read. All before it are read.
    last: u64,
    n_unnoted: usize,
    /// The last transaction before the turns whose words wait to be read for wishes, if any wait.
    before_waiting: Option<u64>,
    known: VecDeque<TurnId>,
}

// === impl UnreadTurns ===

impl UnreadTurns {
    /// Continues for each reader where that reader stopped. Returns `None` if all readers are off. Turns that come
    /// while a reader is off are never read by it.
    pub(crate) async fn resume(
        shared: &Arc<Shared>,
        readers: [(LogReader, bool); 2],
    ) -> Result<Option<Self>, LogError> {
        let (log, appended) = (&shared.log, shared.log.subscribe());
        let mut resumed = Vec::new();
        for (reader, is_on) in readers {
            if is_on {
                resumed.push((reader, shared.persist(|| log.resume(reader)).await?));
            } else {
                shared.persist(|| log.note_read(reader, None)).await?;
            }
        }
        let last = resumed.iter().map(|(_, from)| *from).min();
        Ok(last.map(|last| Self {
            shared: Arc::clone(shared),
            readers: resumed,
            appended,
            waiting: VecDeque::new(),
            last,
            n_unnoted: 0,
            before_waiting: None,
            known: VecDeque::with_capacity(REMEMBERED),
        }))
    }

    /// Waits for the next turn. Imported turns and those of agents that are only relayed are left out. Returns `None`
    /// if the log is closed.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub(crate) async fn next(&mut self) -> Option<Turn> {
        loop {
            let Some(id) = self.waiting.front().copied() else {
                self.find().await?;
                continue;
            };
            let turn = self.shared.turn(id).await;
            self.waiting.pop_front();
            self.n_unnoted += 1;
            if self.known.contains(&id) {
                continue;
            }
            self.known.truncate(REMEMBERED - 1);
            self.known.push_front(id);
            let is_off = &self.shared.is_off;
            let is_heard = |turn: &Turn| turn.served.imported.is_none() && !is_off(&turn.agent);
            match turn {
                Ok(Some(turn)) if is_heard(&turn) => return Some(turn),
                Ok(_) => {}
                Err(LogError::Closed) => return None,
                Err(error) => tracing::warn!(%error, turn = %id, "cannot read a new turn"),
            }
        }
    }

    /// Returns whether a reader has not yet read the turn that [`Self::next`] returned last.
    pub(crate) fn is_new_to(&self, reader: LogReader) -> bool {
        let mut readers = self.readers.iter();
        readers.any(|(one, from)| *one == reader && *from < self.last)
    }

    /// Notes for the reader of wishes that it has read the turn that [`Self::next`] returned last, and all before it, or that
    /// words of that turn wait to be read. Turns whose words wait are read again after a kill.
    pub(crate) async fn heard(&mut self, is_read: bool) {
        let before = self
            .before_waiting
            .unwrap_or_else(|| self.last.saturating_sub(1));
        self.before_waiting = (!is_read).then_some(before);
        self.note(LogReader::Wishes).await;
    }

    async fn find(&mut self) -> Option<()> {
        if self.n_unnoted >= UNNOTED {
            for (reader, from) in &self.readers {
                self.note_until(*reader, self.last.max(*from)).await;
            }
            self.n_unnoted = 0;
        }
        let (log, last) = (&self.shared.log, self.last);
        match self.shared.persist(|| log.turns_since(last)).await {
            Ok(Some((last, turns))) => {
                (self.last, self.waiting) = (last, turns.into());
                return Some(());
            }
            Ok(None) => {}
            Err(LogError::Closed) => return None,
            Err(error) => tracing::warn!(%error, "cannot find new turns"),
        }
        if self.appended.recv().await == Err(RecvError::Closed) {
            return None;
        }
        // The next search finds all turns whose ids are in the channel.
        self.appended = self.appended.resubscribe();
        Some(())
    }

    /// Notes that a reader has read the turn that [`Self::next`] returned last, and all before it. They are not read
    /// again.
    pub(crate) async fn note(&self, reader: LogReader) {
        // A transaction is noted only when all its turns are read, so after a kill a part of it is read again.
        let is_part = !self.waiting.is_empty();
        let last = self.last.saturating_sub(u64::from(is_part));
        self.note_until(reader, last).await;
    }

    async fn note_until(&self, reader: LogReader, mut last: u64) {
        if let (LogReader::Wishes, Some(before)) = (reader, self.before_waiting) {
            last = last.min(before);
        }
        let log = &self.shared.log;
        let noted = self.shared.persist(|| log.note_read(reader, Some(last)));
        if let Err(error) = noted.await {
            tracing::warn!(%error, "cannot note which turns are read");
        }
    }
}

#[cfg(test)]
mod tests;
