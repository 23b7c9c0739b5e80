//! Operations that ask the owner's own questions with and without what was learned.

use std::time::Duration;

use crate::{
    compare::{ComparedAnswer, ComparedQuestion, ComparisonPlan, ComparisonWanted, pick},
    instance::{Instance, RunningProcess},
    operation::{Operation, OperationFailure},
};
use async_trait::async_trait;

#[async_trait]
impl Operation for ComparisonWanted {
    const PATH: &'static str = "compare_plan";
    type Reply = ComparisonPlan;

    async fn perform(self, instance: &Instance) -> Result<ComparisonPlan, OperationFailure> {
        let RunningProcess {
            log,
            library,
            serving,
            comparer,
            ..
        } = instance.process()?;
        let mut questions = self.questions;
        if questions.is_empty() {
            questions = pick(log, &self.agent, self.n).await?;
        }
        Ok(comparer.plan(library, serving, &self.agent, questions)?)
    }
}

#[async_trait]
impl Operation for ComparedQuestion {
    const PATH: &'static str = "compare";
    /// A model may take its time; its own deadline is a minute.
    const DEADLINE: Duration = Duration::from_secs(120);
    type Reply = ComparedAnswer;

    async fn perform(self, instance: &Instance) -> Result<ComparedAnswer, OperationFailure> {
        let RunningProcess {
            library,
            serving,
            comparer,
            ..
        } = instance.process()?;
        Ok(comparer.answer(library, serving, &self).await?)
    }
}
