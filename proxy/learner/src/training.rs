//! The training task: looks for batches, waits for a window, makes steps, swaps.
//!
//! A step is a transaction over two stores. The log takes the turns; the trainer goes from checkpoint
//! n-1 to n (`step`); the log notes them as trained. The checkpoint decides: whatever happens in
//! between, at the next look either it is there and the step is done, or it is not and the turns are
//! as they were.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use metaclaw_chat::AgentId;
use metaclaw_trainer_api::{BackendError, TrainingBackend};
use metaclaw_turns::{FinishError, LogError, StepOutcome, TakeError, TurnFilter, TurnKind};
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

use crate::{
    agent::AgentState,
    batch::{Baselines, Batch},
    collect,
    learner::TrainError,
    lineage::{Head, Numbers, Shape},
    plan::Plan,
    sample::reason,
    shared::{Shared, now_ms},
    status::{Phase, StepReport},
    step::{Bench, Trouble},
    window::{Window, window},
};

/// The longest pause between two looks: idle time passes without anything happening.
const TICK: Duration = Duration::from_secs(10);
/// Pause before a training server is tried again; doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Attempts at one step that the server answered with a failure of its own, before it counts as refused.
const MAX_FAILURES: usize = 5;

/// A step that was asked for.
#[derive(Debug)]
pub(crate) struct TrainNow {
    /// For whom; none: everyone.
    pub(crate) agent: Option<AgentId>,
    pub(crate) answer: oneshot::Sender<Result<Vec<StepReport>, TrainError>>,
}

/// The task's own state.
#[derive(Debug)]
pub(crate) struct Training {
    pub(crate) shared: Arc<Shared>,
    pub(crate) backend: Arc<dyn TrainingBackend>,
    pub(crate) agents: BTreeMap<AgentId, AgentState>,
    /// Whether steps that an earlier process left open are settled.
    pub(crate) recovered: bool,
}

/// How the calls to the trainer ended.
enum Drove {
    Made(Numbers),
    /// The learner is to end; the step stays open for the next process.
    Interrupted,
    Refused {
        samples: bool,
        error: BackendError,
    },
}

// === impl Training ===

impl Training {
    pub(crate) fn new(shared: Arc<Shared>, backend: Arc<dyn TrainingBackend>) -> Self {
        Self {
            shared,
            backend,
            agents: BTreeMap::new(),
            recovered: false,
        }
    }

    /// Runs until the log closes or the learner ends.
    pub(crate) async fn run(mut self, mut asked: mpsc::Receiver<TrainNow>) {
        loop {
            let pause = match self.look().await {
                Ok(()) => TICK,
                Err(TrainError::Interrupted | TrainError::Log(LogError::Closed)) => return,
                Err(error) => {
                    tracing::debug!(%error, "no step for now");
                    LONGEST_PAUSE
                }
            };
            tokio::select! {
                () = self.shared.cancel.cancelled() => return,
                () = self.shared.wake.notified() => {}
                () = tokio::time::sleep(pause) => {}
                Some(now) = asked.recv() => {
                    let result = self.train_now(now.agent).await;
                    // Whoever asked may have gone.
                    let _ = now.answer.send(result);
                }
            }
        }
    }

    /// One look at what there is to do.
    async fn look(&mut self) -> Result<(), TrainError> {
        if !self.recovered {
            self.recover().await?;
        }
        self.shared.board.phase(Phase::Collecting);
        for agent in self.shared.persist(|| self.shared.log.agents()).await? {
            // A full batch may stand behind the one just made.
            while self.pass(&agent, false).await?.is_some() {}
        }
        Ok(())
    }

    async fn train_now(&mut self, agent: Option<AgentId>) -> Result<Vec<StepReport>, TrainError> {
        if !self.recovered {
            self.recover().await?;
        }
        let agents = match agent {
            Some(agent) => vec![agent],
            None => self.shared.persist(|| self.shared.log.agents()).await?,
        };
        let mut reports = Vec::new();
        for agent in agents {
            reports.extend(self.pass(&agent, true).await?);
        }
        Ok(reports)
    }

    /// Makes a step for an agent if one is due (or, when forced, if there is anything to train on).
    async fn pass(
        &mut self,
        agent: &AgentId,
        forced: bool,
    ) -> Result<Option<StepReport>, TrainError> {
        let shared = Arc::clone(&self.shared);
        let (samples, base) = collect::samples(&shared, agent).await?;
        shared.board.counts(agent, samples.counts());
        let rl = &shared.config.rl;
        let due = forced || (samples.are_due(rl, now_ms()) && self.may_begin(agent).await?);
        let Some(base) = base.filter(|_| due) else {
            return Ok(None);
        };
        shared.board.window(agent, now_ms());
        let baselines = if rl.method.binary_rl {
            collect::baselines(&shared, agent).await?
        } else {
            Baselines::default()
        };
        let limit = (!forced).then_some(rl.batch_size);
        let batch = samples.batch(rl, baselines, limit);
        for (id, why) in &batch.spent {
            shared.spend(*id, why).await?;
        }
        if batch.is_empty() || (!forced && !batch.spent.is_empty()) {
            // What was spent may have been what made the batch full: look again.
            shared.wake.notify_one();
            return Ok(None);
        }
        self.step(agent, base, &batch).await
    }

