//! The parts that operations use: those of the running process, or the files of a home in which no process runs.

use std::{
    fmt,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{anyhow, bail};
use futures_util::future::BoxFuture;
use metaclaw_chat::AgentId;
use metaclaw_gateway::{Authenticator, Metrics, Privacy, Serving};
use metaclaw_learner::Learner;
use metaclaw_schedule::Schedule;
use metaclaw_skills::{Library, MemoryStore};
use metaclaw_trainer_api::TrainingBackend;
use metaclaw_turns::{LogError, OpenError, TurnLog, TurnsConfig};
use tokio::{
    sync::{OnceCell, watch},
    time::timeout,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    adapters::LostAdapters,
    agents::AgentConnector,
    browser_logins::BrowserLogins,
    cloud_spend::Meter,
    compare::Comparer,
    costs::ModelPrices,
    figures::JudgingFigures,
    forgetting::KeptLessons,
    home::{Home, HomeLock},
    policy_context::PolicyContext,
    replays::Replays,
    status::{LostAdapter, RunSummary, TrainerState, TrainerStatus},
    token_budget::TokenBudget,
};

const GRACE: Duration = Duration::from_secs(20);

/// A home with the parts that operations work on.
#[derive(Debug)]
pub struct Instance {
    home: Home,
    parts: InstanceParts,
}

#[derive(Debug)]
enum InstanceParts {
    Process(Arc<Rooms>),
    Files(Box<OpenedFiles>),
}

/// The rooms of a process that serves chats. An operation takes the handles that it uses, from the room that owns them.
#[derive(Debug)]
pub struct Rooms {
    pub run: RunRoom,
    pub log: TurnLog,
    pub lessons: KeptLessons,
    pub gateway: GatewayRoom,
    pub learning: LearningRoom,
    pub training: TrainingRoom,
}

/// The process itself.
#[derive(derive_more::Debug)]
#[debug("RunRoom")]
pub struct RunRoom {
    pub settings: Arc<dyn SettingsInUse>,
    /// The time at which the proxy began to listen, in milliseconds since 1970.
    pub since_ms: u64,
    /// Counts log lines that were dropped.
    pub dropped_lines: Arc<dyn Fn() -> usize + Send + Sync>,
    /// The browsers that may see the page.
    pub logins: Arc<BrowserLogins>,
    /// Cancelled when the process is to end.
    pub ending: CancellationToken,
}

/// The settings that a process uses: those of its start, with the upstreams and agents that came since.
pub trait SettingsInUse: fmt::Debug + Send + Sync {
    /// Returns which model serves, what learns, and which data leaves the machine.
    fn about(&self) -> RunSummary;

    /// Returns what models cost.
    fn prices(&self) -> ModelPrices;

    /// Returns the path of the settings file if it says something else.
    fn changed(&self) -> Option<PathBuf>;
}

/// What stands between agents and models.
#[derive(Debug)]
pub struct GatewayRoom {
    /// The address at which agents reach the proxy.
    pub address: SocketAddr,
    /// The adapter of each agent.
    pub serving: Arc<Serving>,
    /// Which agents are only relayed, and which turns are off the record.
    pub privacy: Arc<Privacy>,
    pub metrics: Arc<Metrics>,
    pub authenticator: Arc<Authenticator>,
    /// Finds the agents of this machine, and points them at the proxy.
    pub agents: Arc<dyn AgentConnector>,
}

/// What judges turns and makes training steps.
#[derive(Debug)]
pub struct LearningRoom {
    pub learner: Learner,
    pub replays: Replays,
    pub comparer: Comparer,
    /// What learning may spend, and has.
    pub budget: Arc<TokenBudget>,
    /// When learning that costs something may run.
    pub schedule: Schedule,
    /// The folder with the figures of training steps.
    pub step_figures: PathBuf,
}

/// The training server, as this process knows it. Every field is empty if no weights learn.
#[derive(Debug, Default)]
pub struct TrainingRoom {
    pub backend: Option<Arc<dyn TrainingBackend>>,
    /// Counts the tokens that a service is paid for.
    pub meter: Option<Arc<Meter>>,
    /// How our own trainer is.
    pub own: Option<watch::Receiver<TrainerState>>,
    /// How a training server elsewhere is.
    pub elsewhere: Option<watch::Receiver<TrainerStatus>>,
    /// Adapters that were to serve and cannot.
    pub lost: LostAdapters,
    /// How long conversations with the policy model may be.
    pub context: PolicyContext,
}

/// Opens the parts of a home where nothing runs. Each call fails where a setting is refused.
pub trait OpenParts: fmt::Debug + Send + Sync {
    /// # Errors
    /// Where a setting is refused.
    fn settings(&self) -> anyhow::Result<FileSettings>;

    /// Opens the library, and tells the person what is wrong in it.
    ///
    /// # Errors
    /// Where a setting is refused.
    fn library(&self) -> anyhow::Result<Library>;

    /// # Errors
    /// Where a setting is refused.
    fn memory(&self) -> anyhow::Result<MemoryStore>;

    /// Makes a learner over the log, and waits until its policy server answers.
    fn learner<'a>(&'a self, log: &'a TurnLog) -> BoxFuture<'a, anyhow::Result<IdleLearner>>;
}

/// What operations on files need to know of the settings.
#[derive(Debug, Clone)]
pub struct FileSettings {
    pub turns: TurnsConfig,
    /// Where the local trainer keeps adapters and checkpoints.
    pub checkpoints: PathBuf,
    /// Whether adapters are tested before they serve (`gate.enabled`).
    pub is_gated: bool,
    /// The folder with the figures of training steps.
    pub step_figures: PathBuf,
    pub prices: ModelPrices,
    /// Whether a model judges what may be a complaint.
    pub judges_complaints: bool,
}

/// A learner of which no task runs: it does what it is asked, and nothing by itself.
#[derive(Debug)]
pub struct IdleLearner {
    pub learner: Learner,
    pub replays: Replays,
    /// The policy server, where one was started for this.
    pub tasks: TaskTracker,
    /// Ends them.
    pub ending: CancellationToken,
}

/// How the log of a home where nothing runs is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogOpening {
    /// The log has to be there.
    Existing,
    /// A log begins where there is none.
    OrBegin,
    /// A copy is opened, so that nothing of the log changes, whatever is wrong with it.
    Copied,
}

