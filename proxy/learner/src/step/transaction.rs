//! A step as a transaction over two stores.
//!
//! The log takes the turns; the trainer goes from checkpoint n-1 to n (`step`); the log notes them as
//! trained, and the new adapter is served. The checkpoint decides: whatever happens in between, at
//! the next look either it is there and the step is done, or it is not and the turns are as they were.

use std::{sync::Arc, time::Duration};

use metaclaw_chat::{AgentId, now_ms};
use metaclaw_trainer_api::BackendError;
use metaclaw_turns::{LogError, Step, StepOutcome};
use tokio::time::Instant;

use crate::{
    batch::Batch,
    context::TrainingContext,
    error::TrainError,
    lineage::{Numbers, Shape},
    plan::Plan,
    sample::reason,
    status::{Phase, StepReport},
    step::{Bench, Trouble},
};

/// Pause before a training server is tried again; doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Attempts at one step whose answer was lost or was a failure of the server, before it counts as refused.
const MAX_FAILURES: usize = 5;

/// How the calls to the trainer ended.
enum Drove {
    Made(Numbers),
    Refused { samples: bool, error: BackendError },
}

/// The making of one step.
pub(crate) struct StepTransaction<'a> {
    context: &'a mut TrainingContext,
    bench: Bench,
    agent: &'a AgentId,
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
        let bench = context.bench().await?;
        Ok(Self {
            context,
            bench,
            agent,
            began,
        })
    }

    /// The whole transaction.
    pub(crate) async fn run(
        mut self,
        base: String,
        batch: &Batch,
    ) -> Result<Option<StepReport>, TrainError> {
        self.bench.has(&batch.losses())?;
        let Some(plan) = self.plan(base, batch).await? else {
            return Ok(None);
        };
        if let Err(error) = self.take(&plan).await {
            // The log knows something that this head does not.
            self.context.agent(self.agent).head = None;
            return Err(error);
        }
        let phase = Phase::Stepping {
            agent: self.agent.clone(),
            n: plan.n(),
            since_ms: now_ms(),
        };
        self.context.shared.board.phase(phase.clone());
        match self.drive(&plan, &phase).await {
            Drove::Made(numbers) => {
                self.commit(&plan).await?;
                Ok(Some(self.report(&plan, numbers)))
            }
            Drove::Refused { samples, error } => {
                self.release(&plan, samples, &error).await?;
                Err(TrainError::Refused {
                    why: error.to_string(),
                })
            }
        }
    }

    /// What exactly the step is to be. None if its turns turned out to be no sequences, and were spent.
    async fn plan(&mut self, base: String, batch: &Batch) -> Result<Option<Plan>, TrainError> {
        let (agent, shared) = (self.agent, Arc::clone(&self.context.shared));
        let rl = &shared.config.rl;
        let shape = Shape {
            base,
            rank: rl.lora_rank,
            alpha: rl.lora_alpha,
            targets: rl.targets.0.clone(),
        };
        let steps = shared.persist(|| shared.log.steps(agent)).await?;
        let choice = shared.persist(|| shared.log.choice(agent)).await?;
        let choice_ms = choice.as_ref().map(|choice| choice.at_ms);
        let state = self.context.agent(agent);
        let known = state.head.as_ref();
        let known = known.filter(|(head, of)| *of == shape && head.choice_ms == choice_ms);
        let head = match (known, &choice) {
            (Some((head, _)), _) => Ok(head.clone()),
            (None, Some(choice)) => self.bench.chosen(choice, &shape).await,
            (None, None) => self.bench.head(&steps, &shape).await,
        };
        let head = head.map_err(|trouble| TrainError::NoTrainer {
            why: trouble.to_string(),
        })?;
        // Kept, so that a step that is put off has the same beginning later.
        state.head = Some((head.clone(), shape.clone()));
        let of_step =
            |step: &&Step| step.begun.lineage == head.lineage && step.begun.n == head.n + 1;
        let attempt = steps
            .iter()
            .filter(of_step)
            .map(|step| step.begun.attempt + 1)
            .max()
            .unwrap_or(0);
        match Plan::new(agent, head, shape, attempt, (batch, rl)) {
            Ok(plan) => Ok(Some(plan)),
            Err(error) => {
                tracing::error!(%agent, %error, "a batch cannot be trained on; its turns are left out");
                for id in batch.turns() {
                    shared.spend(id, reason::NO_IDS).await?;
                }
                Ok(None)
            }
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

    /// Attempts until one gets through, or the server refuses.
    async fn drive(&mut self, plan: &Plan, phase: &Phase) -> Drove {
        let shared = Arc::clone(&self.context.shared);
        let (bench, state) = (&self.bench, self.context.agent(&plan.agent));
        let (mut pause, mut n_failures) = (FIRST_PAUSE, 0);
        loop {
            let error = match bench.attempt(&mut state.desk, plan).await {
                Ok(numbers) => return Drove::Made(numbers),
                Err(Trouble::Refused { samples, error }) => {
                    return Drove::Refused { samples, error };
                }
                Err(Trouble::Again(error)) => error,
            };
            tracing::warn!(agent = %plan.agent, n = plan.n(), %error, "the step is tried again");
            n_failures += usize::from(error.is_ambiguous());
            if n_failures >= MAX_FAILURES && bench.has_not(&mut state.desk, plan).await {
                return Drove::Refused {
                    samples: false,
                    error,
                };
            }
            shared.board.phase(Phase::WaitingForTrainer {
                why: error.to_string(),
            });
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
            shared.board.phase(phase.clone());
        }
    }

    /// The second transaction, and the swap. The checkpoint is there.
    async fn commit(&mut self, plan: &Plan) -> Result<(), LogError> {
        let outcome = StepOutcome::Trained {
            adapter: plan.adapter.to_string(),
            checkpoint: plan.checkpoint.to_string(),
        };
        let is_served = self.context.finish(&plan.entry(), outcome).await?;
        let state = self.context.agent(&plan.agent);
        state.stepped(plan.after(), plan.shape.clone());
        if is_served {
            self.bench.preload(&plan.adapter).await;
            (self.context.shared.on_swap)(&plan.agent, &plan.adapter);
        } else {
            tracing::info!(agent = %plan.agent, adapter = %plan.adapter, "this step ended after its owner chose another adapter: it is not served");
        }
        self.bench
            .prune(self.context.needed_checkpoints().await?)
            .await;
        Ok(())
    }

    /// Gives the turns back; if it is they that the server refuses, for good.
    async fn release(
        &mut self,
        plan: &Plan,
        samples: bool,
        error: &BackendError,
    ) -> Result<(), LogError> {
        let why = error.to_string();
        tracing::warn!(agent = %plan.agent, n = plan.n(), why, "the training server refuses the step");
        let outcome = StepOutcome::Released { why: why.clone() };
        self.context.finish(&plan.entry(), outcome).await?;
        self.context.shared.board.refused();
        let state = self.context.agent(&plan.agent);
        if samples {
            state.head = None;
            for id in &plan.turns {
                self.context.shared.spend(*id, reason::REFUSED).await?;
            }
            return Ok(());
        }
        state.refused(why, now_ms());
        Ok(())
    }

    fn report(&self, plan: &Plan, numbers: Numbers) -> StepReport {
        let report = StepReport {
            agent: plan.agent.clone(),
            lineage: plan.head.lineage.clone(),
            n: plan.n(),
            adapter: plan.adapter.to_string(),
            n_redo: plan.n_samples.0,
            n_binary_rl: plan.n_samples.1,
            n_turns: plan.turns.len(),
            mean_reward: plan.rewards.0,
            success_rate: plan.rewards.1,
            numbers,
            seconds: self.began.elapsed().as_secs_f64(),
            ended_ms: now_ms(),
        };
        self.context.shared.board.stepped(&report);
        tracing::info!(
            agent = %report.agent, adapter = report.adapter, turns = report.n_turns, loss = report.numbers.loss,
            seconds = report.seconds, "learned"
        );
        report
    }
}
