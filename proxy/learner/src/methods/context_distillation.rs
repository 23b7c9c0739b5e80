//! Context distillation, called `redo`: the teacher answers the turn's prompt with the wishes and the complaint in it,
//! and the student learns to give that reply without them.
//!
//! The loss is cross_entropy on the teacher's replies. Each id has the same weight w/sum |M|, as in the likelihood of
//! the replies; if each sample had the same weight, the end of a short reply would weigh as much as many ids of a long
//! one, and the model would learn to be brief.

use metaclaw_chat::Score;
use metaclaw_turns::Turn;

use super::method::{Example, Group, Method, NotAnExample, Objective, TrainingSignal, Want};
use crate::sample::{Batch, ExcludeReason, Teaching, is_tool_turn, score};

#[derive(Debug)]
pub(super) struct ContextDistillation;

// === impl ContextDistillation ===

impl Method for ContextDistillation {
    fn name(&self) -> &'static str {
        "context_distillation"
    }

    fn signals(&self) -> &'static [TrainingSignal] {
        &[TrainingSignal::Target]
    }

    /// An accepted turn that calls tools is not used, because wishes are about the text of replies.
    fn wants(&self, turn: &Turn, teaching: Teaching<'_>) -> Want {
        if let Some(why) = teaching.targets.declined(turn) {
            return Want::Never(why);
        }
        let score = score(turn);
        let consolidates = teaching.consolidates && !is_tool_turn(turn);
        if consolidates || score == Some(Score::Bad) {
            return Want::Target;
        }
        Want::Never(if score == Some(Score::Good) {
            ExcludeReason::Accepted
        } else {
            ExcludeReason::Unclear
        })
    }

    fn group(&self, batch: &Batch, objective: &Objective) -> Result<Group, NotAnExample> {
        let answered = batch.answered();
        let targets = answered.filter_map(|a| Some((a.id(), a.target.as_ref()?)));
        let targets: Vec<_> = targets.collect();
        let n_taught: usize = targets.iter().map(|(_, target)| target.n_ids()).sum();
        let each = objective.w_redo / n_taught.max(1) as f32;
        let examples = targets.iter().flat_map(|(id, target)| {
            let datums = target.datums(each);
            datums.map(|datum| Example::new(vec![*id], datum))
        });
        Ok(Group::weighted(&Self, examples.collect::<Result<_, _>>()?))
    }
}
