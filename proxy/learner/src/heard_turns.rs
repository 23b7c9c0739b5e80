//! Hears each turn as it comes into the log: what its owner wishes, and which facts the owner tells.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use metaclaw_chat::TurnId;
use metaclaw_skills::MemoryStore;
use metaclaw_turns::LogError;
use tokio::sync::{
    broadcast::{self, error::RecvError},
    mpsc,
};

use crate::{
    memory_extraction::{IngestError, buffer_turn, consolidate, ingest_silent},
    shared::Shared,
    wish_detection::hear_turn,
};

/// Turns whose ids are remembered: one that is tried again comes into the log again, under its id.
const REMEMBERED: usize = 64;
/// The most turns that wait while a model is asked. Further turns are not heard: what they say is said again.
const WAITING: usize = 1_024;
/// The time between two searches for silent sessions.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// Hears turns until the log closes or the learner ends. What was there before is never heard again: a wish that was
/// undone since would come back.
pub(crate) async fn run(shared: Arc<Shared>, appended: broadcast::Receiver<TurnId>) {
    let (came, waiting) = mpsc::channel(WAITING);
    let work = async { tokio::join!(listen(appended, came), hear_each(&shared, waiting)) };
    shared.cancel.run_until_cancelled(work).await;
}

/// Passes on each turn once.
async fn listen(mut appended: broadcast::Receiver<TurnId>, came: mpsc::Sender<TurnId>) {
    let mut known = VecDeque::with_capacity(REMEMBERED);
    loop {
        match appended.recv().await {
            Ok(id) if known.contains(&id) => {}
            Ok(id) => {
                known.truncate(REMEMBERED - 1);
                known.push_front(id);
                came.try_send(id).ok();
            }
            // Too many at once: what was missed is said again.
            Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => return,
        }
    }
}

/// Hears one turn after the other, because what is taken back was said before.
async fn hear_each(shared: &Shared, mut waiting: mpsc::Receiver<TurnId>) {
    let memory = shared.memory.as_ref();
    let memory = memory.filter(|memory| memory.config().auto_extract);
    if let Some(memory) = memory {
        consolidate(shared, memory).await;
    }
    let reads_silent = |memory: &&MemoryStore| !memory.config().manual_trigger;
    let mut look = tokio::time::interval(LOOK_EVERY);
    loop {
        let id = tokio::select! {
            id = waiting.recv() => id,
            _ = look.tick(), if memory.is_some() => {
                if let Some(memory) = memory.filter(reads_silent) {
                    warn_of(ingest_silent(shared, memory).await);
                }
                continue;
            }
        };
        let Some(id) = id else { return };
        match shared.persist(|| shared.log.get(id)).await {
            Ok(Some(turn)) if !(shared.is_off)(&turn.agent) => {
                if let Some(library) = &shared.library {
                    hear_turn(shared, library, &turn).await;
                }
                if let Some(memory) = memory {
                    warn_of(buffer_turn(shared, memory, &turn).await);
                }
            }
            Ok(Some(_) | None) => {}
            Err(LogError::Closed) => return,
            Err(error) => tracing::warn!(%error, "a turn could not be heard"),
        }
    }
}

fn warn_of(remembered: Result<(), IngestError>) {
    if let Err(error) = remembered {
        tracing::warn!(%error, "what was said could not be remembered");
    }
}
