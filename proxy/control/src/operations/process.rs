//! Operations on the process as a whole: how it is, its end, who may come in, when it may learn, what happened.

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, anyhow};
use async_trait::async_trait;
use metaclaw_chat::{AgentId, now_ms, whole_ms};
use metaclaw_gateway::{KeyConfig, RelayOnly};
use metaclaw_schedule::SavedState;
use metaclaw_trainer_api::wire::Health;
use metaclaw_turns::TurnLog;
use serde::{Deserialize, Serialize};
use tokio::{sync::Mutex, task::spawn_blocking, time::timeout};
use tracing::{info, warn};

use crate::{
    browser_logins::CODE_LIFETIME,
    figures::{Period, PrefixReport, chat_tokens, verdicts},
    home::Home,
    instance::{Instance, Rooms, TrainingRoom},
    operation::{Operation, OperationFailure},
    privacy::{self, SwitchChange},
    report::{PeriodReport, report},
    schedule_state,
    status::{LogStatus, ProcessStatus},
    waiting,
};

const STATUS_TIMEOUT: Duration = Duration::from_secs(5);
/// A change of the switch begins with what the one before it left, also in the file.
static SWITCH_CHANGES: Mutex<()> = Mutex::const_new(());

/// How the running process is.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct GetStatus;

/// The end of the running process; replies under way may finish.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct StopProcess;

/// That the process has begun to end.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Stopping {
    pub stopping: bool,
}

/// When costly learning may run.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct GetSchedule;

/// What happened in some days.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct GetReport(pub Period);

/// A code that signs one browser in to the page.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct CreateLogin {
    /// Whether all browsers that are signed in are signed out first.
    pub ends_others: bool,
}

/// A code that signs one browser in.
#[derive(derive_more::Debug, Clone, Serialize, Deserialize)]
#[debug("LoginCode")]
pub struct LoginCode {
    pub code: String,
    /// How many seconds it is good for.
    pub seconds: u64,
}

/// A key of the proxy that comes or goes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct KeyChange {
    pub name: String,
    /// What it is from now on; none takes it away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<NewKey>,
}

/// A key that the running process is told.
#[derive(derive_more::Debug, Clone, Serialize, Deserialize)]
#[debug("NewKey({agents:?})")]
pub struct NewKey {
    /// What the caller shows.
    pub key: String,
    /// The agents that it may speak for.
    pub agents: Vec<AgentId>,
}

#[async_trait]
impl Operation for GetStatus {
    const PATH: &'static str = "status";
    type Reply = ProcessStatus;

    async fn perform(self, instance: &Instance) -> Result<ProcessStatus, OperationFailure> {
        Ok(instance.process()?.status().await)
    }
}

#[async_trait]
impl Operation for StopProcess {
    const PATH: &'static str = "stop";
    const DEADLINE: Duration = Duration::from_secs(5);
    type Reply = Stopping;

    async fn perform(self, instance: &Instance) -> Result<Stopping, OperationFailure> {
        instance.process()?.run.ending.cancel();
        Ok(Stopping { stopping: true })
    }
}

#[async_trait]
impl Operation for SwitchChange {
    const PATH: &'static str = "switch";
    type Reply = RelayOnly;

    /// Switches to relaying only, or back: at once where a process runs, and in the home for the next start.
    async fn perform(self, instance: &Instance) -> Result<RelayOnly, OperationFailure> {
        let _one_at_a_time = SWITCH_CHANGES.lock().await;
        let home = instance.home();
        let Some(rooms) = instance.running() else {
            let now = self.applied(switched_in(home, &self)?)?;
            home.create()?;
            privacy::save_off(home, &now)
                .with_context(|| format!("cannot write {}", home.off().display()))?;
            return Ok(now);
        };
        let switch = &rooms.gateway.privacy.switch;
        let now = self.applied(switch.off())?;
        switch.set(now.clone());
        let off = privacy::off_text(&now);
        info!("{}", off.as_deref().unwrap_or("on again for every agent"));
        let (home, kept) = (home.clone(), now.clone());
        spawn_blocking(move || {
            privacy::save_off(&home, &kept).with_context(|| {
                format!(
                    "it holds until metaclaw ends, and is not kept: cannot write {}",
                    home.off().display()
                )
            })
        })
        .await??;
        Ok(now)
    }
}

fn switched_in(home: &Home, change: &SwitchChange) -> anyhow::Result<RelayOnly> {
    match (&change.agent, privacy::load_off(home)) {
        (None, Err(_)) => Ok(RelayOnly::default()),
        (_, before) => before,
    }
}

#[async_trait]
impl Operation for GetSchedule {
    const PATH: &'static str = "scheduler";
    type Reply = SavedState;

    /// What the process knows; where none runs, what the last one left.
    async fn perform(self, instance: &Instance) -> Result<SavedState, OperationFailure> {
        let Some(Rooms { log, learning, .. }) = instance.running() else {
            let home = instance.home();
            let saved = schedule_state::saved(home);
            return Ok(saved.ok_or_else(|| {
                anyhow!(
                    "nothing is known yet: metaclaw does not run, and {} is not there",
                    home.scheduler_state().display()
                )
            })?);
        };
        // A turn may have ended since the last look.
        let last_main_ms = log.last_main_ms().await?;
        learning.schedule.window(now_ms(), last_main_ms);
        Ok(learning.schedule.save(now_ms()))
    }
}

