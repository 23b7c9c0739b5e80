//! What training works with, whether it settles an old step or makes a new one.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use metaclaw_chat::{AgentId, now_ms};
use metaclaw_trainer_api::{BackendError, CheckpointName, TrainingBackend};
use metaclaw_turns::{LogError, StepOutcome};
use tokio::time::Instant;

use super::{agent::AgentState, rest::Rest, runner::StepRunner};
use crate::{
    config::Teacher,
    error::{NoScores, NoTokenIds, NotTested, TrainError},
    gate::Gate,
    lineage::Replayed,
    methods::Signal,
    policy::Policy,
    shared::Shared,
    status::Phase,
};

/// How long a server is left alone that fails at whatever the teacher is asked: steps of what is there go on meanwhile.
const TEACHER_REST: Duration = Duration::from_secs(60);

/// What an owner can do whose training server cannot do what the teacher needs.
const WITHOUT_TEACHER: &str = ". Set rl.method to binary_rl, which learns from verdicts and needs no teacher (metaclaw config rl.method binary_rl), and restart";

/// The training task's own state.
#[derive(Debug)]
pub(crate) struct TrainingContext {
    pub(crate) shared: Arc<Shared>,
    backend: Arc<dyn TrainingBackend>,
    /// The same server, asked without training.
    pub(crate) policy: Arc<Policy>,
    agents: BTreeMap<AgentId, AgentState>,
    /// What adapters pass before they serve.
    pub(crate) gate: Gate,
    /// The replay that the steps are of, if they are.
    pub(crate) replay: Option<Replayed>,
    /// Whether this look ended in waiting for something, which the status shows.
    pub(crate) waits: bool,
    /// Until when the teacher is asked nothing, and what the server said.
    no_teacher: Option<(Instant, String)>,
    /// The pause after the training server refused to be used at all: its key, its account, or the model.
    rest: Option<Rest>,
}

impl TrainingContext {
    pub(crate) fn new(shared: Arc<Shared>, backend: Arc<dyn TrainingBackend>) -> Self {
        let policy = Arc::new(Policy::new(Arc::clone(&backend)));
        let gate = Gate::new(
            Arc::clone(&policy),
            shared.config.gate,
            shared.folder.as_deref(),
        );
        Self {
            shared,
            backend,
            policy,
            gate,
            replay: None,
            agents: BTreeMap::new(),
            waits: false,
            no_teacher: None,
            rest: None,
        }
    }

    /// Gives back the runs that it has at the training server.
    pub(crate) async fn close(&mut self) {
        let runs = self.agents.values_mut().filter_map(|it| it.run.id.take());
        for run in runs {
            if let Err(error) = self.backend.close_run(run).await {
                // It goes when the server wants its memory.
                tracing::debug!(%error, "not closed");
            }
        }
        self.policy.close().await;
    }

    /// What is remembered of an agent.
    pub(crate) fn agent(&mut self, agent: &AgentId) -> &mut AgentState {
        self.agents.entry(agent.clone()).or_default()
    }

    /// Shows what training waits for.
    pub(crate) fn waits_for(&mut self, phase: Phase) {
        self.waits = true;
        self.shared.status.phase(phase);
    }

    /// Has the training server asked again at once though it refused: its owner asks for a step.
    pub(crate) fn ask_at_once(&mut self) {
        if let Some(rest) = &mut self.rest {
            rest.end();
        }
    }

    /// The trainer as it is now, with what it can do. One that refused is not asked in the pause that follows.
    pub(crate) async fn runner(&mut self) -> Result<StepRunner, TrainError> {
        if let Some(rest) = self.rest.as_ref().filter(|rest| !rest.is_over()) {
            let (why, until_ms) = (rest.why.clone(), rest.until_ms);
            return Err(self.refuses(why, until_ms));
        }
        let health = match self.backend.health().await {
            Ok(health) => health,
            // Asking again soon would be of no use, and is a provider's to bear.
            Err(error) if error.status().is_some_and(|it| (400..500).contains(&it)) => {
                let rest = Rest::after(self.rest.take(), error.to_string(), now_ms());
                let (why, until_ms) = (rest.why.clone(), rest.until_ms);
                self.rest = Some(rest);
                return Err(self.refuses(why, until_ms));
            }
            Err(error) => return Err(self.waits_because(error.words())),
        };
        self.rest = None;
        if !health.capabilities.sampled {
            return Err(self.no_trainer(&NoTokenIds));
        }
        Ok(StepRunner {
            backend: Arc::clone(&self.backend),
            rl: self.shared.config.rl.clone(),
            base: health.base_fingerprint,
            replay: self.replay.clone(),
            capabilities: health.capabilities,
        })
    }

