//! The operation that reads the curves.

use async_trait::async_trait;
use metaclaw_chat::now_ms;
use metaclaw_skills::Lesson;

use crate::{
    curves::{Curve, CurveMark, CurvesWanted, by_day, by_step},
    instance::Instance,
    operation::{Operation, OperationFailure},
};

#[async_trait]
impl Operation for CurvesWanted {
    const PATH: &'static str = "curves";
    type Reply = Vec<Curve>;

    async fn perform(self, instance: &Instance) -> Result<Vec<Curve>, OperationFailure> {
        let library = instance.library()?;
        let journal = super::lessons::on_files(move || Ok(library.journal()?)).await?;
        let of_agent = |lesson: &Lesson| {
            let of = &lesson.origin.agent;
            of.is_shared() || self.agent.as_ref().is_none_or(|agent| agent == of)
        };
        let lessons = journal
            .into_iter()
            .filter(|lesson| of_agent(lesson) && lesson.state.was_in_force());
        let marks = lessons.map(|lesson| CurveMark {
            at: lesson.in_force_ms(),
            name: lesson.wish,
        });
        let marks: Vec<CurveMark> = marks.collect();
        let log = instance.log_if_any().await?;
        let mut curves = by_day(log, &self, &marks, instance.judging()?, now_ms()).await?;
        curves.extend(by_step(log, instance.step_figures()?, &self).await?);
        Ok(curves)
    }
}