#[async_trait]
impl Operation for GetReport {
    const PATH: &'static str = "report";
    type Reply = PeriodReport;

    async fn perform(self, instance: &Instance) -> Result<PeriodReport, OperationFailure> {
        let (log, library) = (instance.log().await?, instance.library()?);
        let judging = instance.judging()?;
        let judging = if self.0.has(now_ms()) {
            judging
        } else {
            judging.settled()
        };
        Ok(report(log, &library, self.0, instance.prices()?, judging).await?)
    }
}

#[async_trait]
impl Operation for CreateLogin {
    const PATH: &'static str = "login";
    type Reply = LoginCode;

    async fn perform(self, instance: &Instance) -> Result<LoginCode, OperationFailure> {
        let logins = &instance.process()?.run.logins;
        if self.ends_others {
            logins.end_all().context("nobody was signed out")?;
        }
        Ok(LoginCode {
            code: logins.new_code(now_ms()),
            seconds: CODE_LIFETIME.as_secs(),
        })
    }
}

#[async_trait]
impl Operation for KeyChange {
    const PATH: &'static str = "key";
    type Reply = ();

    async fn perform(self, instance: &Instance) -> Result<(), OperationFailure> {
        let authenticator = &instance.process()?.gateway.authenticator;
        let key = self.key.map(|new| KeyConfig {
            key: new.key.into(),
            agents: new.agents,
        });
        Ok(authenticator.set_key(&self.name, key)?)
    }
}

// === impl Rooms ===

impl Rooms {
    /// How it all is; a part that does not answer in time is left out.
    async fn status(&self) -> ProcessStatus {
        let Self {
            run,
            log,
            lessons,
            gateway,
            learning,
            training,
        } = self;
        let counts_today = async {
            let counts = learning.budget.update(now_ms()).await;
            counts.inspect_err(|error| warn!(%error, "what the chat used today is not known"))
        };
        let reviews = async {
            let waiting = waiting::find(&lessons.library).await;
            waiting.inspect_err(|error| warn!("what waits for review is not known: {error:#}"))
        };
        let settings = Arc::clone(&run.settings);
        // All at once: a command does not wait for one part after the other.
        let (funnel, learner, today, latest, serving, lost, health, waiting, config_changed) = tokio::join!(
            in_time(log.funnel(None)),
            in_time(learning.learner.status()),
            in_time(counts_today),
            in_time(log.latest_breaks()),
            in_time(self.served()),
            in_time(self.lost()),
            training.health(),
            in_time(reviews),
            in_time(spawn_blocking(move || settings.changed())),
        );
        let (about, judging) = (run.settings.about(), self.judging());
        let (inference, number_format) = health.map(|one| (one.inference, one.dtype)).unzip();
        let serving = serving.unwrap_or_default().into_iter();
        ProcessStatus {
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            proxy: gateway.address,
            since_ms: run.since_ms,
            about,
            off: gateway.privacy.switch.off(),
            trainer: self.trainer_status(),
            inference: inference.flatten(),
            number_format: number_format.flatten(),
            serving: serving
                .map(|(agent, adapter)| (agent.to_string(), adapter))
                .collect(),
            lost: lost.unwrap_or_default(),
            context: training.context.tokens(),
            funnel: funnel.unwrap_or_default(),
            counts: gateway.metrics.counts(),
            upstreams: gateway.metrics.upstreams(),
            passed: gateway.metrics.passed(),
            config_changed: config_changed.flatten(),
            dropped_lines: (run.dropped_lines)(),
            log: log_status(log),
            learner,
            spend: learning.budget.spend(now_ms()),
            chat: today.as_ref().map(chat_tokens),
            verdicts: today
                .map(|counts| verdicts(&counts, judging))
                .unwrap_or_default(),
            prefix: PrefixReport {
                counts: today.unwrap_or_default().breaks,
                latest: latest.unwrap_or_default(),
            },
            cloud: training.meter.as_ref().map(|meter| meter.spend(now_ms())),
            waiting,
            share: lessons.library.share_report().map(Arc::unwrap_or_clone),
        }
    }
}

// === impl TrainingRoom ===

impl TrainingRoom {
    /// The training server's own report; `None` if it does not answer, or is a service, which reports nothing of use.
    async fn health(&self) -> Option<Health> {
        let backend = self.backend.as_ref().filter(|_| self.meter.is_none())?;
        in_time(backend.health()).await
    }
}

fn log_status(log: &TurnLog) -> LogStatus {
    let (health, outcome) = (log.health(), log.outcome());
    LogStatus {
        oldest_unflushed_ms: health.oldest_unflushed.map(whole_ms),
        broken: health.broken,
        moved_aside: outcome.moved_aside.as_ref().map(|moved| moved.to.clone()),
        n_lost: outcome.n_lost,
        copied: outcome.copied.clone(),
        clock: log.clock().doubt(now_ms()),
    }
}

async fn in_time<T, E>(asked: impl Future<Output = Result<T, E>>) -> Option<T> {
    timeout(STATUS_TIMEOUT, asked).await.ok()?.ok()
}
