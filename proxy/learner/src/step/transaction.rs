//! A step as a transaction over two stores.
//!
//! The log takes the turns; the trainer goes from checkpoint n-1 to n ([`make`]); its adapter is promoted and the log
//! notes the turns as trained ([`conclude`]). The checkpoint decides: whatever happens in between, at the next look
//! either it is there and the step is done, or it is not and the turns are as they were.

use metaclaw_chat::{AgentId, TurnId, now_ms};
use metaclaw_trainer_api::CheckpointName;
use metaclaw_turns::{LogError, StepOutcome};
use tokio::time::Instant;

use super::{
    context::TrainingContext,
    failure_policy::Blame,
    plan::{Plan, PlanError},
    promotion::{Promotion, conclude, withdraw},
    retry::{Refusal, make},
    runner::StepRunner,
};
use crate::{
    batch::NoGroups,
    error::TrainError,
    lineage::{BaseModel, Numbers},
    methods::NotAnExample,
    metrics::StepRecord,
    sample::{Batch, ExcludeReason},
    status::{Phase, StepReport},
};

/// What became of a batch.
#[derive(Debug)]
pub(crate) enum Ended {
    Made(Box<StepReport>),
    /// These of its turns are spent; the others are free.
    SetAside(Vec<TurnId>),
    /// One of its samples is to be set aside, and which is not known: its halves tell.
    Halves,
    /// What it was to start from turned out to be of no use: another start is to be tried.
    Elsewhere,
}

/// The making of one step.
pub(crate) struct StepTransaction<'a> {
    pub(super) context: &'a mut TrainingContext,
    pub(super) runner: StepRunner,
    pub(super) agent: &'a AgentId,
    began: Instant,
}

impl<'a> StepTransaction<'a> {
    /// Nothing is taken yet.
    ///
    /// # Errors
    /// [`TrainError::NoTrainer`].
    pub(crate) async fn new(
        context: &'a mut TrainingContext,
        agent: &'a AgentId,
    ) -> Result<Self, TrainError> {
        let began = Instant::now();
        let runner = context.runner().await?;
        Ok(Self {
            context,
            runner,
            agent,
            began,
        })
    }

    pub(crate) async fn run(
        mut self,
        base: &BaseModel,
        batch: &Batch,
    ) -> Result<Ended, TrainError> {
        if !base.may_be(self.runner.base.as_deref()) {
            let turns = batch.turns().into_keys().collect();
            return self.set_aside(turns, ExcludeReason::OtherBase).await;
        }
        let plan = match self.plan(base, batch).await? {
            Ok(plan) => plan,
            Err(PlanError::Groups(NoGroups::Example(NotAnExample { turns, error }))) => {
                tracing::error!(?turns, %error, "a sample cannot be trained on");
                return self.set_aside(turns, ExcludeReason::NoIds).await;
            }
            Err(error @ (PlanError::Groups(NoGroups::Config(_)) | PlanError::Name(_))) => {
                let why = error.to_string();
                return Err(TrainError::NotTaken { why });
            }
        };
        tracing::Span::current()
            .record("lineage", &plan.point.lineage)
            .record("n", plan.n())
            .record("attempt", plan.attempt);
        self.runner.has(&plan.groups)?;
        if let Err(error) = self.take(&plan).await {
            // The log knows something that was not known where it starts.
            self.context.agent(self.agent).resume = None;
            return Err(error);
        }
        let phase = Phase::Stepping {
            agent: self.agent.clone(),
            n: plan.n(),
            since_ms: now_ms(),
        };
        match make(self.context, &self.runner, &plan, &phase).await {
            Ok((candidate, numbers)) => {
                let state = self.context.agent(self.agent);
                state.stepped(plan.after(), plan.shape.clone());
                let promotion = conclude(self.context, &self.runner, &candidate).await?;
                let needed = self.context.needed_checkpoints().await?;
                self.runner.prune(needed).await;
                let report = self.report(&plan, numbers);
                let (serves, gate) = match promotion {
                    Promotion::Serves(gate) => (true, gate),
                    Promotion::ChosenOtherwise(gate) | Promotion::Declined(gate) => {
                        (false, Some(gate))
                    }
                    Promotion::Untested(why) => {
                        self.context.shared.status.refused();
                        return Err(TrainError::Refused { why });
                    }
                };
                let report = StepReport {
                    serves,
                    gate,
                    ..report
                };
                self.told(&report).await;
                Ok(Ended::Made(Box::new(report)))
            }
            Err(refusal) => self.release(&plan, refusal).await,
        }
    }