    /// Whether nothing but the user or an earlier refusal stands in the way.
    async fn may_begin(&self, agent: &AgentId) -> Result<bool, LogError> {
        if self
            .agents
            .get(agent)
            .is_some_and(|state| !state.is_rested())
        {
            return Ok(false);
        }
        let config = &self.shared.config;
        let idle = Duration::from_secs(60 * config.scheduler.idle_minutes);
        match window(config.mode, self.quiet().await?, idle) {
            Window::Open => Ok(true),
            Window::Never => Ok(false),
            Window::InUse(left) => {
                self.shared.board.phase(Phase::WaitingForIdle {
                    seconds: left.as_secs(),
                });
                Ok(false)
            }
        }
    }

    /// How long ago the last main turn of any agent ended.
    async fn quiet(&self) -> Result<Option<Duration>, LogError> {
        let filter = TurnFilter::default();
        let newest = self
            .shared
            .persist(|| self.shared.log.list(filter.clone()))
            .await?;
        let last = newest
            .iter()
            .filter(|turn| turn.kind == TurnKind::Main)
            .map(|turn| turn.ended_ms)
            .max();
        Ok(last.map(|ms| Duration::from_millis(now_ms().saturating_sub(ms))))
    }

    /// The whole transaction.
    async fn step(
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
        self.take(&plan).await?;
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
            Drove::Interrupted => Err(TrainError::Interrupted),
            Drove::Refused { samples, error } => {
                self.release(&plan, samples, &error).await?;
                Err(TrainError::Refused {
                    why: error.to_string(),
                })
            }
        }
    }

    /// The trainer as it is now, with what it can do.
    pub(crate) async fn bench(&self) -> Result<Bench, TrainError> {
        let health = self.backend.health().await.map_err(|error| {
            let why = error.to_string();
            self.shared
                .board
                .phase(Phase::WaitingForTrainer { why: why.clone() });
            TrainError::NoTrainer { why }
        })?;
        Ok(Bench {
            backend: Arc::clone(&self.backend),
            rl: self.shared.config.rl.clone(),
            capabilities: health.capabilities,
        })
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
            _ => bench.head(&steps, &shape).await?,
        };
        // Kept, so that a step that is put off has the same beginning later.
        state.head = Some((head.clone(), shape.clone()));
        let of_step =
            |step: &&metaclaw_turns::Step| step.lineage == head.lineage && step.n == head.n + 1;
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

    /// Attempts until one gets through, the server refuses, or the learner ends.
    async fn drive(&mut self, bench: &Bench, plan: &Plan, phase: &Phase) -> Drove {
        let shared = Arc::clone(&self.shared);
        let state = self.agents.entry(plan.agent.clone()).or_default();
        let (mut pause, mut n_failures) = (FIRST_PAUSE, 0);
        loop {
            let attempt = tokio::select! {
                () = shared.cancel.cancelled() => return Drove::Interrupted,
                attempt = bench.attempt(&mut state.desk, plan) => attempt,
            };
            let error = match attempt {
                Ok(numbers) => return Drove::Made(numbers),
                Err(Trouble::Refused { samples, error }) => {
                    return Drove::Refused { samples, error };
                }
                Err(Trouble::Again(error)) => error,
            };
            tracing::warn!(agent = %plan.agent, n = plan.n(), %error, "the step is tried again");
            n_failures += usize::from(error.status().is_some_and(|status| status >= 500));
            if n_failures >= MAX_FAILURES && bench.has_not(&mut state.desk, plan).await {
                return Drove::Refused {
                    samples: false,
                    error,
                };
            }
            shared.board.phase(Phase::WaitingForTrainer {
                why: error.to_string(),
            });
            if !shared.sleep(pause).await {
                return Drove::Interrupted;
            }
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
        let rest = u64::try_from(state.refused().as_millis()).unwrap_or(u64::MAX);
        let until_ms = now_ms().saturating_add(rest);
        self.shared.board.phase(Phase::Resting {
            agent: plan.agent.clone(),
            why,
            until_ms,
        });
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
    async fn head(
        &self,
        steps: &[metaclaw_turns::Step],
        shape: &Shape,
    ) -> Result<Head, TrainError> {
        if !self.capabilities.manifests {
            return Ok(Head::by_log(steps));
        }
        let checkpoints = self
            .checkpoints()
            .await
            .map_err(|trouble| TrainError::NoTrainer {
                why: trouble.to_string(),
            })?;
        Ok(Head::resume(steps, &checkpoints, shape))
    }
}
