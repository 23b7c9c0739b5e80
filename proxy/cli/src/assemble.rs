//! Assembles the app, runs it, and shuts it down.
//!
//! Order matters at both ends. The port is taken first, so that a second proxy on it is refused
//! before anything else is touched, and agents find us at once while the trainer still loads. At
//! the end: no new requests, replies finish, their turns reach the log, the learner stops,
//! the trainer goes, the log is closed.

use std::{
    future::Future, io::ErrorKind, net::Ipv4Addr, path::PathBuf, process::ExitCode, sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use metaclaw_chat::{AgentId, now_ms};
use metaclaw_control::{
    adapters::LostAdapters,
    browser_logins::BrowserLogins,
    cloud_spend::Meter,
    home::{Home, RunFile},
    instance::{Instance, RunningProcess},
    policy_context::PolicyContext,
    privacy, server,
    status::TrainerStatus,
    token_budget::{self, TokenBudget},
};
use metaclaw_gateway::Serving;
use metaclaw_learner::note_hosts;
use metaclaw_page::PageState;
use metaclaw_settings::{Policy, fingerprint};
use metaclaw_skills::MemoryStore;
use tokio::{net::TcpListener, sync::watch, task::JoinHandle};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{info, warn};

use self::{
    adapters::{AdapterLoader, KnownAdapters},
    cloud::CloudSide,
    learning::Learning,
    parts::{Background, GatewayState, Stores},
    remote::RemoteFollower,
    served::TrainerFollower,
    trainer::{TrainingSide, Unloader},
};
use crate::{
    agent::Pointed,
    banner::{Banner, First},
    daemon::ReadyMessage,
    logging::warn_dropped,
    signals::Signals,
    supervise::Supervisor,
};

mod adapters;
mod advantages;
mod base_model;
mod budgeted_model;
mod cloud;
mod compare;
mod evolver;
mod external_teacher;
mod feedback;
mod function;
mod gateway;
mod learner;
mod learning;
mod lessons;
mod listener;
mod memory;
mod meter;
mod metrics;
mod offline;
mod openrouter;
mod parts;
mod plan;
mod remote;
mod retention;
mod schedule;
mod served;
mod services;
mod share;
mod trainer;
mod turn_log;
mod upstreams;
mod whole_answer;

pub(crate) use self::{
    learner::{judge_client, step_figures},
    lessons::library,
    memory::memory,
    meter::{of_a_day, prices},
    offline::idle_learner,
    plan::StartPlan,
    trainer::checkpoint_dir,
};

/// How long everything behind the chat may take to stop.
const BACKGROUND_GRACE: Duration = Duration::from_secs(20);
/// As a shell reports a program that a second interrupt ended.
const INTERRUPTED: u8 = 130;

/// Builds the app, runs it until a signal or `metaclaw stop`, shuts it down.
///
/// `announce` gets the banner once the proxy listens, and the warnings that were logged before.
///
/// # Errors
///
/// When a part cannot be built; nothing runs then.
pub(crate) async fn run(
    plan: StartPlan,
    announce: impl FnOnce(ReadyMessage) + Send + 'static,
) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::new()?;
    let running = ServingProcess::build(&plan).await?;
    let pointed = plan.agent.point(running.process.proxy);
    let ready = ReadyMessage {
        pid: std::process::id(),
        banner: running.banner(&plan, pointed.as_ref()),
        warnings: running.warnings(&plan),
    };
    // A stopped terminal blocks the write, which must not delay signals.
    tokio::task::spawn_blocking(move || announce(ready));
    tokio::select! {
        () = signals.next() => {}
        () = running.process.ending.cancelled() => {}
    }
    info!("ending: replies under way may finish");
    // First, so that the agent's next turn goes where it did before us.
    plan.agent.release();
    tokio::select! {
        ended = running.end(&plan.home) => ended.map(|()| ExitCode::SUCCESS),
        () = signals.next() => {
            warn!("ended at once, by a second signal");
            Ok(ExitCode::from(INTERRUPTED))
        }
    }
}

