//! The running parts, together: what the control listener asks and what the end takes down.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, OnceLock, Weak},
    time::Duration,
};

use anyhow::Context as _;
use jiff::tz::TimeZone;
use metaclaw_chat::{AgentId, now_ms};
use metaclaw_gateway::{Authenticator, Metrics, Privacy, RelayOnly, Serving};
use metaclaw_learner::{Learner, StepReport, TrainError};
use metaclaw_llm::ChatClient;
use metaclaw_schedule::Schedule;
use metaclaw_settings::fingerprint;
use metaclaw_skills::{Library, Skill};
use metaclaw_trainer_api::{TrainingBackend, wire::Inference};
use metaclaw_turns::{Funnel, LessonCounts, LogError, TurnLog};
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{info, warn};
use tracing_appender::non_blocking::ErrorCounter;

use crate::{
    assemble::LostAdapters,
    assemble::Meter,
    assemble::Purse,
    banner::About,
    compare::Comparer,
    control::{LogStatus, LostAdapter, SkillView, Status, TrainerStatus},
    home::Home,
    policy_context::PolicyContext,
    privacy::{self, SwitchChange},
    replays::Replays,
    report::Sources,
    rollouts::{Base, Import, Imported},
    supervise::TrainerState,
    waiting::{self, Waiting},
};

mod weights;

/// How long `status` waits for an answer of a part that may be busy.
const STATUS_TIMEOUT: Duration = Duration::from_secs(5);

/// The app, set once it is built: the gateway is a part of it and is built first.
pub(crate) type LateApp = Arc<OnceLock<Weak<App>>>;

/// Handles of everything that runs.
pub(crate) struct App {
    /// What serves, what learns, what leaves the machine.
    pub about: About,
    pub home: Home,
    /// Who is only relayed, and what is off the record.
    pub privacy: Arc<Privacy>,
    /// Where agents talk to us.
    pub proxy: SocketAddr,
    /// When we began to listen, in milliseconds since 1970.
    pub since_ms: u64,
    /// The file that the settings came from, and what it came to then.
    pub settings: (PathBuf, u64),
    /// The log of turns.
    pub log: TurnLog,
    pub library: Library,
    pub weights: bool,
    /// Asks with and without what was learned.
    pub comparer: Comparer,
    /// Which adapter to ask for.
    pub serving: Arc<Serving>,
    /// Who trains; none where no weights learn.
    pub backend: Option<Arc<dyn TrainingBackend>>,
    /// The loop behind the chat.
    pub learner: Learner,
    /// Replays of what it learned from.
    pub replays: Replays,
    /// What learning may spend, and has.
    pub purse: Arc<Purse>,
    /// What is used of a training server by Tinker's API.
    pub meter: Option<Arc<Meter>>,
    /// The judge's model, where one is asked.
    pub judge: Option<ChatClient>,
    /// When learning that costs something may run.
    pub schedule: Schedule,
    /// How the local trainer is, where there is one.
    pub trainer: Option<watch::Receiver<TrainerState>>,
    /// How the training server elsewhere is, where that is who trains.
    pub elsewhere: Option<watch::Receiver<TrainerStatus>>,
    /// Adapters that were to serve and cannot.
    pub lost: LostAdapters,
    /// How long conversations with the policy model may be.
    pub context: PolicyContext,
    /// What the gateway counts.
    pub metrics: Arc<Metrics>,
    /// Counts log lines that were dropped.
    pub dropped_lines: ErrorCounter,
    /// Who may come in.
    pub authenticator: Arc<Authenticator>,
    /// Tasks that shutdown waits for.
    pub tasks: TaskTracker,
    /// Cancelled when we are to end.
    pub ending: CancellationToken,
}

// === impl App ===

impl App {
    /// Tells everything to end.
    pub(crate) fn stop(&self) {
        self.ending.cancel();
    }