#[derive(Debug)]
struct OpenedFiles {
    opener: Arc<dyn OpenParts>,
    /// The name of the command. Another command that needs the home meanwhile names it in its error.
    doing: &'static str,
    opening: LogOpening,
    log: OnceCell<LockedLog>,
    learner: OnceCell<IdleLearner>,
}

#[derive(Debug)]
struct LockedLog {
    log: TurnLog,
    _lock: HomeLock,
}

/// What trains, tests and measures.
#[derive(Debug, Clone, Copy)]
pub struct LearnerParts<'a> {
    pub learner: &'a Learner,
    pub replays: &'a Replays,
}

// === impl Instance ===

impl Instance {
    /// Those of this process, which serves.
    pub fn of_process(home: Home, rooms: Arc<Rooms>) -> Self {
        let parts = InstanceParts::Process(rooms);
        Self { home, parts }
    }

    /// Those of the files in a home where nothing runs, for the command `doing`.
    pub fn of_files(
        home: Home,
        doing: &'static str,
        opening: LogOpening,
        opener: Arc<dyn OpenParts>,
    ) -> Self {
        let parts = InstanceParts::Files(Box::new(OpenedFiles {
            opener,
            doing,
            opening,
            log: OnceCell::new(),
            learner: OnceCell::new(),
        }));
        Self { home, parts }
    }

    pub fn home(&self) -> &Home {
        &self.home
    }

    /// The rooms of the process that serves, if this is one.
    pub fn running(&self) -> Option<&Rooms> {
        match &self.parts {
            InstanceParts::Process(rooms) => Some(rooms),
            InstanceParts::Files(_) => None,
        }
    }

