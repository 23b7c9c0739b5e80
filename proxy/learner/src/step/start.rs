//! Where a step starts, and what is in the weights that it starts from.

use std::sync::Arc;

use metaclaw_chat::now_ms;
use metaclaw_trainer_api::CheckpointName;
use metaclaw_turns::{Step, Turn};

use super::agent::StepSite;
use crate::{
    batch,
    error::TrainError,
    gate::Series,
    lineage::{Ancestry, BaseModel, ResumePoint, Resumed, Shape, WantedStart},
};

/// Where a step starts.
#[derive(Debug)]
pub(crate) struct StepStart {
    pub(crate) point: ResumePoint,
    pub(crate) shape: Shape,
    pub(crate) ancestry: Ancestry,
    /// How often a step of this number was begun before.
    pub(crate) attempt: u32,
    /// What the gate said of the agent's last steps.
    pub(crate) series: Series,
}

// === impl StepStart ===

impl StepStart {
    /// By the agent's steps in the log.
    fn at(point: ResumePoint, shape: Shape, steps: &[Step]) -> Self {
        let of_step =
            |step: &&Step| step.begun.lineage == point.lineage && step.begun.n == point.n + 1;
        let attempts = steps.iter().filter(of_step);
        let attempt = attempts.map(|step| step.begun.attempt + 1).max();
        Self {
            attempt: attempt.unwrap_or(0),
            series: Series::of(steps),
            ancestry: Ancestry::of(steps, &point),
            point,
            shape,
        }
    }
}

// === impl StepSite ===

impl StepSite<'_> {
    /// Where the next step starts. What is not continued of what the agent had learned is said, and the start is kept, so
    /// that a step that is put off has the same beginning later.
    ///
    /// # Errors
    /// [`TrainError::NoTrainer`], and the log's.
    pub(crate) async fn start(&mut self, base: &BaseModel) -> Result<StepStart, TrainError> {
        let (start, lost) = self.look_for_start(base).await?;
        let agent = self.agent;
        if let Some(why) = lost {
            let from = start.point.checkpoint.as_ref();
            let from = from.map_or("the base model", CheckpointName::as_str);
            tracing::warn!(%agent, why, from, "a fresh lineage begins; what served before serves until its first step is made");
            self.shared.status.began_anew(agent, &why, now_ms());
        }
        self.state.resume = Some((start.point.clone(), start.shape.clone()));
        Ok(start)
    }

    /// The same with nothing said and nothing kept; and why what the agent learned last would not be continued.
    ///
    /// # Errors
    /// [`TrainError::NoTrainer`], and the log's.
    pub(crate) async fn look_for_start(
        &self,
        base: &BaseModel,
    ) -> Result<(StepStart, Option<String>), TrainError> {
        let shape = Shape::new(base.clone(), &self.shared.config.rl);
        let steps = self.steps().await?;
        let Resumed { point, lost } = self.resumed(&shape, &steps).await?;
        Ok((StepStart::at(point, shape, &steps), lost))
    }

    async fn resumed(&self, shape: &Shape, steps: &[Step]) -> Result<Resumed, TrainError> {
        let shared = self.shared;
        let choice = shared.persist(|| shared.log.choice(self.agent)).await?;
        let choice_ms = choice.as_ref().map(|choice| choice.at_ms);
        if let Some((point, of)) = &self.state.resume
            && of.fits(shape)
            && point.choice_ms == choice_ms
        {
            let (point, lost) = (point.clone(), None);
            return Ok(Resumed { point, lost });
        }
        let checkpoints = self.runner.checkpoints().await;
        let checkpoints = checkpoints.map_err(|error| shared.no_trainer(&error))?;
        let unfit = &self.state.unfit;
        let wanted = WantedStart { shape, unfit };
        Ok(match (&choice, &checkpoints) {
            (Some(choice), known) => Resumed::chosen(choice, known.as_deref(), wanted),
            (None, Some(known)) => Resumed::of(steps, known, wanted),
            (None, None) => Resumed::by_log(steps, wanted),
        })
    }

    /// Turns that earlier steps had and that the next one may have again: those that were used least, then the newest. None
    /// with which the gate gave up, and none where no step can be made of this base model.
    ///
    /// # Errors
    /// [`TrainError::NoTrainer`], and the log's.
    pub(crate) async fn used(&self, base: &BaseModel) -> Result<Vec<Arc<Turn>>, TrainError> {
        let (ancestry, given_up) = if base.may_be(self.runner.base.as_deref()) {
            let (start, _lost) = self.look_for_start(base).await?;
            (start.ancestry, start.series.set_aside)
        } else {
            Default::default()
        };
        let teaching = self.state.teacher.teaching(&self.shared.config.rl);
        let reused = batch::Reused {
            ancestry: &ancestry,
            base,
        };
        let mut used = batch::used(self.shared, self.agent, reused, teaching).await?;
        used.retain(|turn| !given_up.contains(&turn.id));
        Ok(used)
    }
}
