//! The operation that asks an agent's own questions with and without the lessons.

use std::{mem, time::Duration};

use async_trait::async_trait;

use crate::{
    compare::{Compare, Comparison, pick},
    instance::Instance,
    operation::{Operation, OperationFailure},
};

#[async_trait]
impl Operation for Compare {
    const PATH: &'static str = "compare";
    /// A question has up to three answers, and the model has a minute for each.
    const DEADLINE: Duration = Duration::from_secs(240);
    type Reply = Comparison;

    async fn perform(self, instance: &Instance) -> Result<Comparison, OperationFailure> {
        let rooms = instance.process()?;
        let (comparer, serving) = (&rooms.learning.comparer, &rooms.gateway.serving);
        let library = &rooms.lessons.library;
        let Self {
            agent,
            n,
            mut questions,
            asks,
        } = self;
        if questions.is_empty() {
            questions = pick(&rooms.log, &agent, n).await?;
        }
        let mut comparison = comparer.plan(library, serving, &agent, questions)?;
        if asks {
            let mut questions = mem::take(&mut comparison.questions);
            for question in &mut questions {
                for given in comparison.columns(question) {
                    let answer = comparer
                        .answer(library, serving, &agent, &question.question, given)
                        .await?;
                    question.answers.push((given, answer));
                }
            }
            comparison.questions = questions;
        }
        Ok(comparison)
    }
}
