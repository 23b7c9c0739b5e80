//! Assembles the app, runs it, and shuts it down.
//!
//! Order matters at both ends. The port is taken first, so that a second proxy on it is refused
//! before anything else is touched, and agents find us at once while the trainer still loads. At
//! the end: no new requests, replies finish, their turns reach the log, the learner stops,
//! the trainer goes, the log is closed.

use std::{future::Future, net::Ipv4Addr, process::ExitCode, sync::Arc, time::Duration};

use anyhow::Context as _;
use metaclaw_chat::{AgentId, now_ms};
use metaclaw_gateway::Serving;
use metaclaw_learner::note_hosts;
use metaclaw_turns::TurnsConfig;
use tokio::{net::TcpListener, sync::watch, task::JoinHandle};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{info, warn};

use self::{
    adapters::Adapters,
    cloud::CloudSide,
    learning::Learning,
    remote::Remote,
    served::Served,
    trainer::{TrainingSide, Unloader},
};
use crate::{
    agent::Pointed,
    app::{App, LateApp},
    banner::{Banner, First},
    config::{Policy, fingerprint},
    control::{self, TrainerStatus},
    daemon::Ready,
    home::{Home, RunFile},
    logging::warn_dropped,
    policy_context::PolicyContext,
    privacy, report,
    signals::Signals,
    supervise::Supervisor,
};

mod adapters;
mod base_model;
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
mod meter;
mod metrics;
mod offline;
mod plan;
mod purse;
mod remote;
mod retention;
mod schedule;
mod served;
mod services;
mod trainer;
mod turn_log;
mod upstreams;

