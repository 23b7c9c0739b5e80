//! What training works with, whether it settles an old step or makes a new one.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use metaclaw_chat::{AgentId, now_ms};
use metaclaw_trainer_api::{AdapterName, BackendError, TrainingBackend};
use metaclaw_turns::Turn;
use tokio::time::Instant;

use super::agent::{AgentState, RefusalPause, StepSite};
use crate::{
    error::{NoScores, NoTokenIds, NotTested, TrainError},
    gate::{self, AdapterTestError, Gate, GateReport},
    lineage::{BaseModel, Replayed},
    methods::TrainingSignal,
    policy::PolicyModel,
    shared::Shared,
    status::Phase,
    trainer::{RunHandle, StepRunner},
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
    pub(crate) policy: Arc<PolicyModel>,
    agents: BTreeMap<AgentId, AgentState>,
    /// What adapters pass before they serve.
    pub(crate) gate: Gate,
    /// The replay that the steps are of, if they are.
    pub(crate) replay: Option<Replayed>,
    /// The pause of a teacher that failed at whatever it was asked.
    teacher_pause: Option<TeacherPause>,
    /// The pause after the training server refused to be used at all: its key, its account, or the model.
    rest: Option<RefusalPause>,
}

/// A pause in which the teacher is asked nothing.
#[derive(Debug)]
struct TeacherPause {
    until: Instant,
    /// What the server said.
    why: String,
}

// === impl TrainingContext ===

