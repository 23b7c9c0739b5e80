//! New turns for the readers of wishes and of facts: each once, also after a kill.

use std::{collections::VecDeque, sync::Arc};

use metaclaw_chat::TurnId;
use metaclaw_turns::{LogError, LogReader, Turn};
use tokio::sync::broadcast::{Receiver, error::RecvError};

use crate::shared::Shared;

/// Turns after which it is noted that they are read, if no reader does. After a kill they are read again.
const UNNOTED: usize = 256;
/// Turns whose ids are remembered: one that is tried again comes into the log again, under its id.
const REMEMBERED: usize = 64;

/// The turns that at least one of the readers has not read yet. They are read from the log once for all readers.
#[derive(Debug)]
pub(crate) struct UnreadTurns {
    shared: Arc<Shared>,
    /// Each reader, with the last transaction that it had read when the process started.
    readers: Vec<(LogReader, u64)>,
    appended: Receiver<TurnId>,
    /// Turns of the transaction `last`. All before it are read.
    waiting: VecDeque<TurnId>,
    last: u64,
    n_unnoted: usize,
    known: VecDeque<TurnId>,
}

// === impl UnreadTurns ===

impl UnreadTurns {
    /// Goes on where the readers stopped before, each for itself, if at least one is on. A turn that comes from now on is
    /// read. What comes while a reader is off is never read by it.
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
            known: VecDeque::with_capacity(REMEMBERED),
        }))
    }

    /// Waits for the next turn, except for imported ones and those of agents that are only relayed. Returns `None` if the
    /// log is closed.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub(crate) async fn next(&mut self) -> Option<Turn> {
        loop {
            let Some(id) = self.waiting.front().copied() else {
                self.find().await?;
                continue;
            };
            let turn = self.shared.persist(|| self.shared.log.get(id)).await;
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
                Err(error) => tracing::warn!(%error, turn = %id, "a new turn could not be read"),
            }
        }
    }

    /// Returns whether a reader is to read the turn that [`Self::next`] returned last.
    pub(crate) fn is_new_to(&self, reader: LogReader) -> bool {
        let mut readers = self.readers.iter();
        readers.any(|(one, from)| *one == reader && *from < self.last)
    }

    /// Finds the next turns, or waits until there may be some. Returns `None` if the log is closed.
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
            Err(error) => tracing::warn!(%error, "new turns could not be found"),
        }
        if self.appended.recv().await == Err(RecvError::Closed) {
            return None;
        }
        // All turns whose ids are in the channel are found by the next search.
        self.appended = self.appended.resubscribe();
        Some(())
    }

    /// Notes that a reader has read the turn that [`Self::next`] returned last and all before it, so that it does not read
    /// them again.
    pub(crate) async fn note(&self, reader: LogReader) {
        // A part of a transaction is read again.
        let is_part = !self.waiting.is_empty();
        let last = self.last.saturating_sub(u64::from(is_part));
        self.note_until(reader, last).await;
    }

    async fn note_until(&self, reader: LogReader, last: u64) {
        let log = &self.shared.log;
        let noted = self.shared.persist(|| log.note_read(reader, Some(last)));
        if let Err(error) = noted.await {
            tracing::warn!(%error, "it could not be noted which turns are read");
        }
    }
}

#[cfg(test)]
mod tests;
