//! What training works with: the task's own state, what it remembers of each agent between two looks at the log, and where
//! that agent's next step starts.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};
use metaclaw_chat::{AgentId, TurnId, now_ms, whole_ms};
use metaclaw_trainer_api::{AdapterName, BackendError, CheckpointName, TrainingBackend};
use metaclaw_turns::{LogError, Step, StepOutcome, Turn};
use tokio::time::Instant;

use crate::{
    batch::{self, FoundGroups, SeenTurns},
    error::{NoScores, NoTokenIds, NotTested, TrainError},
    gate::{self, AdapterTestError, Gate, GateReport, Series, VerdictHistory},
    lineage::{Ancestry, BaseModel, Replayed, ResumePoint, Resumed, Shape, WantedStart},
    methods::TrainingSignal,
    policy::PolicyModel,
    sample::{Batch, ExcludeReason, first_groups, rollout_batch, step_advantages},
    shared::Shared,
    status::Phase,
    teacher::TeacherMemory,
    trainer::{RunHandle, StepRunner},
};

/// How long a server is left alone that fails at whatever the teacher is asked: steps of what is there go on meanwhile.
const TEACHER_REST: Duration = Duration::from_secs(60);

const WITHOUT_TEACHER: &str = ". Set rl.method to binary_rl, which learns from verdicts and needs no teacher (metaclaw config rl.method binary_rl), and restart";

#[derive(Debug)]
pub(crate) struct TrainingContext {
    pub(crate) shared: Arc<Shared>,
    backend: Arc<dyn TrainingBackend>,
    pub(crate) policy: Arc<PolicyModel>,
    agents: BTreeMap<AgentId, AgentState>,
    pub(crate) gate: Gate,
    pub(crate) replay: Option<Replayed>,
    teacher_pause: Option<TeacherPause>,
    /// The pause after the training server refused to be used at all: its key, its account, or the model.
    rest: Option<RefusalPause>,
}

#[derive(Debug)]
struct TeacherPause {
    until: Instant,
    why: String,
}

// === impl TrainingContext ===

impl TrainingContext {
    pub(crate) fn new(shared: Arc<Shared>, backend: Arc<dyn TrainingBackend>) -> Self {
        let policy = Arc::new(PolicyModel::new(Arc::clone(&backend)));
        let gate = Gate::new(
            Arc::clone(&policy),
            shared.config.gate.clone(),
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

    pub(crate) async fn close(&mut self) {
        for state in self.agents.values_mut() {
            state.run.close(&*self.backend).await;
        }
        self.policy.close().await;
    }

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
            AdapterTestError::Log(error) => error.into(),
            refused => TrainError::Refused {
                why: refused.to_string(),
            },
        })
    }

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
            Err(error) if error.status().is_some_and(|s| (400..500).contains(&s)) => {
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

    fn refuses(&self, why: String, until_ms: u64) -> TrainError {
        self.shared.status.waits_for(Phase::Refused {
            why: why.clone(),
            until_ms,
        });
        TrainError::NoTrainer { why }
    }

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

    /// Returns the batch of the oldest complete groups, with at most `limit` rollouts if there are several groups. Nothing is
    /// excluded yet: the batch says what is to be.
    ///
    /// # Errors
    /// Returns [`TrainError::NoTrainer`], [`TrainError::NoAdvantages`], and the log's errors.
    pub(crate) async fn rollout_batch(
        &mut self,
        agent: &AgentId,
        base: &BaseModel,
        found: FoundGroups,
        limit: usize,
    ) -> Result<Batch, TrainError> {
        let shared = Arc::clone(&self.shared);
        let config = &shared.config.rl.rollouts;
        let FoundGroups { mut groups, spent } = found;
        let (start, _lost) = self.site(agent).await?.look_for_start(base).await?;
        let version = start.point.steps;
        let mut lagging: Vec<TurnId> = Vec::new();
        for group in &mut groups {
            lagging.extend(group.take_lagging(version, config.max_lag));
        }
        groups.retain(|group| !group.steps.is_empty());
        let groups = first_groups(groups, limit);
        let advantages = match &shared.advantages {
            Some(function) if !groups.is_empty() => {
                let given = function.compute(&groups).await;
                given.map_err(|error| self.no_advantages(error.to_string()))?
            }
            Some(_) | None => step_advantages(&groups, config.advantage),
        };
        let mut batch = rollout_batch(&groups, &advantages);
        batch.spent.extend(spent);
        let lagging = lagging.into_iter().map(|id| (id, ExcludeReason::Lagging));
        batch.spent.extend(lagging);
        Ok(batch)
    }
}

// === impl TeacherPause ===

impl TeacherPause {
    fn begin(why: String) -> Self {
        let until = Instant::now() + TEACHER_REST;
        Self { until, why }
    }
}

/// The pause after the first refusal in a row. Each further one doubles it, up to [`LONGEST`].
const FIRST: Duration = Duration::from_secs(60);
const LONGEST: Duration = Duration::from_secs(3_600);
const PAUSES: ExponentialBuilder = ExponentialBuilder::new()
    .with_min_delay(FIRST)
    .with_max_delay(LONGEST)
    .without_max_times();

/// One agent's side of training. All of it can be had again from the log and the checkpoints.
#[derive(Debug, Default)]
pub(crate) struct AgentState {
    pub(crate) run: RunHandle,
    pub(crate) resume: Option<(ResumePoint, Shape)>,
    pub(crate) seen: SeenTurns,
    pub(crate) teacher: TeacherMemory,
    pub(crate) pulls: BTreeMap<TurnId, Arc<[f32]>>,
    /// Checkpoints that the server cannot use, or whose weights are no numbers.
    pub(crate) unfit: BTreeSet<CheckpointName>,
    pub(crate) n_unsettled: usize,
    pub(crate) verdicts: VerdictHistory,
    rest: Option<RefusalPause>,
}

