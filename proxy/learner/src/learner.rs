//! The learner from outside: started, asked, ended.

use std::{collections::BTreeMap, sync::Arc};

use futures_util::future::BoxFuture;
use metaclaw_chat::{AgentId, TurnId, now_ms};
use metaclaw_skills::BufferedTurn;
use metaclaw_trainer_api::AdapterName;
use metaclaw_turns::{LogError, LogReader, Step, Turn, TurnLog};
use tokio::sync::{
    mpsc::{self, error::TrySendError},
    oneshot,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    config::{LearnerConfig, Mode},
    error::{MAX_ASKED, TrainError},
    eval::{self, EvalError, EvalReport, EvalWanted},
    evolution,
    feedback::{self, Feedback, FeedbackError, Rated},
    gate::{self, GateReport, Series},
    heard_turns,
    held_out_rollouts::WantedRollouts,
    judging,
    memory_extraction::{self, IngestError, IngestedSession},
    metrics::Recorder,
    replay::{self, ReplayEvent, ReplayReport, ReplayWanted},
    sft::{self, SftError, SftEvent, SftReport, SftWanted},
    shared::{Parts, Shared},
    status::{AgentStatus, Declined, LearnerCounts, LearnerStatus, Phase, StepReport},
    step::{self, StepPreview, TrainingContext, TurnPreview},
    tokens,
    training::{Training, TrainingReply, TrainingRequest},
    unread::UnreadTurns,
};

const MAX_AGENTS: usize = 100;

/// The loop behind the chat. Clones are one learner.
#[derive(Debug, Clone)]
pub struct Learner {
    shared: Arc<Shared>,
    asked: Option<mpsc::Sender<TrainingRequest>>,
}

// === impl Learner ===

