//! Adds an external teacher's advantages to a batch, if there is such a teacher.

use std::{collections::BTreeMap, sync::Arc};

use futures_util::{StreamExt as _, stream};
use metaclaw_chat::{Message, now_ms};

use super::next::{BatchReason, NextBatch};
use crate::{
    error::TrainError,
    external_teacher::NotScored,
    sample::{Batch, ExcludeReason},
    status::Phase,
};

/// The number of turns that are sent to it at once.
const AT_ONCE: usize = 4;

// === impl NextBatch ===

impl NextBatch<'_> {
    /// Returns the batch with the external teacher's advantages, without the turns that it fails at, which are set
    /// aside.
    ///
    /// # Errors
    /// Returns [`TrainError::NoTeacher`] while it cannot be reached; the turns wait.
    pub(super) async fn scored(
        &mut self,
        batch: Batch,
        why: BatchReason,
    ) -> Result<Batch, TrainError> {
        let shared = Arc::clone(&self.context.shared);
        let Some(teacher) = shared.external_teacher() else {
            return Ok(batch);
        };
        if why == BatchReason::Due && self.context.teacher_rests() {
            let why = "it did not answer, and is asked again after a minute".to_owned();
            return Err(TrainError::NoTeacher { why });
        }
        shared.status.phase(Phase::Teaching {
            agent: self.agent.clone(),
            since_ms: now_ms(),
        });
        let before = std::mem::take(&mut self.context.agent(self.agent).pulls);
        let (mut pulls, mut asked) = (BTreeMap::new(), Vec::new());
        for turn in batch.to_be_scored() {
            match before.get(&turn.id) {
                Some(known) => drop(pulls.insert(turn.id, Arc::clone(known))),
                None => asked.push(Arc::clone(turn)),
            }
        }
        let answers = asked.into_iter().map(|turn| async move {
            let reply = turn.reply.as_ref().map(Message::text);
            let reply = reply.unwrap_or_default();
            match &turn.tokens {
                Some(tokens) => (turn.id, teacher.pulls(tokens, &reply).await),
                // The trainer gets nothing of the batch either.
                None => (turn.id, Ok(Arc::default())),
            }
        });
        let mut answers = stream::iter(answers).buffered(AT_ONCE);
        let (mut failed, mut away) = (Vec::new(), None);
        while let Some((id, answer)) = answers.next().await {
            match answer {
                Ok(pull) => drop(pulls.insert(id, pull)),
                Err(NotScored::Turn(why)) => {
                    tracing::warn!(turn = %id, why, "the external teacher cannot score it");
                    shared.spend(id, ExcludeReason::NotScored).await?;
                    failed.push(id);
                }
                Err(NotScored::Away(why)) => away = Some(why),
            }
        }
        let scored = batch.without(&failed).with_deltas(&pulls);
        self.context.agent(self.agent).pulls = pulls;
        match away {
            Some(why) => Err(self.context.no_external_teacher(why)),
            None => Ok(scored),
        }
    }
}
