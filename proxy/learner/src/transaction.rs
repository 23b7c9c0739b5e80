//! A step as a transaction over two stores.
//!
//! The log takes the turns; the trainer goes from checkpoint n-1 to n (`step`); the log notes them as
//! trained, and the new adapter is served. The checkpoint decides: whatever happens in between, at
//! the next look either it is there and the step is done, or it is not and the turns are as they were.

use std::{sync::Arc, time::Duration};

use metaclaw_chat::{AgentId, now_ms};
use metaclaw_trainer_api::BackendError;
use metaclaw_turns::{FinishError, LogError, Step, StepOutcome, TakeError};
use tokio::time::Instant;

use crate::{
    batch::Batch,
    learner::TrainError,
    lineage::{Head, Numbers, Shape},
    plan::Plan,
    sample::reason,
    status::{Phase, StepReport},
    step::{Bench, Trouble},
    training::Training,
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

impl Training {
    /// The whole transaction.
    pub(crate) async fn step(
        &mut self,
        agent: &AgentId,
        base: String,
        batch: &Batch,
    ) -> Result<Option<StepReport>, TrainError> {
        let began = Instant::now();
        let bench = self.bench().await?;
        bench.has(&batch.losses())?;
        let Some(plan) = self.plan(&bench, agent, base, batch).await? else {
            return Ok(None);
        };
        if let Err(error) = self.take(&plan).await {
            // The log knows something that this head does not.
            self.agents.entry(agent.clone()).or_default().head = None;
            return Err(error);
        }
        let since_ms = now_ms();
        let phase = Phase::Stepping {
            agent: agent.clone(),
            n: plan.n(),
            since_ms,
        };
        self.shared.board.phase(phase.clone());
        match self.drive(&bench, &plan, &phase).await {
            Drove::Made(numbers) => {
                self.commit(&plan).await?;
                Ok(Some(self.report(&plan, numbers, began)))
            }
            Drove::Refused { samples, error } => {
                self.release(&plan, samples, &error).await?;
                Err(TrainError::Refused {
                    why: error.to_string(),
                })
            }
        }
    }

    /// The trainer as it is now, with what it can do.
    pub(crate) async fn bench(&mut self) -> Result<Bench, TrainError> {
        let health = self.backend.health().await;
        let health = health.map_err(|error| self.no_trainer(&error))?;
        Ok(Bench {
            backend: Arc::clone(&self.backend),
            rl: self.shared.config.rl.clone(),
            capabilities: health.capabilities,
        })
    }

    /// The training server cannot be used for now.
    pub(crate) fn no_trainer(&mut self, error: &dyn std::error::Error) -> TrainError {
        let why = error.to_string();
        self.waits_for(Phase::WaitingForTrainer { why: why.clone() });
        TrainError::NoTrainer { why }
    }

    /// What exactly the step is to be. None if its turns turned out to be no sequences, and were spent.
    async fn plan(
        &mut self,
        bench: &Bench,
        agent: &AgentId,
        base: String,
        batch: &Batch,
    ) -> Result<Option<Plan>, TrainError> {
        let rl = &self.shared.config.rl;
        let shape = Shape {
            base,
            rank: rl.lora_rank,
            alpha: rl.lora_alpha,
            targets: rl.targets.0.clone(),
        };
        let steps = self.shared.persist(|| self.shared.log.steps(agent)).await?;
        let state = self.agents.entry(agent.clone()).or_default();
        let head = match &state.head {
            Some((head, of)) if *of == shape => head.clone(),
            _ => bench
                .head(&steps, &shape)
                .await
                .map_err(|trouble| TrainError::NoTrainer {
                    why: trouble.to_string(),
                })?,
        };
        // Kept, so that a step that is put off has the same beginning later.
        state.head = Some((head.clone(), shape.clone()));
        let of_step = |step: &&Step| step.lineage == head.lineage && step.n == head.n + 1;
        let attempt = steps
            .iter()
            .filter(of_step)
            .map(|step| step.attempt + 1)
            .max()
            .unwrap_or(0);
        match Plan::new(agent, head, shape, attempt, (batch, rl)) {
            Ok(plan) => Ok(Some(plan)),
            Err(error) => {
                tracing::error!(%agent, %error, "a batch cannot be trained on; its turns are left out");
                for id in batch.turns() {
                    self.shared.spend(id, reason::NO_IDS).await?;
                }
                Ok(None)
            }
        }
    }

    /// The first transaction: the step is written down and its turns are taken.
    async fn take(&self, plan: &Plan) -> Result<(), TrainError> {
        match self.shared.log.take(plan.entry()).await {
            Ok(()) => Ok(()),
            Err(TakeError::Log(LogError::Broken { .. })) => {
                // It may have been written all the same.
                let open = self.shared.persist(|| self.shared.log.open_steps()).await?;
                let taken = open
                    .iter()
                    .any(|step| step.agent == plan.agent && step.hash == plan.hash);
                let why = || "the turn log failed while the step was written down".to_owned();
                if taken {
                    Ok(())
                } else {
                    Err(TrainError::NotTaken { why: why() })
                }
            }
            Err(TakeError::Log(error)) => Err(error.into()),
            Err(error) => Err(TrainError::NotTaken {
                why: error.to_string(),
            }),
        }
    }

    /// Attempts until one gets through, or the server refuses.
    async fn drive(&mut self, bench: &Bench, plan: &Plan, phase: &Phase) -> Drove {
        let shared = Arc::clone(&self.shared);
        let state = self.agents.entry(plan.agent.clone()).or_default();
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
        self.finish(
            &plan.agent,
            plan.n(),
            StepOutcome::Trained {
                adapter: plan.adapter.to_string(),
                checkpoint: plan.checkpoint.to_string(),
            },
        )
        .await?;
        let state = self.agents.entry(plan.agent.clone()).or_default();
        state.stepped(plan.after(), plan.shape.clone());
        (self.shared.on_swap)(&plan.agent, &plan.adapter);
        Ok(())
    }

    /// Notes what a step came to; what it trained is served from then on.
    ///
    /// The pointer is written first: if the process ends in between, the step is still open, and
    /// recovery writes both again.
    pub(crate) async fn finish(
        &self,
        agent: &AgentId,
        n: u64,
        outcome: StepOutcome,
    ) -> Result<(), LogError> {
        let log = &self.shared.log;
        if let StepOutcome::Trained { adapter, .. } = &outcome {
            let set = || log.set_serving(agent, Some(adapter.clone()));
            self.shared.persist(set).await?;
        }
        match self
            .shared
            .persist(|| log.finish_step(agent, n, outcome.clone()))
            .await
        {
            // Said after a failure whose first try was written all the same.
            Ok(()) | Err(FinishError::NotOpen { .. }) => Ok(()),
            Err(FinishError::Log(error)) => Err(error),
        }
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
        self.finish(
            &plan.agent,
            plan.n(),
            StepOutcome::Released { why: why.clone() },
        )
        .await?;
        let state = self.agents.entry(plan.agent.clone()).or_default();
        if samples {
            state.head = None;
            for id in &plan.turns {
                self.shared.spend(*id, reason::REFUSED).await?;
            }
            return Ok(());
        }
        state.refused(why, now_ms());
        Ok(())
    }

    fn report(&self, plan: &Plan, numbers: Numbers, began: Instant) -> StepReport {
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
            seconds: began.elapsed().as_secs_f64(),
            ended_ms: now_ms(),
        };
        self.shared.board.stepped(&report);
        tracing::info!(
            agent = %report.agent, adapter = report.adapter, turns = report.n_turns, loss = report.numbers.loss,
            seconds = report.seconds, "learned; serving the new adapter"
        );
        report
    }
}

impl Bench {
    /// The head of an agent's lineage.
    async fn head(&self, steps: &[Step], shape: &Shape) -> Result<Head, Trouble> {
        if !self.capabilities.manifests {
            return Ok(Head::by_log(steps));
        }
        Ok(Head::resume(steps, &self.checkpoints().await?, shape))
    }
}