/// The parts that serve, and their tasks.
struct ServingProcess {
    process: Arc<RunningProcess>,
    gateway: JoinHandle<()>,
    /// Everything but the gateway.
    background: Background,
    keyed: bool,
    /// What of the lessons cannot be used.
    warnings: Vec<String>,
}

// === impl ServingProcess ===

impl ServingProcess {
    /// Builds everything and lets it run.
    async fn build(plan: &StartPlan) -> anyhow::Result<Self> {
        let config = &plan.loaded.config;
        let listener = gateway::listen(plan).await?;
        let changed_settings = changed_settings(plan);
        let (stores, mut warnings) = open_stores(plan).await?;
        let privacy = Arc::new(privacy::load(&plan.home)?);

        let background = Background {
            tasks: TaskTracker::new(),
            ending: CancellationToken::new(),
        };
        let unloader = Unloader::new(background.tasks.clone());
        let serving = Serving::new(unloader.on_idle());
        let training = TrainingSide::new(plan, &serving)?;
        unloader.set(training.backend.as_ref());

        let comparer = compare::comparer(plan, &training)?;
        let state = GatewayState { serving, privacy };
        let learning = Learning::start(plan, &stores, &training, &state, &background).await?;
        let meter = meter::of(plan, training.cloud.as_ref());
        warnings.extend(meter::told(plan, meter.as_ref(), &stores.log).await);
        let token = plan::random_token();
        let logins = Arc::new(BrowserLogins::open(&plan.home).context("cannot use page.key")?);
        let ready = services::ready(training.state.clone(), &state.serving);
        let counted = counted(&learning, &stores);
        let memory = remembering(&stores);
        let services = services::services(counted, memory, ready, &token);
        let gateway = gateway::gateway(plan, &stores, &state, services, &background).await?;
        let followed = follow(plan, &stores, &state, &training, &background);
        housekeeping(plan, &stores, &state, &background);
        share::start(plan, &stores.library, &background)?;
        let ending = CancellationToken::new();
        let dropped_lines = plan.dropped_lines.clone();
        let process = Arc::new(RunningProcess {
            about: learning.about,
            step_figures: learner::figures(plan),
            privacy: state.privacy,
            proxy: listener.local_addr()?,
            since_ms: now_ms(),
            changed_settings,
            log: stores.log,
            library: stores.library,
            memory: stores.memory,
            comparer,
            serving: state.serving,
            backend: training.backend,
            learner: learning.learner,
            replays: learner::replays(plan),
            budget: stores.budget,
            meter: meter.clone(),
            schedule: learning.schedule,
            trainer: training.state,
            elsewhere: followed.elsewhere,
            lost: followed.lost,
            context: followed.context,
            metrics: gateway.metrics(),
            dropped_lines: Arc::new(move || dropped_lines.dropped_lines()),
            authenticator: gateway.authenticator(),
            logins,
            ending: ending.clone(),
        });
        let training = TrainingTasks {
            meter,
            cloud: training.cloud,
            supervisor: training.supervisor,
        };
        training.run(&background, &ending);
        publish(plan, &process, token, &background).await?;
        let serving = critical(&ending, gateway.serve(listener, ending.clone()));
        Ok(Self {
            process,
            gateway: background.tasks.spawn(serving),
            background,
            keyed: config.gateway.proxy.requires_key(),
            warnings,
        })
    }

    /// What is wrong and keeps nothing from running.
    fn warnings(&self, plan: &StartPlan) -> Vec<String> {
        let unknown = plan.loaded.unknown.iter().map(ToString::to_string);
        let notices = plan.loaded.notices.iter().cloned();
        let warnings = unknown.chain(notices);
        warnings.chain(self.warnings.iter().cloned()).collect()
    }

    fn banner(&self, plan: &StartPlan, agent: Option<&Pointed>) -> String {
        let config = plan.loaded.sources(&plan.config_name);
        let first = match agent {
            Some(pointed) if pointed.asks_us => First::Agent,
            _ => First::of(&plan.loaded.config, &plan.policy),
        };
        let banner = Banner {
            proxy: self.process.proxy,
            keyed: self.keyed,
            about: &self.process.about,
            off: &self.process.privacy.switch.off(),
            inert: &plan.loaded.inert,
            config: &config,
            agent: agent.map(|it| it.said.as_str()),
            first,
        };
        banner.text()
    }

