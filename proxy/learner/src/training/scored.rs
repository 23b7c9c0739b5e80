//! What an external teacher makes of a batch, where there is one.

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

/// Turns that it is asked about at once.
const AT_ONCE: usize = 4;

// === impl NextBatch ===

impl NextBatch<'_> {
    /// The batch with what an external teacher adds to its advantages, without the turns that it fails at: those are set aside.
    ///
    /// # Errors
    /// [`TrainError::NoTeacher`] while it cannot be asked: the turns wait.
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
                // The trainer is given nothing of it either.
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
