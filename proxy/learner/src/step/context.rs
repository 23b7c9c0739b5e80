//! What training works with, whether it settles an old step or makes a new one.

use std::{collections::BTreeMap, sync::Arc};

use metaclaw_chat::AgentId;
use metaclaw_trainer_api::{CheckpointName, TrainingBackend};
use metaclaw_turns::{LogError, StepOutcome};

use super::{agent::AgentState, runner::StepRunner};
use crate::{
    error::{NoScores, NoTokenIds, TrainError},
    gate::Gate,
    policy::Policy,
    shared::Shared,
    status::Phase,
};

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
    /// Whether this look ended in waiting for something, which the status shows.
    pub(crate) waits: bool,
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
            agents: BTreeMap::new(),
            waits: false,
        }
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

    /// The trainer as it is now, with what it can do.
    pub(crate) async fn runner(&mut self) -> Result<StepRunner, TrainError> {
        let health = self.backend.health().await;
        let health = health.map_err(|error| self.no_trainer(&error))?;
        if !health.capabilities.sampled {
            return Err(self.no_trainer(&NoTokenIds));
        }
        Ok(StepRunner {
            backend: Arc::clone(&self.backend),
            rl: self.shared.config.rl.clone(),
            base: health.base_fingerprint,
            capabilities: health.capabilities,
        })
    }

    /// Sees to it that what is trained can be tested before it serves: else a step would be made, and its turns given back,
    /// again and again.
    ///
    /// # Errors
    /// [`TrainError::NoTrainer`].
    pub(crate) async fn can_test(&mut self) -> Result<(), TrainError> {
        if !self.gate.is_on() || self.runner().await?.capabilities.forward {
            return Ok(());
        }
        Err(self.no_trainer(&NoScores))
    }

    /// The training server cannot be used for now.
    pub(crate) fn no_trainer(&mut self, error: &dyn std::error::Error) -> TrainError {
        let why = error.to_string();
        self.waits_for(Phase::WaitingForTrainer { why: why.clone() });
        TrainError::NoTrainer { why }
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
