//! On-policy distillation: at each id of the turn's own reply, the ids that the student found most probable get an
//! advantage from a teacher that was told what would have been better.

use futures_util::{FutureExt as _, future::BoxFuture};
use metaclaw_chat::Score;
use metaclaw_trainer_api::BackendError;
use metaclaw_turns::Turn;

use super::{
    hinted,
    method::{
        Example, Group, LogprobClient, Method, NotAnExample, Objective, TrainingSignal, Want,
    },
};
use crate::sample::{Batch, ExcludeReason, Teaching, score};

#[derive(Debug)]
pub(super) struct Opd;

// === impl Opd ===

impl Method for Opd {
    fn name(&self) -> &'static str {
        "opd"
    }

    fn signals(&self) -> &'static [TrainingSignal] {
        &[TrainingSignal::Hint]
    }

    fn wants(&self, turn: &Turn, teaching: Teaching<'_>) -> Want {
        let without = || {
            Want::Never(match score(turn) {
                None | Some(Score::Unclear) => ExcludeReason::Unclear,
                Some(Score::Bad) => ExcludeReason::NotHinted,
                Some(Score::Good) => ExcludeReason::NoUse,
            })
        };
        hinted::wants(turn, teaching).unwrap_or_else(without)
    }

    fn group(&self, batch: &Batch, objective: &Objective) -> Result<Group, NotAnExample> {
        let with_hints = batch.pushed().filter(|sample| !sample.hinted.is_empty());
        hinted::group(&Self, with_hints, objective, None)
    }

    fn refresh<'a>(
        &'a self,
        examples: &'a mut [Example],
        policy: LogprobClient<'a>,
    ) -> BoxFuture<'a, Result<Option<f64>, BackendError>> {
        hinted::refresh(examples, policy).boxed()
    }
}