    /// The same for what only a process that serves can do.
    ///
    /// # Errors
    /// Where nothing runs.
    pub fn process(&self) -> anyhow::Result<&Rooms> {
        self.running().ok_or_else(|| {
            anyhow!(
                "metaclaw does not run in {}: `metaclaw start` starts it",
                self.home.dir().display()
            )
        })
    }

    /// The log of turns.
    ///
    /// # Errors
    /// Where there is none, another process has the home, or the log cannot be opened.
    pub fn log(&self) -> BoxFuture<'_, anyhow::Result<&TurnLog>> {
        Box::pin(async move {
            match &self.parts {
                InstanceParts::Process(rooms) => Ok(&rooms.log),
                InstanceParts::Files(files) => {
                    let open = files.log.get_or_try_init(|| files.open(&self.home));
                    Ok(&open.await?.log)
                }
            }
        })
    }

    /// The same; none where there is no log yet.
    ///
    /// # Errors
    /// Where another process has the home, or the log cannot be opened.
    pub fn log_if_any(&self) -> BoxFuture<'_, anyhow::Result<Option<&TurnLog>>> {
        Box::pin(async move {
            if self.running().is_none() && !self.home.turns().exists() {
                return Ok(None);
            }
            self.log().await.map(Some)
        })
    }

    /// The library of lessons.
    ///
    /// # Errors
    /// Where a setting is refused.
    pub fn library(&self) -> anyhow::Result<Library> {
        match &self.parts {
            InstanceParts::Process(rooms) => Ok(rooms.lessons.library.clone()),
            InstanceParts::Files(files) => files.opener.library(),
        }
    }

    /// The store of memories.
    ///
    /// # Errors
    /// Where a setting is refused.
    pub fn memory(&self) -> anyhow::Result<MemoryStore> {
        match &self.parts {
            InstanceParts::Process(rooms) => Ok(rooms.lessons.memory.clone()),
            InstanceParts::Files(files) => files.opener.memory(),
        }
    }

    /// The learner; where nothing runs, with a policy server that is started for it.
    ///
    /// # Errors
    /// Where there is no log or no policy model, or what is needed is not allowed or does not start.
    pub fn learner(&self) -> BoxFuture<'_, anyhow::Result<LearnerParts<'_>>> {
        Box::pin(async move {
            match &self.parts {
                InstanceParts::Process(rooms) => Ok(LearnerParts {
                    learner: &rooms.learning.learner,
                    replays: &rooms.learning.replays,
                }),
                InstanceParts::Files(files) => {
                    let log = self.log().await?;
                    let made = files.learner.get_or_try_init(|| files.opener.learner(log));
                    let IdleLearner {
                        learner, replays, ..
                    } = made.await?;
                    Ok(LearnerParts { learner, replays })
                }
            }
        })
    }

    /// Whether an adapter is tested before it serves.
    ///
    /// # Errors
    /// Where a setting is refused.
    pub fn is_gated(&self) -> anyhow::Result<bool> {
        match &self.parts {
            InstanceParts::Process(rooms) => Ok(rooms.learning.learner.tests_adapters()),
            InstanceParts::Files(files) => Ok(files.opener.settings()?.is_gated),
        }
    }

    /// Where the local trainer of a home in which nothing runs keeps adapters and checkpoints.
    ///
    /// # Errors
    /// Where a setting is refused, or a process runs: its training server knows.
    pub fn checkpoints(&self) -> anyhow::Result<PathBuf> {
        match &self.parts {
            InstanceParts::Process(_) => bail!("the training server knows its adapters"),
            InstanceParts::Files(files) => Ok(files.opener.settings()?.checkpoints),
        }
    }

    /// The folder with the figures of training steps.
    ///
    /// # Errors
    /// Where a setting is refused.
    pub fn step_figures(&self) -> anyhow::Result<PathBuf> {
        match &self.parts {
            InstanceParts::Process(rooms) => Ok(rooms.learning.step_figures.clone()),
            InstanceParts::Files(files) => Ok(files.opener.settings()?.step_figures),
        }
    }

    /// What models cost.
    ///
    /// # Errors
    /// Where a setting is refused.
    pub fn prices(&self) -> anyhow::Result<ModelPrices> {
        match &self.parts {
            InstanceParts::Process(rooms) => Ok(rooms.run.settings.prices()),
            InstanceParts::Files(files) => Ok(files.opener.settings()?.prices),
        }
    }

    /// Returns how complete the verdicts are. If no process runs, no turn counts as waiting.
    ///
    /// # Errors
    /// Where a setting is refused.
    pub fn judging(&self) -> anyhow::Result<JudgingFigures> {
        match &self.parts {
            InstanceParts::Process(rooms) => Ok(rooms.judging()),
            InstanceParts::Files(files) => Ok(JudgingFigures {
                by_model: files.opener.settings()?.judges_complaints,
                waiting: 0,
            }),
        }
    }

    /// Lets go of the files, and ends what was started for an operation. A process that serves ends elsewhere.
    pub fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let InstanceParts::Files(files) = &self.parts else {
                return;
            };
            if let Some(learner) = files.learner.get() {
                learner.end().await;
            }
            if let Some(LockedLog { log, .. }) = files.log.get() {
                log.clone().close().await;
            }
        })
    }
}