impl TrainingContext {
    pub(crate) fn new(shared: Arc<Shared>, backend: Arc<dyn TrainingBackend>) -> Self {
        let policy = Arc::new(PolicyModel::new(Arc::clone(&backend)));
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
            teacher_pause: None,
            rest: None,
        }
    }

    /// Gives back the runs that it has at the training server.
    pub(crate) async fn close(&mut self) {
        for state in self.agents.values_mut() {
            state.run.close(&*self.backend).await;
        }
        self.policy.close().await;
    }

    /// What is remembered of an agent.
    pub(crate) fn agent(&mut self, agent: &AgentId) -> &mut AgentState {
        self.agents.entry(agent.clone()).or_default()
    }

    /// What a step of an agent is made with.
    ///
    /// # Errors
    /// [`TrainError::NoTrainer`].
    pub(crate) async fn site<'a>(
        &'a mut self,
        agent: &'a AgentId,
    ) -> Result<StepSite<'a>, TrainError> {
        let runner = self.runner().await?;
        Ok(self.site_with(runner, agent))
    }

    /// The same with a trainer that has been asked what it can do.
    pub(crate) fn site_with<'a>(
        &'a mut self,
        runner: StepRunner,
        agent: &'a AgentId,
    ) -> StepSite<'a> {
        let others = self.agents.iter().filter(|(other, _)| *other != agent);
        let starts = others.filter_map(|(_, state)| state.start());
        StepSite {
            others_start: starts.cloned().collect(),
            shared: &self.shared,
            gate: &mut self.gate,
            runner,
            agent,
            state: self.agents.entry(agent.clone()).or_default(),
        }
    }

    /// Turns that earlier steps had and that the next one may have again ([`StepSite::used`]).
    ///
    /// # Errors
    /// [`TrainError::NoTrainer`], and the log's.
    pub(crate) async fn used(
        &mut self,
        agent: &AgentId,
        base: &BaseModel,
    ) -> Result<Vec<Arc<Turn>>, TrainError> {
        if self.shared.config.rl.reuse <= 1 {
            return Ok(Vec::new());
        }
        self.site(agent).await?.used(base).await
    }

    /// Takes an adapter back since which an agent's verdicts got worse: the one before it serves.
    ///
    /// # Errors
    /// [`TrainError::NoTrainer`] while the one before cannot be tried, and the log's.
    pub(crate) async fn watch_verdicts(&mut self, agent: &AgentId) -> Result<(), TrainError> {
        if !self.gate.is_on() {
            return Ok(());
        }
        let shared = Arc::clone(&self.shared);
        let seen = gate::seen(&shared, agent).await?;
        let history = &mut self.agent(agent).verdicts;
        if history.seen == Some(seen) {
            return Ok(());
        }
        if let Some(regression) = gate::regression(&shared, agent, history).await? {
            let runner = self.runner().await?;
            let to = regression.replacement(&runner).await;
            let to = to.map_err(|error| shared.no_trainer(&error))?;
            if regression.take_back(&shared, to).await? {
                self.agent(agent).resume = None;
            }
        }
        self.agent(agent).verdicts.seen = Some(seen);
        Ok(())
    }

    /// Tests an adapter that no step of the log is making, because its owner wants it to serve. None where it has no
    /// checkpoint of ours.
    ///
    /// # Errors
    /// [`TrainError::NoTrainer`]; [`TrainError::Refused`] where it cannot be tested; the log's.
    pub(crate) async fn test_adapter(
        &mut self,
        adapter: &AdapterName,
    ) -> Result<Option<GateReport>, TrainError> {
        let runner = self.runner().await?;
        let mut run = RunHandle::default();
        let tested =
            gate::test_adapter(&self.shared, &mut self.gate, runner, &mut run, adapter).await;
        run.close(&*self.backend).await;
        tested.map_err(|error| match error {
            AdapterTestError::Server(error) => self.shared.no_trainer(&error),
            AdapterTestError::Refused(why) => TrainError::Refused { why },
            AdapterTestError::Log(error) => error.into(),
        })
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
                let rest = RefusalPause::after(self.rest.take(), error.to_string(), now_ms());
                let (why, until_ms) = (rest.why.clone(), rest.until_ms);
                self.rest = Some(rest);
                return Err(self.refuses(why, until_ms));
            }
            Err(error) => return Err(self.shared.waits_because(error.words())),
        };
        self.rest = None;
        if !health.capabilities.sampled {
            return Err(self.shared.no_trainer(&NoTokenIds));
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
            return Err(self.shared.no_trainer(&NoScores));
        }
        match self.gate.lacks().await {
            Ok(None) => Ok(()),
            Ok(Some(why)) => {
                let rl = &self.shared.config.rl;
                let has_teacher =
                    rl.method.has(TrainingSignal::Target) || rl.method.has(TrainingSignal::Hint);
                let what_to_do = if has_teacher { WITHOUT_TEACHER } else { "" };
                Err(self
                    .shared
                    .no_trainer(&NotTested(format!("{why}{what_to_do}"))))
            }
            Err(error) => {
                // The step asks the server next, and reports its failure.
                tracing::debug!(%error, "it is not known whether the server scores replies");
                Ok(())
            }
        }
    }

    /// The training server refuses to be used.
    fn refuses(&self, why: String, until_ms: u64) -> TrainError {
        self.shared.status.waits_for(Phase::Refused {
            why: why.clone(),
            until_ms,
        });
        TrainError::NoTrainer { why }
    }

    /// No turn can be put to the teacher for now.
    pub(crate) fn no_teacher(&mut self, error: &BackendError) -> TrainError {
        if error.is_unreachable() {
            return self.shared.no_trainer(error);
        }
        let what_to_do = if error.is_not_supported() {
            WITHOUT_TEACHER
        } else {
            ""
        };
        let why = format!("the teacher cannot be asked: {error}{what_to_do}");
        tracing::warn!(why, "turns wait for the teacher's reply");
        if !error.is_busy() {
            self.teacher_pause = Some(TeacherPause::begin(why.clone()));
        }
        self.shared
            .status
            .waits_for(Phase::WaitingForTrainer { why });
        let why = format!("{error}{what_to_do}");
        TrainError::NoTeacher { why }
    }

    /// The external teacher cannot be asked for now: it is left alone for a while, and so is the other.
    pub(crate) fn no_external_teacher(&mut self, why: String) -> TrainError {
        tracing::warn!(why, "turns wait for the external teacher (opd.teacher_url)");
        let shown = format!("the external teacher (opd.teacher_url) cannot be asked: {why}");
        self.teacher_pause = Some(TeacherPause::begin(shown.clone()));
        self.shared
            .status
            .waits_for(Phase::WaitingForTrainer { why: shown });
        TrainError::NoTeacher { why }
    }

    /// The function of `rl.advantages` cannot be used for now: it is left alone for a while.
    pub(crate) fn no_advantages(&mut self, why: String) -> TrainError {
        tracing::warn!(why, "rollouts wait for the function of rl.advantages");
        let shown = format!("the function of rl.advantages gives no advantages: {why}");
        self.teacher_pause = Some(TeacherPause::begin(shown.clone()));
        let waits = Phase::WaitingForTrainer { why: shown };
        self.shared.status.waits_for(waits);
        TrainError::NoAdvantages { why }
    }

    /// Whether the teacher is left alone, which is shown.
    pub(crate) fn teacher_rests(&self) -> bool {
        let pause = self.teacher_pause.as_ref();
        let pause = pause.filter(|pause| Instant::now() < pause.until);
        if let Some(TeacherPause { why, .. }) = pause {
            let why = why.clone();
            let waits = Phase::WaitingForTrainer { why };
            self.shared.status.waits_for(waits);
        }
        pause.is_some()
    }
}

// === impl TeacherPause ===

impl TeacherPause {
    fn begin(why: String) -> Self {
        let until = Instant::now() + TEACHER_REST;
        Self { until, why }
    }
}