pub(crate) struct StepSite<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) gate: &'a mut Gate,
    pub(crate) runner: StepRunner,
    pub(crate) agent: &'a AgentId,
    pub(crate) state: &'a mut AgentState,
    /// Checkpoints that the next steps of other agents start from. They must not be deleted.
    pub(crate) others_start: Vec<CheckpointName>,
}

pub(crate) struct TrainingStep<'a, S> {
    pub(super) site: StepSite<'a>,
    pub(super) state: S,
}

#[derive(Debug)]
pub(crate) struct RefusalPause {
    until: Instant,
    further: ExponentialBackoff,
    pub(crate) why: String,
    pub(crate) until_ms: u64,
}

// === impl AgentState ===

impl AgentState {
    pub(crate) fn refused(&mut self, why: String, now_ms: u64) {
        self.rest = Some(RefusalPause::after(self.rest.take(), why, now_ms));
        // What was known may be what was wrong.
        self.resume = None;
        self.run = RunHandle::default();
    }

    pub(crate) fn set_unfit(&mut self, checkpoint: CheckpointName) {
        self.unfit.insert(checkpoint);
        self.resume = None;
        self.run.at = None;
    }

    pub(crate) fn start(&self) -> Option<&CheckpointName> {
        self.resume.as_ref()?.0.checkpoint.as_ref()
    }

    pub(crate) fn was_refused(&self) -> bool {
        self.rest.is_some()
    }

    pub(crate) fn stepped(&mut self, point: ResumePoint, shape: Shape) {
        self.resume = Some((point, shape));
        self.rest = None;
    }

    pub(crate) fn resting(&self) -> Option<&RefusalPause> {
        self.rest.as_ref().filter(|rest| !rest.is_over())
    }
}

// === impl StepSite ===

impl StepSite<'_> {
    pub(crate) async fn steps(&self) -> Result<Vec<Step>, LogError> {
        let shared = self.shared;
        shared.steps(self.agent).await
    }

    pub(crate) async fn finish(&self, n: u64, outcome: StepOutcome) -> Result<(), LogError> {
        let log = &self.shared.log;
        let finish = || log.finish_step(self.agent, n, outcome.clone());
        // It is not open after a failure whose first try was written all the same.
        self.shared.persist(finish).await.map(|_| ())
    }

    /// Has old checkpoints deleted. Those stay, however old, whose adapters serve, those that an open step goes back to,
    /// and those that the next steps start from.
    ///
    /// # Errors
    /// The log's: where it cannot say what is needed, nothing is deleted.
    pub(crate) async fn prune(&self) -> Result<(), LogError> {
        let shared = self.shared;
        let serving = shared.persist(|| shared.log.serving()).await?;
        let open = shared.persist(|| shared.log.open_steps()).await?;
        let adapters = serving.into_iter().map(|(_, adapter)| adapter);
        let parents = open.into_iter().filter_map(|step| step.begun.parent);
        // An adapter's checkpoint has its name.
        let names = adapters.chain(parents).filter_map(|name| name.parse().ok());
        let starts = self.state.start().into_iter().chain(&self.others_start);
        let needed = names.chain(starts.cloned()).collect();
        self.runner.prune(needed).await;
        Ok(())
    }

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
            (None, Some(known)) => Resumed::from_checkpoints(steps, known, wanted),
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

// === impl RefusalPause ===

impl RefusalPause {
    /// The pause after a refusal; `earlier` is the one before it, if the last attempt was refused as well.
    pub(crate) fn after(earlier: Option<Self>, why: String, now_ms: u64) -> Self {
        let mut further = earlier.map_or_else(|| PAUSES.build(), |rest| rest.further);
        let length = further.next().unwrap_or(LONGEST);
        Self {
            until: Instant::now() + length,
            further,
            why,
            until_ms: now_ms.saturating_add(whole_ms(length)),
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        Instant::now() >= self.until
    }

    pub(crate) fn end(&mut self) {
        self.until = Instant::now();
    }
}

#[derive(Debug)]
pub(crate) struct StepStart {
    pub(crate) point: ResumePoint,
    pub(crate) shape: Shape,
    pub(crate) ancestry: Ancestry,
    pub(crate) attempt: u32,
    pub(crate) series: Series,
}

// === impl StepStart ===

impl StepStart {
    fn at(point: ResumePoint, shape: Shape, steps: &[Step]) -> Self {
        let of_step =
            |step: &&Step| step.begun.lineage == point.lineage && step.begun.n == point.n + 1;
        let attempts = steps.iter().filter(of_step);
        let attempt = attempts.map(|step| step.begun.attempt + 1).max();
        Self {
            attempt: attempt.unwrap_or(0),
            series: Series::from_steps(steps),
            ancestry: Ancestry::new(steps, &point),
            point,
            shape,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_refusal_in_a_row_doubles_the_pause() {
        let mut last = None;
        let mut pause = || {
            let rest = RefusalPause::after(last.take(), "no".to_owned(), 0);
            assert!(!rest.is_over());
            let length = Duration::from_millis(rest.until_ms);
            last = Some(rest);
            length
        };
        assert_eq!(pause(), FIRST);
        assert_eq!(pause(), 2 * FIRST);
        assert_eq!((0..10).map(|_| pause()).last(), Some(LONGEST));
        let mut rest = last.unwrap();
        tokio::time::advance(LONGEST).await;
        assert!(rest.is_over());
        rest = RefusalPause::after(Some(rest), "no".to_owned(), 0);
        assert!(!rest.is_over());
        rest.end();
        assert!(rest.is_over());
    }
}