    /// The first transaction: the step is written down and its turns are taken.
    async fn take(&self, plan: &Plan) -> Result<(), TrainError> {
        let shared = &self.context.shared;
        match shared.log.take(plan.entry()).await {
            Ok(()) => Ok(()),
            Err(LogError::Broken { .. }) => {
                // It may have been written all the same.
                let open = shared.persist(|| shared.log.open_steps()).await?;
                let taken = open
                    .iter()
                    .any(|step| step.begun.agent == plan.agent && step.begun.hash == plan.hash);
                let why = || "the turn log failed while the step was written down".to_owned();
                if taken {
                    Ok(())
                } else {
                    Err(TrainError::NotTaken { why: why() })
                }
            }
            Err(LogError::NotTaken(error)) => Err(TrainError::NotTaken {
                why: error.to_string(),
            }),
            Err(error) => Err(error.into()),
        }
    }

    /// Gives the turns back, but for those that are at fault.
    async fn release(&mut self, plan: &Plan, refusal: Refusal) -> Result<Ended, TrainError> {
        let Refusal { blame, why } = refusal;
        tracing::warn!(why, ?blame, "the step is not made");
        let outcome = StepOutcome::Released { why: why.clone() };
        self.context.finish(self.agent, plan.n(), outcome).await?;
        let state = self.context.agent(self.agent);
        if state.run.save_asked {
            // It may be written yet: its name is not used again.
            state.resume = None;
        }
        let parent = plan.point.checkpoint.clone();
        match (blame, parent) {
            (Blame::Sample { turns, why }, _) => self.set_aside(turns, why).await,
            (Blame::SomeSample, _) => Ok(Ended::Halves),
            (Blame::Parent, Some(parent)) => Ok(self.starts_elsewhere(parent)),
            (Blame::ParentOrServer, Some(parent)) if state.was_refused() => {
                Ok(self.starts_elsewhere(parent))
            }
            (Blame::ParentsNumbers, Some(parent)) => {
                let name = parent.as_str();
                withdraw(&self.context.shared, self.agent, name, &why).await?;
                Ok(self.starts_elsewhere(parent))
            }
            (Blame::Parent | Blame::ParentOrServer | Blame::ParentsNumbers | Blame::Server, _) => {
                state.refused(why.clone(), now_ms());
                self.context.shared.status.refused();
                Err(TrainError::Refused { why })
            }
        }
    }

    fn starts_elsewhere(&mut self, parent: CheckpointName) -> Ended {
        self.context.agent(self.agent).set_unfit(parent);
        Ended::Elsewhere
    }

    async fn set_aside(
        &mut self,
        turns: Vec<TurnId>,
        why: ExcludeReason,
    ) -> Result<Ended, TrainError> {
        for id in &turns {
            tracing::warn!(turn = %id, %why, "a turn is set aside");
            self.context.shared.spend(*id, why).await?;
            // One that was trained before stays so, and is not taken again.
            let state = self.context.agent(self.agent);
            state.teacher.targets.set_aside(*id, why);
        }
        Ok(Ended::SetAside(turns))
    }

    fn report(&self, plan: &Plan, numbers: Numbers) -> StepReport {
        StepReport {
            agent: plan.agent.clone(),
            lineage: plan.point.lineage.clone(),
            n: plan.n(),
            step: plan.after().steps,
            adapter: plan.adapter.to_string(),
            n_redo: plan.n_samples.0,
            n_binary_rl: plan.n_samples.1,
            n_again: plan.n_again,
            n_turns: plan.turns.len(),
            mean_reward: plan.rewards.0,
            success_rate: plan.rewards.1,
            numbers,
            batch: plan.stats.clone(),
            serves: false,
            gate: None,
            seconds: self.began.elapsed().as_secs_f64(),
            ended_ms: now_ms(),
        }
    }

    async fn told(&self, report: &StepReport) {
        let shared = &self.context.shared;
        shared.status.stepped(report);
        shared.recorder.record(StepRecord::of(report)).await;
        tracing::info!(
            adapter = report.adapter,
            turns = report.n_turns,
            loss = report.numbers.loss,
            seconds = report.seconds,
            serves = report.serves,
            "learned"
        );
    }
}