    /// Switches to relaying only, or back: at once, and in the home for the next start.
    ///
    /// # Errors
    /// One agent cannot be switched on while everyone is off; or it holds now, and is not kept.
    pub(crate) fn switch(&self, change: &SwitchChange) -> anyhow::Result<RelayOnly> {
        let now = change.applied(self.privacy.switch.off())?;
        self.privacy.switch.set(now.clone());
        let told = privacy::told(&now);
        let told = told.unwrap_or_else(|| "on again: nobody is only relayed any more".to_owned());
        info!("{told}");
        let path = self.home.off();
        privacy::save_off(&self.home, &now).with_context(|| {
            format!(
                "it holds until metaclaw ends, and is not kept: cannot write {}",
                path.display()
            )
        })?;
        Ok(now)
    }

    /// How it all is.
    pub(crate) async fn status(&self) -> Status {
        let funnel = tokio::time::timeout(STATUS_TIMEOUT, self.log.funnel(None)).await;
        let learner = tokio::time::timeout(STATUS_TIMEOUT, self.learner.status()).await;
        let looked = tokio::time::timeout(STATUS_TIMEOUT, self.purse.look(now_ms())).await;
        if let Ok(Err(error)) = looked {
            warn!(%error, "what the chat used today is not known");
        }
        let (health, outcome) = (self.log.health(), self.log.outcome());
        let serving = tokio::time::timeout(STATUS_TIMEOUT, self.served()).await;
        let serving = serving.ok().and_then(Result::ok).unwrap_or_default();
        let lost = tokio::time::timeout(STATUS_TIMEOUT, self.lost()).await;
        Status {
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            proxy: self.proxy,
            since_ms: self.since_ms,
            about: self.about.clone(),
            off: self.privacy.switch.off(),
            trainer: self.trainer_status(),
            inference: self.inference().await,
            serving: serving
                .into_iter()
                .map(|(agent, adapter)| (agent.to_string(), adapter))
                .collect(),
            lost: lost.ok().and_then(Result::ok).unwrap_or_default(),
            context: self.context.tokens(),
            funnel: funnel
                .ok()
                .and_then(Result::ok)
                .unwrap_or_else(Funnel::default),
            counts: self.metrics.counts(),
            upstreams: self.metrics.upstreams(),
            config_changed: self.config_changed().await,
            dropped_lines: self.dropped_lines.dropped_lines(),
            log: LogStatus {
                oldest_unflushed_ms: health.oldest_unflushed.map(whole_ms),
                broken: health.broken,
                moved_aside: outcome.moved_aside.as_ref().map(|moved| moved.to.clone()),
                n_lost: outcome.n_lost,
                copied: outcome.copied.clone(),
            },
            learner: learner.ok().and_then(Result::ok),
            spend: self.purse.spend(now_ms()),
            cloud: self.meter.as_ref().map(|it| it.spend(now_ms())),
            waiting: self.waiting().await,
        }
    }

    /// Who answers chats for the training server; none where its own engine does, or it does not say.
    async fn inference(&self) -> Option<Inference> {
        // A service is not asked for what is never there.
        let backend = self.backend.as_ref().filter(|_| self.meter.is_none())?;
        let health = tokio::time::timeout(STATUS_TIMEOUT, backend.health()).await;
        health.ok()?.ok()?.inference
    }

    /// What waits for the owner's look; none where the files do not say.
    async fn waiting(&self) -> Option<Waiting> {
        let looked = tokio::time::timeout(STATUS_TIMEOUT, waiting::look(&self.library)).await;
        let looked = looked.ok()?;
        let failed = |error: &anyhow::Error| warn!("what waits for review is not known: {error:#}");
        looked.inspect_err(failed).ok()
    }

    /// The settings' file, where it is another than at the start.
    async fn config_changed(&self) -> Option<PathBuf> {
        let (file, before) = self.settings.clone();
        let looked = tokio::task::spawn_blocking(move || {
            let is_changed = fingerprint(&file) != before;
            is_changed.then_some(file)
        });
        let looked = tokio::time::timeout(STATUS_TIMEOUT, looked).await;
        looked.ok().and_then(Result::ok).flatten()
    }

