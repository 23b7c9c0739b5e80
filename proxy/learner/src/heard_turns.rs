//! Reads each new turn of the log for the owner's wishes and for facts that the owner tells.

use std::{sync::Arc, time::Duration};

use metaclaw_turns::LogReader;

use crate::{
    memory_extraction::{IngestError, buffer_turn, consolidate, ingest_silent},
    shared::Shared,
    unread::UnreadTurns,
    wish_detection::WaitingMessages,
};

const LOOK_EVERY: Duration = Duration::from_secs(60);

/// Hears each new turn once, until the log closes or the learner ends. If the process ends while a turn is heard, or while
/// its words wait to be read with others, the next start hears the turn.
pub(crate) async fn run(shared: Arc<Shared>, turns: UnreadTurns) {
    let work = hear_each(&shared, turns);
    shared.cancel.run_until_cancelled(work).await;
}

/// Hears the turns in their order, because a message may take back what an earlier one said.
async fn hear_each(shared: &Shared, mut turns: UnreadTurns) {
    let known = shared.memory.as_ref();
    let memory = known.filter(|memory| memory.config().auto_extract);
    if let Some(memory) = memory {
        consolidate(shared, memory).await;
    }
    let reads_silent = memory.filter(|memory| !memory.config().manual_trigger);
    let mut look = tokio::time::interval(LOOK_EVERY);
    let mut waiting = WaitingMessages::default();
    loop {
        let turn = tokio::select! {
            turn = turns.next() => turn,
            _ = look.tick() => {
                if let Some(library) = &shared.library
                    && waiting.read(shared, library, false).await
                {
                    turns.heard(true).await;
                }
                if let Some(memory) = reads_silent {
                    warn_of(ingest_silent(shared, memory).await);
                }
                continue;
            }
        };
        let Some(turn) = turn else { return };
        if let Some(library) = &shared.library
            && turns.is_new_to(LogReader::Wishes)
            && let Some(is_read) = waiting.hear(shared, library, &turn).await
        {
            turns.heard(is_read).await;
        }
        if let Some(memory) = memory
            && turns.is_new_to(LogReader::Facts)
        {
            warn_of(buffer_turn(shared, memory, &turn, &turns).await);
        }
    }
}

fn warn_of(remembered: Result<(), IngestError>) {
    if let Err(error) = remembered {
        tracing::warn!(%error, "what was said could not be remembered");
    }
}