    /// Takes it down, in order; turns that were answered are in the log when it returns.
    async fn end(self, home: &Home) -> anyhow::Result<()> {
        self.process.ending.cancel();
        self.gateway.await?;
        info!("no reply is under way any more");
        // A step that was begun is settled at the next start.
        let Background { tasks, ending } = self.background;
        ending.cancel();
        tasks.close();
        if tokio::time::timeout(BACKGROUND_GRACE, tasks.wait())
            .await
            .is_err()
        {
            warn!("a background task did not stop in time");
        }
        self.process.log.clone().close().await;
        home.retract()?;
        info!("ended");
        Ok(())
    }
}

/// Opens what is kept; also says what of the lessons cannot be used.
async fn open_stores(plan: &StartPlan) -> anyhow::Result<(Stores, Vec<String>)> {
    let log = turn_log::open(plan).await?;
    let agents = turn_log::known_agents(plan, &log).await?;
    let (library, mut warnings) = lessons::open(&plan.loaded, &plan.home, agents).await?;
    warnings.extend(log.clock().doubt(now_ms()));
    let budget = plan.loaded.config.budget.clone();
    let budget = TokenBudget::open(budget, plan.home.spend(), log.clone());
    let stores = Stores {
        budget: Arc::new(budget),
        log,
        library,
        memory: memory(&plan.loaded, &plan.home),
    };
    lessons::finish_forgetting(plan, &stores).await;
    Ok((stores, warnings))
}

/// The store of memories, where something is remembered.
fn remembering(stores: &Stores) -> Option<MemoryStore> {
    Some(stores.memory.clone()).filter(|it| it.config().enabled)
}

/// The training server where it is ours, and what answers chats in front of one that is not.
struct TrainingTasks {
    /// Counts what a training server takes that costs money.
    meter: Option<Arc<Meter>>,
    cloud: Option<CloudSide>,
    supervisor: Option<Supervisor>,
}

// === impl TrainingTasks ===

impl TrainingTasks {
    /// Runs them beside the chat; when our own training server ends for good, the process does.
    fn run(self, background: &Background, process: &CancellationToken) {
        let Background { tasks, ending } = background;
        if let Some(meter) = self.meter {
            tasks.spawn(meter.run(ending.clone()));
        }
        if let Some(cloud) = self.cloud {
            tasks.spawn(cloud.run(ending.clone()));
        }
        if let Some(supervisor) = self.supervisor {
            tasks.spawn(critical(process, supervisor.run(ending.clone())));
        }
    }
}

/// The rooms whose counts `/metrics` shows.
fn counted(learning: &Learning, stores: &Stores) -> metrics::MetricSources {
    metrics::MetricSources {
        learner: learning.learner.clone(),
        judge: learning.judge.clone(),
        library: stores.library.clone(),
        log: stores.log.clone(),
    }
}

/// Reads the settings' file again: its path, where it says something else than now.
fn changed_settings(plan: &StartPlan) -> Arc<dyn Fn() -> Option<PathBuf> + Send + Sync> {
    let file = plan.config_name.clone();
    let before = fingerprint(&file);
    Arc::new(move || (fingerprint(&file) != before).then(|| file.clone()))
}

/// What goes on beside the chat: what is kept is written down, what is old goes, what changed is read.
fn housekeeping(plan: &StartPlan, stores: &Stores, state: &GatewayState, background: &Background) {
    let privacy = &state.privacy;
    let Stores {
        log,
        library,
        budget,
        memory: _,
    } = stores;
    let Background { tasks, ending } = background;
    let (home, off_record) = (plan.home.clone(), Arc::clone(privacy));
    tasks.spawn(privacy::keep_off_record(off_record, home, ending.clone()));
    tasks.spawn(warn_dropped(plan.dropped_lines.clone(), ending.clone()));
    tasks.spawn(lessons::rescan(library.clone(), ending.clone()));
    tasks.spawn(token_budget::run(Arc::clone(budget), ending.clone()));
    let switched = Arc::clone(privacy);
    let is_off = Arc::new(move |agent: &AgentId| switched.switch.is_off(agent));
    let hosts = note_hosts(log.clone(), library.clone(), is_off, ending.clone());
    tasks.spawn(hosts);
    let turns = &plan.loaded.config.turns;
    tasks.spawn(retention::run(log.clone(), turns.clone(), ending.clone()));
}