    /// How the training server is: one of ours that runs may still have stopped answering.
    fn trainer_status(&self) -> Option<TrainerStatus> {
        if let Some(elsewhere) = &self.elsewhere {
            return Some(elsewhere.borrow().clone());
        }
        let state = self.trainer.as_ref()?.borrow().clone();
        Some(match state.into() {
            TrainerStatus::Ready { address, pid } if self.serving.is_silent() => {
                TrainerStatus::Silent { address, pid }
            }
            other => other,
        })
    }

    /// The skills of one agent; without one, those of everybody.
    pub(crate) async fn skills(&self, agent: Option<&AgentId>) -> Result<Vec<SkillView>, LogError> {
        let counts = self.log.lesson_counts(agent).await?;
        Ok(skills(&self.library, agent, &counts))
    }

    /// What digests are made of.
    pub(crate) fn sources(&self) -> Sources {
        Sources {
            log: self.log.clone(),
            library: self.library.clone(),
            weights: self.weights,
            purse: Arc::clone(&self.purse),
            zone: TimeZone::system(),
        }
    }

    /// The agents that are served with an adapter: those of the log, but for what was withdrawn.
    async fn served(&self) -> Result<Vec<(AgentId, String)>, LogError> {
        let mut served = self.log.serving().await?;
        served.retain(|(agent, adapter)| {
            let current = self.serving.current(agent);
            current.as_deref() == Some(adapter.as_str())
        });
        Ok(served)
    }

    /// The adapters that the log names and that cannot serve; another may have come in the place of one.
    async fn lost(&self) -> Result<Vec<LostAdapter>, LogError> {
        let named = self.log.serving().await?;
        let mut lost = self.lost.all();
        lost.retain(|it| {
            let is_it =
                |(agent, name): &(AgentId, String)| *agent == it.agent && *name == it.adapter;
            named.iter().any(is_it)
        });
        Ok(lost)
    }

    /// Takes rollouts into the log. Ids must be of the model that the trainer has.
    pub(crate) async fn import(&self, import: Import) -> anyhow::Result<Imported> {
        let n_with_ids = import.n_with_ids();
        let base = match &self.backend {
            Some(backend) if n_with_ids > 0 => {
                let health = backend.health().await?;
                Some(Base {
                    name: health.model,
                    fingerprint: health.base_fingerprint,
                })
            }
            Some(_) | None => None,
        };
        let turns = import.turns(base.as_ref(), now_ms())?;
        let outcome = self.log.import(turns).await?;
        Ok(Imported::of(outcome, n_with_ids))
    }

    /// Trains one batch now, of one agent or of each; what each step was.
    pub(crate) async fn train_step(
        &self,
        agent: Option<AgentId>,
    ) -> Result<Vec<StepReport>, TrainError> {
        self.learner.train_now(agent).await
    }
}

fn whole_ms(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// The skills that an agent sees; without one, those of everybody.
pub(crate) fn skills(
    library: &Library,
    agent: Option<&AgentId>,
    counts: &BTreeMap<String, LessonCounts>,
) -> Vec<SkillView> {
    let nobody = AgentId::default_agent();
    let skills = library.skills(agent.unwrap_or(&nobody));
    let view = |skill: &Arc<Skill>| SkillView {
        name: skill.name.to_string(),
        description: skill.description.clone(),
        version: skill.version.clone(),
        content: skill.content.clone(),
        counts: counts.get(skill.name.as_str()).copied().unwrap_or_default(),
    };
    skills.iter().map(view).collect()
}

impl From<TrainerState> for TrainerStatus {
    fn from(state: TrainerState) -> Self {
        match state {
            TrainerState::Starting => Self::Starting,
            TrainerState::Ready { address, pid } => Self::Ready { address, pid },
            TrainerState::Down { reason } => Self::Down { reason },
            TrainerState::Ended => Self::Ended,
        }
    }
}