    /// Sees to it that what is trained can be tested before it serves: else a step would be made, and its turns given back,
    /// again and again.
    ///
    /// # Errors
    /// [`TrainError::NoTrainer`].
    pub(crate) async fn can_test(&mut self) -> Result<(), TrainError> {
        if !self.gate.is_on() {
            return Ok(());
        }
        if !self.runner().await?.capabilities.forward {
            return Err(self.no_trainer(&NoScores));
        }
        match self.gate.lacks().await {
            Ok(None) => Ok(()),
            Ok(Some(why)) => {
                let rl = &self.shared.config.rl;
                let is_asked = rl.method.has(Signal::Target) && rl.teacher != Teacher::Session;
                let has_teacher = is_asked || rl.method.has(Signal::Hint);
                let what_to_do = if has_teacher { WITHOUT_TEACHER } else { "" };
                Err(self.no_trainer(&NotTested(format!("{why}{what_to_do}"))))
            }
            Err(error) => {
                // The step asks the server next, and reports its failure.
                tracing::debug!(%error, "it is not known whether the server scores replies");
                Ok(())
            }
        }
    }

    /// The training server refuses to be used.
    fn refuses(&mut self, why: String, until_ms: u64) -> TrainError {
        self.waits_for(Phase::Refused {
            why: why.clone(),
            until_ms,
        });
        TrainError::NoTrainer { why }
    }

    /// The training server cannot be used for now.
    pub(crate) fn no_trainer(&mut self, error: &dyn std::error::Error) -> TrainError {
        self.waits_because(error.to_string())
    }

    fn waits_because(&mut self, why: String) -> TrainError {
        self.waits_for(Phase::WaitingForTrainer { why: why.clone() });
        TrainError::NoTrainer { why }
    }

    /// No turn can be put to the teacher for now.
    pub(crate) fn no_teacher(&mut self, error: &BackendError) -> TrainError {
        if error.is_unreachable() {
            return self.no_trainer(error);
        }
        let what_to_do = if error.is_not_supported() {
            WITHOUT_TEACHER
        } else {
            ""
        };
        let why = format!("the teacher cannot be asked: {error}{what_to_do}");
        tracing::warn!(why, "turns wait for the teacher's reply");
        if !error.is_busy() {
            self.no_teacher = Some((Instant::now() + TEACHER_REST, why.clone()));
        }
        self.waits_for(Phase::WaitingForTrainer { why });
        let why = format!("{error}{what_to_do}");
        TrainError::NoTeacher { why }
    }

    /// The external teacher cannot be asked for now: it is left alone for a while, and so is the other.
    pub(crate) fn no_external_teacher(&mut self, why: String) -> TrainError {
        tracing::warn!(why, "turns wait for the external teacher (opd.teacher_url)");
        let shown = format!("the external teacher (opd.teacher_url) cannot be asked: {why}");
        self.no_teacher = Some((Instant::now() + TEACHER_REST, shown.clone()));
        self.waits_for(Phase::WaitingForTrainer { why: shown });
        TrainError::NoTeacher { why }
    }

    /// Whether the teacher is left alone, which is shown.
    pub(crate) fn teacher_rests(&mut self) -> bool {
        let resting = self.no_teacher.as_ref();
        let resting = resting.filter(|(until, _)| Instant::now() < *until);
        let why = resting.map(|(_, why)| why.clone());
        let rests = why.is_some();
        if let Some(why) = why {
            self.waits_for(Phase::WaitingForTrainer { why });
        }
        rests
    }

    /// The checkpoints that must stay, however old: those whose adapters serve, those that an open step goes back to,
    /// and those that the next steps start from.
    ///
    /// # Errors
    /// The log's: who cannot say what is needed has nothing deleted.
    pub(crate) async fn needed_checkpoints(&self) -> Result<Vec<CheckpointName>, LogError> {
        let shared = &self.shared;
        let serving = shared.persist(|| shared.log.serving()).await?;
        let open = shared.persist(|| shared.log.open_steps()).await?;
        let of_agents = self
            .agents
            .values()
            .filter_map(|state| state.resume.as_ref());
        let starts = of_agents.filter_map(|(point, _)| point.checkpoint.clone());
        let adapters = serving.into_iter().map(|(_, adapter)| adapter);
        let parents = open.into_iter().filter_map(|step| step.begun.parent);
        // An adapter's checkpoint has its name.
        let names = adapters.chain(parents).filter_map(|name| name.parse().ok());
        Ok(names.chain(starts).collect())
    }

    /// Notes what a step came to.
    pub(crate) async fn finish(
        &self,
        agent: &AgentId,
        n: u64,
        outcome: StepOutcome,
    ) -> Result<(), LogError> {
        let finish = || self.shared.log.finish_step(agent, n, outcome.clone());
        // It is not open after a failure whose first try was written all the same.
        self.shared.persist(finish).await.map(|_| ())
    }
}
