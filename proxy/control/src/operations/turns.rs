//! Operations on what was said: the log's turns, looked at, handed out and taken in.

use std::{io, sync::Arc, time::Duration};

use anyhow::{Context as _, ensure};
use async_trait::async_trait;
use futures_util::{
    StreamExt as _,
    future::Either,
    stream::{self, BoxStream},
};
use metaclaw_chat::{Score, TurnId, now_ms};
use metaclaw_learner::{About, Feedback};
use metaclaw_turns::{
    ConversationPage, Fingerprint, ImportOutcome, LogCounts, MAX_IMPORT_BYTES, RestoredTurn, Turn,
    TurnSummary,
};
use serde::{Deserialize, Serialize};

use crate::{
    export,
    instance::Instance,
    operation::{Operation, OperationFailure, StreamedOperation},
    rollouts::{Imported, RolloutBase, RolloutImport},
};

pub use metaclaw_turns::{ConversationFilter, TurnFilter as TurnsQuery};

/// A body of rollouts: what a file may have, written anew.
const MAX_IMPORT: usize = 2 * MAX_IMPORT_BYTES;

/// One turn whole; none where there is no such turn.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct GetTurn(pub TurnId);

/// The owner's own verdict on a reply, which overrules every other one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RateReply {
    pub turn: TurnId,
    pub score: Score,
    /// The reason in the owner's words. It is searched for wishes like a message in the chat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// What a rating changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RatedReply {
    /// Whether the turn had another verdict before.
    pub overruled: bool,
}

/// Every turn, whole, one JSON object a line.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Export;

/// Turns of another log, which are to come into this one as they were.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Restore(pub Vec<RestoredTurn>);

/// Asks of each of some turns whether the log lacks it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FindLacking(pub Vec<Fingerprint>);

/// What else another log had counted, which this one takes over.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RaiseCounts(pub LogCounts);

#[async_trait]
impl Operation for TurnsQuery {
    const PATH: &'static str = "turns";
    type Reply = Vec<TurnSummary>;

    async fn perform(self, instance: &Instance) -> Result<Vec<TurnSummary>, OperationFailure> {
        Ok(instance.log().await?.list(self).await?)
    }
}

#[async_trait]
impl Operation for ConversationFilter {
    const PATH: &'static str = "conversations";
    type Reply = ConversationPage;

    async fn perform(self, instance: &Instance) -> Result<ConversationPage, OperationFailure> {
        Ok(instance.log().await?.conversations(self).await?)
    }
}

#[async_trait]
impl Operation for GetTurn {
    const PATH: &'static str = "turn";
    type Reply = Option<Turn>;

    async fn perform(self, instance: &Instance) -> Result<Option<Turn>, OperationFailure> {
        Ok(instance.log().await?.get(self.0).await?)
    }
}

#[async_trait]
impl Operation for RateReply {
    const PATH: &'static str = "rate";
    type Reply = RatedReply;

    async fn perform(self, instance: &Instance) -> Result<RatedReply, OperationFailure> {
        let learner = &instance.process()?.learning.learner;
        let turn = instance.log().await?.get(self.turn).await?;
        let turn = turn.with_context(|| format!("there is no turn {}", self.turn))?;
        let feedback = Feedback {
            about: About::Turn(self.turn),
            score: self.score,
            text: self.text,
        };
        let rated = learner.rate(&turn.agent, &feedback).await?;
        Ok(RatedReply {
            overruled: rated.n_overruled > 0,
        })
    }
}

impl StreamedOperation for Export {
    const PATH: &'static str = "export";

    fn stream(
        self,
        instance: Arc<Instance>,
        note: fn(&str),
    ) -> BoxStream<'static, io::Result<Vec<u8>>> {
        let opened = async move { instance.log().await.cloned() };
        stream::once(opened)
            .flat_map(move |log| match log {
                Ok(log) => Either::Left(export::pieces(log, note)),
                Err(error) => Either::Right(stream::iter([Err(io::Error::other(error))])),
            })
            .boxed()
    }
}

#[async_trait]
impl Operation for RolloutImport {
    const PATH: &'static str = "import";
    const MAX_BODY: usize = MAX_IMPORT;
    const DEADLINE: Duration = Duration::from_secs(600);
    type Reply = Imported;

    /// Takes rollouts into the log. Ids must be of the model that the trainer has.
    async fn perform(self, instance: &Instance) -> Result<Imported, OperationFailure> {
        let n_with_ids = self.n_with_ids();
        let base = match instance.running().map(|rooms| &rooms.training.backend) {
            Some(Some(backend)) if n_with_ids > 0 => {
                let health = backend.health().await?;
                Some(RolloutBase {
                    name: health.model,
                    fingerprint: health.base_fingerprint,
                })
            }
            Some(_) => None,
            None => {
                ensure_without_ids(&self)?;
                None
            }
        };
        let turns = self.turns(base.as_ref(), now_ms())?;
        let outcome = instance.log().await?.import(turns).await?;
        Ok(Imported::new(outcome, n_with_ids))
    }
}

/// Refuses token ids where no process runs that could say whose they are.
fn ensure_without_ids(import: &RolloutImport) -> anyhow::Result<()> {
    ensure!(
        import.n_with_ids() == 0,
        "{} has token ids, which are checked against the policy model: `metaclaw start` first",
        import.file
    );
    Ok(())
}

#[async_trait]
impl Operation for Restore {
    const PATH: &'static str = "restore";
    const MAX_BODY: usize = MAX_IMPORT;
    const DEADLINE: Duration = Duration::from_secs(120);
    type Reply = ImportOutcome;

    async fn perform(self, instance: &Instance) -> Result<ImportOutcome, OperationFailure> {
        Ok(instance.log().await?.restore(self.0).await?)
    }
}

#[async_trait]
impl Operation for FindLacking {
    const PATH: &'static str = "lacks";
    type Reply = Vec<bool>;

    async fn perform(self, instance: &Instance) -> Result<Vec<bool>, OperationFailure> {
        Ok(instance.log().await?.lacks(self.0).await?)
    }
}

#[async_trait]
impl Operation for RaiseCounts {
    const PATH: &'static str = "raise_counts";
    type Reply = ();

    async fn perform(self, instance: &Instance) -> Result<(), OperationFailure> {
        Ok(instance.log().await?.raise_counts(self.0).await?)
    }
}