// === impl IdleLearner ===

impl IdleLearner {
    /// Ends the policy server that was started for it.
    pub fn end(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.ending.cancel();
            self.tasks.close();
            // One that does not end is killed with us: its standard input closes.
            timeout(GRACE, self.tasks.wait()).await.ok();
        })
    }
}

// === impl OpenedFiles ===

impl OpenedFiles {
    async fn open(&self, home: &Home) -> anyhow::Result<LockedLog> {
        let folder = home.turns();
        let open: fn(&Path, &TurnsConfig) -> Result<TurnLog, OpenError> = match self.opening {
            LogOpening::Existing if !folder.exists() => {
                bail!("there is no log in {} yet", home.dir().display());
            }
            LogOpening::OrBegin => {
                home.create()?;
                TurnLog::open
            }
            LogOpening::Existing => TurnLog::open,
            LogOpening::Copied => TurnLog::open_copy,
        };
        let lock = home.lock(self.doing)?;
        let config = self.opener.settings()?.turns;
        let log = tokio::task::spawn_blocking(move || open(&folder, &config)).await??;
        Ok(LockedLog { log, _lock: lock })
    }
}

// === impl Rooms ===

impl Rooms {
    pub(crate) fn judging(&self) -> JudgingFigures {
        JudgingFigures {
            by_model: self.run.settings.about().judges_complaints,
            waiting: self.learning.learner.counts().n_waiting as u64,
        }
    }

    /// The agents that are served with an adapter: those of the log, but for what was withdrawn.
    pub(crate) async fn served(&self) -> Result<Vec<(AgentId, String)>, LogError> {
        let mut served = self.log.serving().await?;
        served.retain(|(agent, adapter)| {
            let current = self.gateway.serving.current(agent);
            current.as_deref() == Some(adapter.as_str())
        });
        Ok(served)
    }

    /// The adapters that the log names and that cannot serve; another may have come in the place of one.
    pub(crate) async fn lost(&self) -> Result<Vec<LostAdapter>, LogError> {
        let named = self.log.serving().await?;
        let mut lost = self.training.lost.all();
        lost.retain(|one| named.contains(&(one.agent.clone(), one.adapter.clone())));
        Ok(lost)
    }

    /// How the training server is: one of ours that runs may still have stopped answering.
    pub fn trainer_status(&self) -> Option<TrainerStatus> {
        if let Some(elsewhere) = &self.training.elsewhere {
            return Some(elsewhere.borrow().clone());
        }
        let state = self.training.own.as_ref()?.borrow().clone();
        Some(match state.into() {
            TrainerStatus::Ready { address, pid } if self.gateway.serving.is_silent() => {
                TrainerStatus::Silent { address, pid }
            }
            other => other,
        })
    }
}