pub(crate) use self::{
    adapters::LostAdapters,
    lessons::library,
    meter::{CloudSpend, Meter, kept, of_a_day},
    offline::Offline,
    plan::Plan,
    purse::{Purse, Spend},
    schedule::saved,
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
    plan: Plan,
    announce: impl FnOnce(Ready) + Send + 'static,
) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::new()?;
    let running = Running::build(&plan).await?;
    let pointed = plan.agent.point(running.app.proxy);
    let ready = Ready {
        pid: std::process::id(),
        banner: running.banner(&plan, pointed.as_ref()),
        warnings: running.warnings(&plan),
    };
    // A stopped terminal blocks the write, which must not delay signals.
    tokio::task::spawn_blocking(move || announce(ready));
    tokio::select! {
        () = signals.next() => {}
        () = running.app.ending.cancelled() => {}
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

/// The app and its tasks.
struct Running {
    app: Arc<App>,
    gateway: JoinHandle<()>,
    /// Ends everything but the gateway, once no reply is under way.
    background: CancellationToken,
    keyed: bool,
    /// What of the lessons cannot be used.
    warnings: Vec<String>,
}

// === impl Running ===

impl Running {
    /// Builds everything and lets it run.
    async fn build(plan: &Plan) -> anyhow::Result<Self> {
        let config = &plan.loaded.config;
        let listener = gateway::listen(plan).await?;
        let proxy = listener.local_addr()?;
        let settings_file = (plan.config_name.clone(), fingerprint(&plan.config_name));
        let log = turn_log::open(plan).await?;
        let agents = turn_log::known_agents(plan, &log).await?;
        let (library, mut warnings) = lessons::open(&plan.loaded, &plan.home, agents).await?;
        let privacy = Arc::new(privacy::load(&plan.home)?);

        let tasks = TaskTracker::new();
        let background = CancellationToken::new();
        let unloader = Unloader::new(tasks.clone());
        let serving = Serving::new(unloader.on_idle());
        let training = TrainingSide::new(plan, &serving)?;
        unloader.set(training.backend.as_ref());

        let comparer = compare::comparer(plan, &training)?;
        let budget = plan.loaded.section("budget")?;
        let purse = Arc::new(Purse::open(budget, plan.home.spend(), log.clone()));
        let learning = Learning::start(
            plan,
            (&log, &library, &purse),
            (&training, &serving, &privacy),
            (&tasks, &background),
        )
        .await?;
        let meter = meter::of(plan, training.cloud.as_ref());
        warnings.extend(meter::told(plan, meter.as_ref(), &log).await);
        let late_app = LateApp::default();
        let token = plan::random_token();
        let ready = services::ready(training.state.clone(), &serving);
        let services = services::services(&late_app, ready, &token);
        let gateway =
            gateway::gateway(plan, &log, &library, (&serving, &privacy), services).await?;
        let (lost, context) = (LostAdapters::default(), PolicyContext::default());
        let backend = training.backend.as_ref();
        let adapters = backend.map(|it| Adapters::new(&serving, &log, it, (&lost, &context)));
        let elsewhere = adapters.and_then(|it| follow(plan, it, &training, (&tasks, &background)));
        let app = Arc::new(App {
            about: learning.about,
            home: plan.home.clone(),
            privacy: Arc::clone(&privacy),
            proxy,
            since_ms: now_ms(),
            settings: settings_file,
            log,
            library,
            comparer,
            weights: learning.trains,
            serving,
            backend: training.backend,
            learner: learning.learner,
            replays: learner::replays(plan),
            purse,
            meter: meter.clone(),
            judge: learning.judge,
            schedule: learning.schedule,
            trainer: training.state,
            elsewhere,
            lost,
            context,
            metrics: gateway.metrics(),
            dropped_lines: plan.dropped_lines.clone(),
            authenticator: gateway.authenticator(),
            tasks: tasks.clone(),
            ending: CancellationToken::new(),
        });
        // Set once, here.
        late_app.set(Arc::downgrade(&app)).ok();
        run_training(&app, (training.cloud, training.supervisor), &background);
        housekeeping(plan, &app, &background)?;
        publish(&app, token, &plan.home, &background).await?;
        let serving = critical(&app, gateway.serve(listener, app.ending.clone()));
        Ok(Self {
            app,
            gateway: tasks.spawn(serving),
            background,
            keyed: config.proxy.requires_key(),
            warnings,
        })
    }

    /// What is wrong and keeps nothing from running.
    fn warnings(&self, plan: &Plan) -> Vec<String> {
        let unknown = plan.loaded.unknown.iter().map(ToString::to_string);
        let notices = plan.loaded.notices.iter().cloned();
        let warnings = unknown.chain(notices);
        warnings.chain(self.warnings.iter().cloned()).collect()
    }

    fn banner(&self, plan: &Plan, agent: Option<&Pointed>) -> String {
        let config = plan.loaded.sources(&plan.config_name);
        let first = match agent {
            Some(pointed) if pointed.asks_us => First::Agent,
            _ => First::of(&plan.loaded.config, &plan.policy),
        };
        let banner = Banner {
            proxy: self.app.proxy,
            keyed: self.keyed,
            about: &self.app.about,
            off: &self.app.privacy.switch.off(),
            inert: &plan.loaded.inert,
            config: &config,
            agent: agent.map(|it| it.said.as_str()),
            first,
        };
        banner.text()
    }

    /// Takes it down, in order; turns that were answered are in the log when it returns.
    async fn end(self, home: &Home) -> anyhow::Result<()> {
        let Self {
            app,
            gateway,
            background,
            keyed: _,
            warnings: _,
        } = self;
        app.stop();
        gateway.await?;
        info!("no reply is under way any more");
        // A step that was begun is settled at the next start.
        background.cancel();
        app.tasks.close();
        if tokio::time::timeout(BACKGROUND_GRACE, app.tasks.wait())
            .await
            .is_err()
        {
            warn!("a background task did not stop in time");
        }
        app.log.clone().close().await;
        home.retract()?;
        info!("ended");
        Ok(())
    }
}

/// Runs the training server where it is ours, and what answers chats in front of one that is not; counts what it takes.
fn run_training(
    app: &Arc<App>,
    (cloud, supervisor): (Option<CloudSide>, Option<Supervisor>),
    ending: &CancellationToken,
) {
    if let Some(meter) = &app.meter {
        app.tasks.spawn(Arc::clone(meter).run(ending.clone()));
    }
    if let Some(cloud) = cloud {
        app.tasks.spawn(cloud.run(ending.clone()));
    }
    if let Some(supervisor) = supervisor {
        app.tasks
            .spawn(critical(app, supervisor.run(ending.clone())));
    }
}

/// What goes on beside the chat until `ending`: what is kept is written down, what is old goes, what changed is read.
fn housekeeping(plan: &Plan, app: &App, ending: &CancellationToken) -> anyhow::Result<()> {
    let App {
        tasks,
        log,
        library,
        purse,
        privacy,
        home,
        ..
    } = app;
    let off_record = privacy::keep_off_record(Arc::clone(privacy), home.clone(), ending.clone());
    tasks.spawn(off_record);
    tasks.spawn(warn_dropped(plan.dropped_lines.clone(), ending.clone()));
    tasks.spawn(lessons::rescan(library.clone(), ending.clone()));
    tasks.spawn(purse::run(Arc::clone(purse), ending.clone()));
    let switched = Arc::clone(privacy);
    let is_off = Arc::new(move |agent: &AgentId| switched.switch.is_off(agent));
    let hosts = note_hosts(log.clone(), library.clone(), is_off, ending.clone());
    tasks.spawn(hosts);
    let digests = report::write_daily(app.sources(), home.reports(), ending.clone());
    tasks.spawn(digests);
    let turns: TurnsConfig = plan.loaded.section("turns")?;
    tasks.spawn(retention::run(log.clone(), turns, ending.clone()));
    Ok(())
}

/// Follows the training server and has the adapters that the log names loaded there; of one elsewhere, how it is.
fn follow(
    plan: &Plan,
    adapters: Adapters,
    training: &TrainingSide,
    (tasks, ending): (&TaskTracker, &CancellationToken),
) -> Option<watch::Receiver<TrainerStatus>> {
    if let (Some(key), Some(trainer)) = (&training.key, &training.state) {
        let served = Served {
            adapters,
            key: key.clone(),
            trainer: trainer.clone(),
            has_inference: plan.loaded.config.rl.has_vllm(),
        };
        tasks.spawn(served.run(ending.clone()));
        return None;
    }
    let (url, key) = training.elsewhere.clone()?;
    let (status, watched) = watch::channel(TrainerStatus::Starting);
    let remote = Remote {
        adapters,
        shown: shown(&plan.policy),
        url,
        key,
        model: trainer::base_model(plan),
        status,
        refuses: false,
    };
    tasks.spawn(remote.run(ending.clone()));
    Some(watched)
}

/// Where a training server is that is asked through a front of this process.
fn shown(policy: &Policy) -> Option<String> {
    match policy {
        Policy::Cloud(cloud) => Some(cloud.url.clone()),
        Policy::None | Policy::Local { .. } | Policy::Remote { .. } => None,
    }
}

/// A critical task: when it ends, well or badly, the app shuts down.
fn critical<W: Future<Output = ()>>(app: &App, work: W) -> impl Future<Output = ()> + use<W> {
    let ending = app.ending.clone().drop_guard();
    async move {
        work.await;
        drop(ending);
    }
}

/// Opens the control listener and says where it is.
async fn publish(
    app: &Arc<App>,
    token: String,
    home: &Home,
    background: &CancellationToken,
) -> anyhow::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let run = RunFile {
        pid: std::process::id(),
        control: listener.local_addr()?,
        token: token.clone(),
        base_url: format!("http://{}/v1", app.proxy),
        started_ms: app.since_ms,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let serving = control::serve(listener, Arc::clone(app), token, background.clone());
    app.tasks.spawn(async move {
        if let Err(error) = serving.await {
            warn!(%error, "the control listener ended: subcommands cannot ask any more");
        }
    });
    home.publish(&run).context("cannot write run.json")
}

#[cfg(test)]
mod tests;