// The futures are boxed for the reason that [`metaclaw_turns::LogFuture`] gives: they are compiled here, once.
impl Learner {
    /// Serves again what was served, then starts the tasks on `tracker`; they end when `cancel` says so, at
    /// once: what was under way is settled at the next start.
    ///
    /// # Errors
    /// The log's, when it cannot be read.
    pub fn start(
        parts: Parts,
        tracker: &TaskTracker,
        cancel: CancellationToken,
    ) -> BoxFuture<'_, Result<Self, LogError>> {
        Box::pin(async move {
            let evolver = parts.evolver.clone();
            let shared = Arc::new(Shared::new(parts, cancel));
            step::serve_again(&shared).await?;
            let memory = shared.memory.as_ref();
            let readers = [
                (LogReader::Wishes, shared.library.is_some()),
                (
                    LogReader::Facts,
                    memory.is_some_and(|memory| memory.config().auto_extract),
                ),
            ];
            if let Some(turns) = UnreadTurns::resume(&shared, readers).await? {
                tracker.spawn(heard_turns::run(Arc::clone(&shared), turns));
            }
            if let Some((library, evolver)) = evolver {
                tracker.spawn(evolution::run(Arc::clone(&shared), library, evolver));
            }
            tracker.spawn(judging::run(Arc::clone(&shared)));
            let Some(backend) = shared.backend.clone() else {
                shared.status.phase(Phase::Off);
                return Ok(Self {
                    shared,
                    asked: None,
                });
            };
            tracker.spawn(tokens::run(Arc::clone(&shared), Arc::clone(&backend)));
            let (asked, receiver) = mpsc::channel(MAX_ASKED);
            let context = TrainingContext::new(Arc::clone(&shared), backend);
            tracker.spawn(Training::new(context).run(receiver));
            Ok(Self {
                shared,
                asked: Some(asked),
            })
        })
    }

    /// One of which no task runs: for what is asked of it where nothing is served. It judges and trains nothing by itself.
    pub fn offline(parts: Parts) -> Self {
        let shared = Shared::new(parts, CancellationToken::new());
        shared.status.phase(Phase::Off);
        Self {
            shared: Arc::new(shared),
            asked: None,
        }
    }

    /// Makes a step now of everything there is to train on, however little, whether or not the user is away;
    /// for one agent, or for each. Waits for it. An empty list: there was nothing.
    ///
    /// # Errors
    /// [`TrainError`].
    pub fn train_now(
        &self,
        agent: Option<AgentId>,
    ) -> BoxFuture<'_, Result<Vec<StepReport>, TrainError>> {
        Box::pin(async move {
            let config = &self.shared.config;
            let learns = match &agent {
                Some(agent) => config.mode_of(agent) != Mode::SkillsOnly,
                None => config.learns(),
            };
            if !learns {
                return Err(TrainError::SkillsOnly);
            }
            if let Some(agent) = agent.as_ref().filter(|agent| (self.shared.is_off)(agent)) {
                let agent = agent.clone();
                return Err(TrainError::Off { agent });
            }
            self.ask(|answer| TrainingRequest::Step(agent, answer))
                .await
        })
    }

    /// What [`Learner::train_now`] would do, of what is judged by now: nothing is judged, taken or trained. An empty
    /// list: there is nothing to train on.
    ///
    /// # Errors
    /// [`TrainError`].
    pub fn dry_run(
        &self,
        agent: Option<AgentId>,
    ) -> BoxFuture<'_, Result<Vec<StepPreview>, TrainError>> {
        Box::pin(async move {
            self.ask(|answer| TrainingRequest::DryRun(agent, answer))
                .await
        })
    }

    /// What it would use of one turn; none where there is no such turn.
    ///
    /// # Errors
    /// [`TrainError`].
    pub fn turn_preview(
        &self,
        id: TurnId,
    ) -> BoxFuture<'_, Result<Option<TurnPreview>, TrainError>> {
        Box::pin(async move {
            let shared = &self.shared;
            let Some(Turn { agent, .. }) = shared.log.get(id).await? else {
                return Ok(None);
            };
            if self.asked.is_none() {
                let shown = step::turn_without_teacher(shared, &agent, id).await?;
                return Ok(Some(shown));
            }
            let asked = self.ask(|answer| TrainingRequest::Turn(agent, id, answer));
            Ok(asked.await?.pop())
        })
    }

    /// Measures the base model and adapters side by side. Nothing is written down, and nothing serves by it.
    ///
    /// # Errors
    /// [`EvalError`].
    pub fn evaluate<'a>(
        &'a self,
        wanted: &'a EvalWanted,
    ) -> BoxFuture<'a, Result<EvalReport, EvalError>> {
        Box::pin(async move {
            let backend = self.shared.backend.as_ref().ok_or(EvalError::NoBackend)?;
            eval::evaluate(&self.shared, backend, wanted).await
        })
    }

    /// Trains an agent's weights again from the log, with other settings, into a lineage of their own. Nothing of it serves,
    /// and the log stays as it is: what is trained on is copied to `scratch`, which is empty. `told` hears how it goes.
    ///
    /// # Errors
    /// [`TrainError`]; what was made until then is there.
    ///
    /// # Cancel safety
    /// A dropped replay ends where it stands.
    pub fn replay<'a>(
        &'a self,
        wanted: ReplayWanted,
        scratch: TurnLog,
        recorder: Recorder,
        told: Box<dyn FnMut(ReplayEvent) + Send + 'a>,
    ) -> BoxFuture<'a, Result<ReplayReport, TrainError>> {
        Box::pin(replay::replay(
            &self.shared,
            wanted,
            scratch,
            recorder,
            told,
        ))
    }

    /// Trains an agent's weights from a data set, and has the gate test what that came to. Whether it serves is for others
    /// to do. No step of the agent's turns is made meanwhile. `told` hears how it goes.
    ///
    /// # Errors
    /// [`SftError`]; the epochs that were made until then are there.
    ///
    /// # Cancel safety
    /// A dropped training ends where it stands, and the same asked for again goes on after its last epoch.
    pub fn fine_tune<'a>(
        &'a self,
        wanted: &'a SftWanted,
        told: Box<dyn FnMut(SftEvent) + Send + 'a>,
    ) -> BoxFuture<'a, Result<SftReport, SftError>> {
        Box::pin(async move {
            let backend = self.shared.backend.clone().ok_or(TrainError::NoBackend)?;
            sft::fine_tune(&self.shared, backend, wanted, told).await
        })
    }

    /// Tests an adapter as a step's is before it serves; none where it has no checkpoint of ours, so that nothing tells
    /// whose it is. Whether it serves is for others to say.
    ///
    /// # Errors
    /// [`TrainError`].
    pub fn test<'a>(
        &'a self,
        adapter: &'a AdapterName,
    ) -> BoxFuture<'a, Result<Option<GateReport>, TrainError>> {
        Box::pin(async move {
            let backend = self.shared.backend.clone().ok_or(TrainError::NoBackend)?;
            let mut context = TrainingContext::new(Arc::clone(&self.shared), backend);
            let tested = context.test_adapter(adapter).await;
            context.close().await;
            tested
        })
    }

    /// Returns which rollouts on held-out tasks the gate wants to be made now, and notes that a runner of this agent is there.
    pub fn wanted_rollouts(&self, agent: &AgentId) -> WantedRollouts {
        self.shared.rollout_requests.poll(agent)
    }

    pub fn config(&self) -> &LearnerConfig {
        &self.shared.config
    }

    async fn ask<T>(
        &self,
        ask: impl FnOnce(TrainingReply<T>) -> TrainingRequest,
    ) -> Result<Vec<T>, TrainError> {
        let asked = self.asked.as_ref().ok_or(TrainError::NoBackend)?;
        let (answer, answered) = oneshot::channel();
        let _waiting = Arc::clone(&self.shared.waiting);
        asked.try_send(ask(answer)).map_err(|error| match error {
            TrySendError::Full(_) => TrainError::Busy,
            TrySendError::Closed(_) => TrainError::Interrupted,
        })?;
        answered.await.unwrap_or(Err(TrainError::Interrupted))
    }

    /// Takes the owner's own verdict on replies of an agent: it overrules every other, and what is said with it is
    /// heard as if it stood in the chat.
    ///
    /// # Errors
    /// [`FeedbackError`].
    pub fn rate<'a>(
        &'a self,
        agent: &'a AgentId,
        feedback: &'a Feedback,
    ) -> BoxFuture<'a, Result<Rated, FeedbackError>> {
        Box::pin(async move { feedback::rate(&self.shared, agent, feedback).await })
    }

    /// Reads what the owner typed and was not read for facts yet, of the messages that fit. Without a store, there is
    /// nothing.
    ///
    /// # Errors
    /// [`IngestError`]. What was read until then is remembered.
    pub fn ingest(
        &self,
        fits: Box<dyn Fn(&BufferedTurn) -> bool + Send>,
    ) -> BoxFuture<'_, Result<Vec<IngestedSession>, IngestError>> {
        Box::pin(async move {
            match &self.shared.memory {
                Some(memory) => memory_extraction::ingest(&self.shared, memory, fits).await,
                None => Ok(Vec::new()),
            }
        })
    }

    /// Whether weights are tested before they serve.
    pub fn tests_adapters(&self) -> bool {
        self.shared.config.gate.enabled
    }

    /// What it counts, from memory.
    pub fn counts(&self) -> LearnerCounts {
        self.shared.status.totals()
    }

    /// Each agent's last step of this process, from memory.
    pub fn last_steps(&self) -> Vec<StepReport> {
        self.shared.status.last_steps()
    }

    /// Whether costly learning, such as writing skills, may begin for an agent now: in mode `rl` at any time,
    /// else while its owner is away.
    ///
    /// # Errors
    /// The log's.
    pub fn may_cost<'a>(&'a self, agent: &'a AgentId) -> BoxFuture<'a, Result<bool, LogError>> {
        Box::pin(async move { self.shared.may_cost(agent).await })
    }

    /// Returns what the tasks have written down, as a text that changes when that changes.
    pub fn notes(&self) -> String {
        format!("{:?}", self.shared.status.read())
    }

    #[cfg(test)]
    pub(crate) fn hearing(&self) -> crate::HearingStatus {
        self.shared.status.read().hearing
    }

    /// How learning goes.
    ///
    /// # Errors
    /// The log's.
    pub fn status(&self) -> BoxFuture<'_, Result<LearnerStatus, LogError>> {
        Box::pin(async move {
            let notes = self.shared.status.read();
            let config = &self.shared.config;
            let serving = self.shared.log.serving().await?;
            let mut steps: BTreeMap<AgentId, Vec<Step>> = BTreeMap::new();
            for step in self.shared.log.all_steps().await? {
                steps
                    .entry(step.begun.agent.clone())
                    .or_default()
                    .push(step);
            }
            let mut listed = self.shared.log.funnels().await?;
            let n_all = listed.len();
            let rest = listed.split_off(n_all.min(MAX_AGENTS)).into_iter();
            listed.extend(rest.filter(|(agent, _)| steps.contains_key(agent)));
            listed.sort_by(|(a, _), (b, _)| a.cmp(b));
            let n_more = n_all - listed.len();
            let mut agents = Vec::new();
            for (agent, funnel) in listed {
                let known = notes.agents.get(&agent).cloned().unwrap_or_default();
                let adapter = serving
                    .iter()
                    .find(|(name, _)| *name == agent)
                    .map(|(_, adapter)| adapter.clone());
                let steps = steps.remove(&agent).unwrap_or_default();
                let series = Series::from_steps(&steps);
                let wishes = self.shared.wish_ids(&agent);
                let rest = series.rest(now_ms(), funnel.judged, &wishes);
                let declined = series.last_declined().map(|last| Declined {
                    adapter: last.adapter.clone(),
                    why: last.why.clone(),
                    at_ms: last.at_ms,
                    in_a_row: series.n_declined,
                    rests_until_ms: rest.map(|rest| rest.until_ms),
                    rest_verdicts: rest.map_or(0, |rest| rest.n_verdicts),
                });
                agents.push(AgentStatus {
                    adapter,
                    declined,
                    taken_back: gate::taken_back(&steps),
                    n_redo: known.counts.redo,
                    n_unanswered: known.counts.unanswered,
                    not_taught: known.not_taught,
                    n_binary_rl: known.counts.binary_rl,
                    support: known.counts.support,
                    last_step: known.last_step,
                    began_anew: known.began_anew,
                    last_window_ms: known.last_window_ms,
                    funnel,
                    agent,
                });
            }
            Ok(LearnerStatus {
                mode: config.mode,
                method: config.rl.method.to_string(),
                batch_size: config.rl.batch_size,
                judging: notes.judging,
                hearing: notes.hearing,
                phase: notes.phase,
                window: self.shared.window().await?,
                agents,
                n_more,
            })
        })
    }
}

#[cfg(test)]
mod tests;
