//! What the learner's tasks share.
//!
//! Which agents' weights are being trained: one training of each at a time.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use metaclaw_chat::{AgentId, TurnId, lock, now_ms};
use metaclaw_schedule::{Schedule, Window};
use metaclaw_skills::{Library, MemoryStore, Wish};
use metaclaw_trainer_api::{AdapterName, TrainingBackend};
use metaclaw_turns::{
    DailyCounts, LogError, LogFuture, Rollout, RolloutFilter, StateKind, Step, Turn, TurnFilter,
    TurnLog, TurnSummary,
};
use tokio::{
    sync::{Mutex as AsyncMutex, Notify, OwnedMutexGuard},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::{
    advantages::AdvantageFunction,
    config::{LearnerConfig, Mode},
    error::TrainError,
    evolver::Evolver,
    external_teacher::ExternalTeacher,
    held_out_rollouts::RolloutRequests,
    judge::Judge,
    listener::Listener,
    metrics::Recorder,
    status::{Phase, StatusCell},
};

const LOG_PAUSE: Duration = Duration::from_millis(500);
const MAX_WITHOUT_IDS: usize = 10_000;
/// How long no chat must have run before a step goes on: an agent's next request follows within seconds.
const QUIET: Duration = Duration::from_secs(20);
/// The longest pause for chats, so that agents which talk all day do not keep a step from ending.
const LONGEST_PAUSE: Duration = Duration::from_secs(600);
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Told when an agent is to be served by another adapter; none is the base model.
pub type OnSwap = Arc<dyn Fn(&AgentId, Option<&AdapterName>) + Send + Sync>;

/// Whether an agent is only relayed for now (`metaclaw off`): nothing is heard, judged or trained then.
pub type IsOff = Arc<dyn Fn(&AgentId) -> bool + Send + Sync>;

/// Whether a chat is running, which training lets go first.
pub type IsChatting = Arc<dyn Fn() -> bool + Send + Sync>;

/// What a learner is made of.
#[derive(derive_more::Debug)]
#[debug("Parts({config:?})")]
pub struct Parts {
    pub config: LearnerConfig,
    pub log: TurnLog,
    /// Who trains; none where no weights are to learn.
    pub backend: Option<Arc<dyn TrainingBackend>>,
    pub judge: Judge,
    /// Who says what a message wishes, where the judge is no model that could; without one, rules do.
    pub listener: Option<Listener>,
    /// Who says how likely it finds what was sampled; none where the verdict alone pushes.
    pub external_teacher: Option<ExternalTeacher>,
    /// Who computes the advantages of rollouts (`rl.advantages`); none where they are built in.
    pub advantages: Option<AdvantageFunction>,
    /// When costly learning may run.
    pub schedule: Schedule,
    /// The folder of wishes; none if wishes are not detected.
    pub library: Option<Library>,
    /// The facts that the owner told; none if `memory.enabled` is false.
    pub memory: Option<MemoryStore>,
    /// The agents whose requests are only relayed for now.
    pub is_off: IsOff,
    pub is_chatting: IsChatting,
    /// Who writes skills from what went wrong, into which library; none where nobody is to.
    pub evolver: Option<(Library, Evolver)>,
    /// Where the numbers of each step are written.
    pub recorder: Recorder,
    /// Its own folder, which is made when there is something to keep: what can be had again, and costs. None keeps nothing.
    pub folder: Option<PathBuf>,
    /// Told when an agent is to be served by another adapter: before [`crate::Learner::start`] returns for the
    /// adapters that the log names, then after each step.
    pub on_swap: OnSwap,
}

/// What the tasks share: the parts of the learner, which it derefs to, and what they tell each other.
#[derive(derive_more::Debug, derive_more::Deref)]
#[debug("Shared({parts:?})")]
pub(crate) struct Shared {
    #[deref]
    pub(crate) parts: Parts,
    pub(crate) rollout_requests: RolloutRequests,
    pub(crate) lessons: Option<Library>,
    pub(crate) cancel: CancellationToken,
    pub(crate) training: AgentLocks,
    pub(crate) wake: Notify,
    /// Each request to the training task holds a clone until it is answered.
    pub(crate) waiting: Arc<()>,
    pub(crate) status: StatusCell,
    without_ids: Mutex<BTreeSet<TurnId>>,
    n_changed_verdicts: AtomicU64,
    pub(crate) n_ingested: AtomicU64,
}

// === impl Shared ===

impl Shared {
    pub(crate) fn new(parts: Parts, cancel: CancellationToken) -> Self {
        let evolver = parts.evolver.as_ref();
        let lessons = parts.library.as_ref();
        Self {
            rollout_requests: RolloutRequests::default(),
            lessons: lessons.or_else(|| Some(&evolver?.0)).cloned(),
            parts,
            cancel,
            training: AgentLocks::default(),
            wake: Notify::new(),
            waiting: Arc::default(),
            status: StatusCell::default(),
            without_ids: Mutex::default(),
            n_changed_verdicts: AtomicU64::new(0),
            n_ingested: AtomicU64::new(0),
        }
    }

    pub(crate) fn external_teacher(&self) -> Option<&ExternalTeacher> {
        let teacher = self.parts.external_teacher.as_ref();
        teacher.filter(|_| self.config.rl.method.has_advantages())
    }

    /// Asks the log until it answers: while it is being reopened, again.
    ///
    /// Only for what may be done twice. [`LogError::Closed`] also says that the learner is to end.
    pub(crate) fn persist<'a, T: Send + 'a>(
        &'a self,
        ask: impl Fn() -> LogFuture<'a, T> + Send + Sync + 'a,
    ) -> LogFuture<'a, T> {
        // One loop for each `T`, instead of one for each of the hundred callers.
        let ask: Box<dyn Fn() -> LogFuture<'a, T> + Send + Sync + 'a> = Box::new(ask);
        Box::pin(async move {
            loop {
                let answer = ask().await;
                #[cfg(test)]
                crate::testing::crash::moment().await;
                match answer {
                    Err(LogError::Broken { .. }) if self.sleep(LOG_PAUSE).await => {}
                    other => return other,
                }
            }
        })
    }

    /// Returns whether a turn is no longer in the log. Whoever stores something that a turn taught asks this afterwards:
    /// `forget` deletes the turns first, and then what was learned from them by then.
    pub(crate) async fn is_deleted(&self, turn: TurnId) -> bool {
        matches!(self.persist(|| self.log.has(turn)).await, Ok(false))
    }

    pub(crate) async fn turn(&self, id: TurnId) -> Result<Option<Turn>, LogError> {
        self.persist(|| self.log.get(id)).await
    }

    pub(crate) async fn agents(&self) -> Result<Vec<AgentId>, LogError> {
        self.persist(|| self.log.agents()).await
    }

    pub(crate) async fn steps(&self, agent: &AgentId) -> Result<Vec<Step>, LogError> {
        self.persist(|| self.log.steps(agent)).await
    }

    pub(crate) async fn in_state(
        &self,
        agent: &AgentId,
        kind: StateKind,
    ) -> Result<Vec<TurnId>, LogError> {
        self.persist(|| self.log.in_state(agent, kind)).await
    }

    pub(crate) async fn list(
        &self,
        agent: &AgentId,
        limit: usize,
    ) -> Result<Vec<TurnSummary>, LogError> {
        let filter = TurnFilter {
            agent: Some(agent.clone()),
            limit,
            ..TurnFilter::default()
        };
        self.persist(|| self.log.list(filter.clone())).await
    }

    pub(crate) async fn rollouts(&self, agent: &AgentId) -> Result<Vec<Rollout>, LogError> {
        let filter = RolloutFilter {
            agent: Some(agent.clone()),
            ..RolloutFilter::default()
        };
        self.persist(|| self.log.rollouts(filter.clone())).await
    }

    pub(crate) async fn serving(&self, agent: &AgentId) -> Result<Option<String>, LogError> {
        let serving = self.persist(|| self.log.serving()).await?;
        let own = serving.into_iter().find(|(whose, _)| whose == agent);
        Ok(own.map(|(_, adapter)| adapter))
    }

    pub(crate) async fn n_judged(&self, agent: &AgentId) -> Result<u64, LogError> {
        let funnel = self.persist(|| self.log.funnel(Some(agent))).await?;
        Ok(funnel.judged)
    }

    /// Whether the time passed without the learner being told to end.
    pub(crate) async fn sleep(&self, time: Duration) -> bool {
        tokio::select! {
            () = self.cancel.cancelled() => false,
            () = tokio::time::sleep(time) => true,
        }
    }

    /// The training server cannot be used for now, which the status shows.
    pub(crate) fn no_trainer(&self, error: &dyn std::error::Error) -> TrainError {
        self.waits_because(error.to_string())
    }

    pub(crate) fn waits_because(&self, why: String) -> TrainError {
        let waits = Phase::WaitingForTrainer { why: why.clone() };
        self.status.waits_for(waits);
        TrainError::NoTrainer { why }
    }

    /// Whether an agent's weights learn from every verdict by themselves. In mode `auto` only if the gate tests what they come
    /// to.
    pub(crate) fn trains(&self, agent: &AgentId) -> bool {
        let by_itself = match self.config.mode_of(agent) {
            Mode::Rl => true,
            Mode::Auto => self.config.gate.enabled,
            Mode::SkillsOnly => false,
        };
        self.backend.is_some() && by_itself
    }

    pub(crate) fn trains_when_asked(&self, agent: &AgentId) -> bool {
        let is_untested = self.config.mode_of(agent) == Mode::Auto && !self.config.gate.enabled;
        self.backend.is_some() && (is_untested || self.config.rl.manual_train_trigger)
    }

    pub(crate) async fn window(&self) -> Result<Window, LogError> {
        let last_main_ms = self.persist(|| self.log.last_main_ms()).await?;
        Ok(self.schedule.window(now_ms(), last_main_ms))
    }

    /// Whether costly learning (a judge model, an evolver, a step) may begin for an agent: in mode `rl` at any
    /// time, else while its owner is away.
    pub(crate) async fn may_cost(&self, agent: &AgentId) -> Result<bool, LogError> {
        match self.config.mode_of(agent) {
            Mode::Rl => Ok(true),
            Mode::Auto | Mode::SkillsOnly => Ok(self.window().await?.is_open()),
        }
    }

    /// Pauses a step that `mode: auto` began while its owner was away, while a chat is running and nobody waits for the
    /// training task.
    pub(crate) async fn let_chats_go_first(&self, agent: &AgentId) {
        let is_waited_for = || Arc::strong_count(&self.waiting) > 1;
        if self.config.mode_of(agent) != Mode::Auto || !(self.is_chatting)() || is_waited_for() {
            return;
        }
        let phase = self.status.read().phase;
        let agent = agent.clone();
        self.status.phase(Phase::Paused { agent });
        let began = Instant::now();
        let mut last_chat = began;
        while last_chat.elapsed() < QUIET && began.elapsed() < LONGEST_PAUSE && !is_waited_for() {
            tokio::time::sleep(LOOK_EVERY).await;
            if (self.is_chatting)() {
                last_chat = Instant::now();
            }
        }
        self.status.phase(phase);
    }

    /// Puts a turn aside, for good.
    pub(crate) async fn spend(&self, id: TurnId, why: impl fmt::Display) -> Result<(), LogError> {
        let why = why.to_string();
        let is_free = self.persist(|| self.log.spend(id, &why)).await?;
        if is_free {
            tracing::debug!(turn = %id, why, "not trained on");
        }
        Ok(())
    }

    pub(crate) fn wishes(&self, agent: &AgentId) -> Vec<String> {
        let wishes = self.library.as_ref().map(|library| library.wishes(agent));
        let wishes = wishes.into_iter().flatten();
        wishes.map(|wish| wish.text).collect()
    }

    /// The ids of the standing wishes that an agent's weights are to keep.
    pub(crate) fn wish_ids(&self, agent: &AgentId) -> Vec<String> {
        let library = self.library.as_ref();
        let wishes = library.map(|library| library.wishes_to_teach(agent));
        wishes.iter().flatten().map(Wish::id).collect()
    }

    /// Another verdict than before is in force on some turn: what was read of turns is to be read again.
    pub(crate) fn verdict_changed(&self) {
        self.n_changed_verdicts.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn n_changed_verdicts(&self) -> u64 {
        self.n_changed_verdicts.load(Ordering::Acquire)
    }

    pub(crate) async fn count_lessons(&self, agent: &AgentId, at_ms: u64, lessons: u64) {
        if lessons == 0 {
            return;
        }
        let counts = DailyCounts {
            lessons,
            ..DailyCounts::default()
        };
        let counted = self.persist(|| self.log.count(agent, at_ms, counts)).await;
        if let Err(error) = counted {
            tracing::warn!(%error, "a lesson is missing in the counts of its day");
        }
    }

    pub(crate) fn ids_are_gone(&self, id: TurnId) {
        let mut gone = self.gone();
        if gone.len() >= MAX_WITHOUT_IDS {
            gone.pop_first();
        }
        gone.insert(id);
    }

    pub(crate) fn without_ids(&self) -> BTreeSet<TurnId> {
        self.gone().clone()
    }

    /// A panic elsewhere leaves a set usable: each change is one call.
    fn gone(&self) -> MutexGuard<'_, BTreeSet<TurnId>> {
        lock(&self.without_ids)
    }
}

/// One lock for each agent. A step and a training from a data set hold it.
#[derive(Debug, Default)]
pub(crate) struct AgentLocks(Mutex<BTreeMap<AgentId, Arc<AsyncMutex<()>>>>);

// === impl AgentLocks ===

impl AgentLocks {
    pub(crate) fn try_lock(&self, agent: &AgentId) -> Option<OwnedMutexGuard<()>> {
        self.lock_of(agent).try_lock_owned().ok()
    }

    /// Locks an agent once nothing else is trained of it. The longest waiter gets the lock first.
    pub(crate) async fn lock(&self, agent: &AgentId) -> OwnedMutexGuard<()> {
        self.lock_of(agent).lock_owned().await
    }

    fn lock_of(&self, agent: &AgentId) -> Arc<AsyncMutex<()>> {
        // Each change is one call, so a panic elsewhere leaves the map usable.
        let mut all = lock(&self.0);
        Arc::clone(all.entry(agent.clone()).or_default())
    }
}

#[cfg(test)]
mod tests;
