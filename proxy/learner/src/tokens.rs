//! Fetches sampled ids as soon as a turn is in the log, before the trainer forgets them.

use std::{sync::Arc, time::Duration};

use metaclaw_chat::TurnId;
use metaclaw_trainer_api::{BackendError, TrainingBackend, wire::Sampled};
use metaclaw_turns::{LogError, StateKind, StreamEnd, Tokens, Turn, TurnKind};

use crate::{
    feed::{Feed, FeedNext},
    sample::POLICY_UPSTREAM,
    shared::Shared,
};

const PAUSE: Duration = Duration::from_secs(1);

enum Fetched {
    /// There is nothing more to do for this turn.
    Done,
    /// The trainer did not answer, so ask again.
    Later,
}

/// Runs until the log closes or the learner ends; then it stops at once, whatever it waits for.
pub(crate) async fn run(shared: Arc<Shared>, backend: Arc<dyn TrainingBackend>) {
    let cancel = shared.cancel.clone();
    cancel
        .run_until_cancelled(fetch_all(&shared, &*backend))
        .await;
}

async fn fetch_all(shared: &Shared, backend: &dyn TrainingBackend) {
    let mut feed = Feed::new(&shared.log);
    loop {
        let went = match feed.next().await {
            FeedNext::End => return,
            FeedNext::Rescan => free_turns(shared).await.map(|ids| feed.refill(&ids)),
            FeedNext::Turn(id) => match fetch(shared, backend, id).await {
                Ok(Fetched::Later) => {
                    feed.again(id);
                    tokio::time::sleep(PAUSE).await;
                    Ok(())
                }
                other => other.map(|_| ()),
            },
        };
        match went {
            Ok(()) => {}
            Err(LogError::Closed) => return,
            Err(error) => tracing::warn!(%error, "token ids could not be added to a turn"),
        }
    }
}

async fn free_turns(shared: &Shared) -> Result<Vec<TurnId>, LogError> {
    let mut ids = Vec::new();
    for agent in shared.agents().await? {
        // The order matters: a turn that is judged between the two requests is in both lists, and would be in none in
        // the other order.
        for kind in [StateKind::Captured, StateKind::Judged] {
            ids.extend(shared.in_state(&agent, kind).await?);
        }
    }
    ids.sort_unstable();
    ids.dedup();
    Ok(ids)
}

async fn fetch(
    shared: &Shared,
    backend: &dyn TrainingBackend,
    id: TurnId,
) -> Result<Fetched, LogError> {
    let turn = shared.turn(id).await?;
    let Some(reply_id) = turn.and_then(wanted) else {
        return Ok(Fetched::Done);
    };
    match backend.sampled(reply_id).await {
        Ok(Some(sampled)) => {
            let tokens = Tokens::from_sampled(sampled);
            shared
                .persist(|| shared.log.add_tokens(id, tokens.clone()))
                .await?;
            shared.wake.notify_one();
        }
        Ok(None) => shared.ids_are_gone(id),
        Err(error) if is_passing(&error) => return Ok(Fetched::Later),
        Err(error) => {
            tracing::warn!(turn = %id, %error, "the trainer does not give token ids");
            shared.ids_are_gone(id);
        }
    }
    Ok(Fetched::Done)
}

fn wanted(turn: Turn) -> Option<String> {
    let learnable = turn.meta.kind != TurnKind::Side
        && turn.meta.end == StreamEnd::Complete
        && turn.served.upstream == POLICY_UPSTREAM
        && !turn.meta.masked
        && turn.tokens.is_none();
    turn.meta.reply_id.filter(|_| learnable)
}

/// A request changes nothing, so it is repeated after every failure that may be temporary.
fn is_passing(error: &BackendError) -> bool {
    error.is_unreachable() || error.is_ambiguous() || error.status() == Some(429)
}

trait FromSampled {
    fn from_sampled(sampled: Sampled) -> Self;
}

impl FromSampled for Tokens {
    fn from_sampled(sampled: Sampled) -> Self {
        Self {
            prompt_ids: sampled.prompt_ids,
            ids: sampled.ids,
            logprobs: sampled.logprobs,
            sampling_logprobs: sampled.sampling_logprobs,
            adapter: sampled.adapter.map(|name| name.to_string()),
            version: sampled.version,
            base: sampled.base,
            base_fingerprint: sampled.base_fingerprint,
        }
    }
}