/// The state of the training server and of its adapters, which the task that follows the server keeps up to date.
#[derive(Default)]
struct FollowedServer {
    lost: LostAdapters,
    context: PolicyContext,
    /// How a server elsewhere is.
    elsewhere: Option<watch::Receiver<TrainerStatus>>,
}

/// Follows the training server and has the adapters that the log names loaded there.
fn follow(
    plan: &StartPlan,
    stores: &Stores,
    state: &GatewayState,
    training: &TrainingSide,
    background: &Background,
) -> FollowedServer {
    let Background { tasks, ending } = background;
    let mut followed = FollowedServer::default();
    let Some(backend) = &training.backend else {
        return followed;
    };
    let adapters = AdapterLoader {
        serving: Arc::clone(&state.serving),
        log: stores.log.clone(),
        backend: Arc::clone(backend),
        lost: followed.lost.clone(),
        context: followed.context.clone(),
        known: KnownAdapters::default(),
    };
    if let (Some(key), Some(trainer)) = (&training.key, &training.state) {
        let served = TrainerFollower {
            adapters,
            key: key.clone(),
            trainer: trainer.clone(),
            has_inference: plan.loaded.config.rl.has_vllm(),
        };
        tasks.spawn(served.run(ending.clone()));
    } else if let Some((url, key)) = training.elsewhere.clone() {
        let (status, watched) = watch::channel(TrainerStatus::Starting);
        let remote = RemoteFollower {
            adapters,
            shown: shown(&plan.policy),
            url,
            key,
            model: trainer::base_model(plan),
            status,
            refuses: false,
        };
        tasks.spawn(remote.run(ending.clone()));
        followed.elsewhere = Some(watched);
    }
    followed
}

/// Where a training server is that is asked through a front of this process.
fn shown(policy: &Policy) -> Option<String> {
    match policy {
        Policy::Cloud(cloud) => Some(cloud.url.clone()),
        Policy::None | Policy::Local { .. } | Policy::Remote { .. } => None,
    }
}

/// A critical task: when it ends, well or badly, the process shuts down.
fn critical<W: Future<Output = ()>>(
    ending: &CancellationToken,
    work: W,
) -> impl Future<Output = ()> + use<W> {
    let ending = ending.clone().drop_guard();
    async move {
        work.await;
        drop(ending);
    }
}

/// Opens the control listener and says in the run file where it is.
async fn publish(
    plan: &StartPlan,
    process: &Arc<RunningProcess>,
    token: String,
    background: &Background,
) -> anyhow::Result<()> {
    let listener = control_listener(plan).await?;
    let run = RunFile {
        pid: std::process::id(),
        control: listener.local_addr()?,
        token: token.clone(),
        base_url: format!("http://{}/v1", process.proxy),
        started_ms: process.since_ms,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let instance = Instance::of_process(plan.home.clone(), Arc::clone(process));
    let instance = Arc::new(instance);
    let Background { tasks, ending } = background;
    let logins = Arc::clone(&process.logins);
    let page = PageState::new(Arc::clone(&instance), &token, logins, tasks.clone());
    let page = metaclaw_page::router(page);
    let serving = server::serve(listener, instance, token, page, ending.clone());
    tasks.spawn(serving);
    plan.home.publish(&run).context("cannot write run.json")
}

/// The socket of the control listener and the page. The page is no reason to keep an agent waiting: if another program
/// has the port, a free one is taken.
async fn control_listener(plan: &StartPlan) -> anyhow::Result<TcpListener> {
    let config = &plan.loaded.config;
    let port = config.ui.port_beside(config.gateway.proxy.port);
    match TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await {
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            warn!(
                port,
                "another program has the port of the page (ui.port), so a free one is taken: `metaclaw ui` opens it"
            );
            Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?)
        }
        bound => bound.with_context(|| format!("cannot listen on 127.0.0.1:{port} (ui.port)")),
    }
}

#[cfg(test)]
mod tests;
