//! Assembles the app, runs it, and shuts it down.
//!
//! Order matters at both ends. The port is taken first, so that a second proxy on it is refused
//! before anything else is touched, and agents find us at once while the trainer still loads. At
//! the end: no new requests, replies finish, their turns reach the log, the learner stops,
//! the trainer goes, the log is closed.

use std::{
    path::{self, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use metaclaw_chat::{AgentId, now_ms};
use metaclaw_control::{
    browser_logins::BrowserLogins,
    home::{Home, RunFile, origin},
    instance::{GatewayRoom, Instance, Rooms, RunRoom},
    privacy, server,
    token_budget::{self, TokenBudget},
};
use metaclaw_gateway::{Services, max_local_connections, serve_local};
use metaclaw_learner::note_hosts;
use metaclaw_page::PageState;
use metaclaw_settings::{Loaded, Policy};
use metaclaw_turns::TurnLog;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use tracing_appender::non_blocking::ErrorCounter;

use self::{
    agents::Connector, background::Background, control_listeners::ControlListeners,
    gateway::GatewayMaker, in_use::UsedSettings, learning::LearningMaker, metrics::MetricSources,
    trainer::Training,
};
use crate::{
    banner::Banner,
    daemon::ReadyMessage,
    logging::warn_dropped,
    signals::Signals,
    site::{Site, random_token},
    wires::{Pointed, WireLinks},
};

mod adapters;
mod agents;
mod background;
mod cloud;
mod control_listeners;
mod followers;
mod gateway;
mod in_use;
mod learning;
mod lessons;
mod memory;
mod meter;
mod metrics;
mod models;
mod schedule;
mod services;
mod share;
mod trainer;
mod turn_log;
mod upstreams;

pub(crate) use self::{
    cloud::offered_models,
    learning::{idle_learner, step_figures},
    lessons::{library, memory},
    meter::{estimate_day, prices},
    trainer::checkpoint_dir,
    upstreams::model_prices,
};

const BACKGROUND_GRACE: Duration = Duration::from_secs(20);
/// As a shell reports a program that a second interrupt ended.
const INTERRUPTED: u8 = 130;

#[derive(Debug)]
pub(crate) struct Start {
    pub(crate) loaded: Loaded,
    pub(crate) policy: Policy,
    pub(crate) site: Site,
    pub(crate) config_name: PathBuf,
    pub(crate) agents: WireLinks,
    pub(crate) listens_on_stdin: bool,
    pub(crate) dropped_lines: ErrorCounter,
}

struct ServingProcess {
    rooms: Arc<Rooms>,
    gateway: JoinHandle<()>,
    background: Background,
    warnings: Vec<String>,
}

/// Builds the app, runs it until a signal or `metaclaw stop`, shuts it down.
///
/// `announce` gets the banner once the proxy listens, and the warnings that were logged before.
///
/// # Errors
///
/// When a part cannot be built; nothing runs then.
pub(crate) async fn run(
    start: Start,
    announce: impl FnOnce(ReadyMessage) + Send + 'static,
) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::new()?;
    let running = ServingProcess::build(&start).await?;
    let pointed = start.agents.point(running.rooms.gateway.address);
    let ready = ReadyMessage {
        pid: std::process::id(),
        banner: running.banner(&start, pointed.as_ref()),
        warnings: running.warnings.clone(),
    };
    // A stopped terminal blocks the write, which must not delay signals.
    tokio::task::spawn_blocking(move || announce(ready));
    tokio::select! {
        () = signals.next() => {}
        () = running.rooms.run.ending.cancelled() => {}
    }
    info!("ending: replies under way may finish");
    // First, so that the agent's next turn goes where it did before us.
    start.agents.release();
    tokio::select! {
        ended = running.end(&start.site.home) => ended.map(|()| ExitCode::SUCCESS),
        () = signals.next() => {
            warn!("ended at once, by a second signal");
            Ok(ExitCode::from(INTERRUPTED))
        }
    }
}

// === impl ServingProcess ===

impl ServingProcess {
    /// Starts each room with what it needs of those before it.
    async fn build(start: &Start) -> anyhow::Result<Self> {
        let (loaded, policy, site) = (&start.loaded, &start.policy, &start.site);
        let (config, home) = (&loaded.config, &site.home);
        let (background, process) = (Background::default(), CancellationToken::new());
        let settings = Arc::new(UsedSettings::new(config, policy, &start.config_name)?);

        let listener =
            gateway::listen(config.gateway.proxy.address(), start.listens_on_stdin).await?;
        let listeners = ControlListeners::bind(config).await?;
        let log = turn_log::open(&config.turns, home).await?;
        let (lessons, unusable) = lessons::start(config, home, &log).await?;
        let budget = TokenBudget::open(config.budget.clone(), home.spend(), log.clone());
        let privacy = Arc::new(privacy::load(home)?);

        let (serving, training) = Training::prepare(config, policy, site, &log, &background.tasks)?;
        let maker = LearningMaker {
            config,
            policy,
            site,
            log: &log,
            lessons: &lessons,
            budget: &Arc::new(budget),
            training: &training,
        };
        let (learning, judge) = maker.start(&serving, &privacy, &background).await?;
        let warnings = warnings(loaded, unusable, &training, &log).await;

        let run = run_room(start, Arc::clone(&settings), process.clone())?;
        let token = random_token();
        let counted = MetricSources {
            learner: learning.learner.clone(),
            judge,
            library: lessons.library.clone(),
            log: log.clone(),
        };
        let (own, pointers) = (training.room.own.clone(), Arc::clone(&serving));
        let maker = GatewayMaker {
            loaded,
            policy,
            site,
            log: &log,
            lessons: &lessons,
            privacy: &privacy,
        };
        let services = Services {
            page_port: Some(listeners.page_address()?.port()),
            ..services::services(counted, maker.memory(), own, pointers, &token)
        };
        let gateway = maker.make(&serving, services, &background).await?;
        share::start(&config.skills.share, site, &lessons.library, &background)?;

        let address = listener.local_addr()?;
        let file = &start.config_name;
        let agents = Connector::new(site, file, address, gateway.upstreams(), settings);
        let rooms = Arc::new(Rooms {
            run,
            log,
            lessons,
            gateway: GatewayRoom {
                address,
                serving,
                privacy,
                metrics: gateway.metrics(),
                authenticator: gateway.authenticator(),
                agents: Arc::new(agents),
            },
            learning,
            training: training.start(&background, &process),
        });
        keep_house(start, &rooms, &background);
        publish(start, &rooms, token, listeners, &background)?;
        let serving = gateway.serve(listener, process.clone());
        Ok(Self {
            rooms,
            gateway: background.spawn_critical(&process, serving),
            background,
            warnings,
        })
    }

    fn banner(&self, start: &Start, agent: Option<&Pointed>) -> String {
        let Start { loaded, policy, .. } = start;
        let banner = Banner {
            loaded,
            policy,
            about: &self.rooms.run.settings.about(),
            sources: &loaded.sources(&start.config_name),
            off: &self.rooms.gateway.privacy.switch.off(),
            proxy: self.rooms.gateway.address,
            agent,
        };
        banner.text()
    }

    /// Takes it down, in order; turns that were answered are in the log when it returns.
    async fn end(self, home: &Home) -> anyhow::Result<()> {
        self.rooms.run.ending.cancel();
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
        self.rooms.log.clone().close().await;
        home.retract()?;
        info!("ended");
        Ok(())
    }
}

async fn warnings(
    loaded: &Loaded,
    unusable_lessons: Vec<String>,
    training: &Training,
    log: &TurnLog,
) -> Vec<String> {
    let mut warnings: Vec<String> = loaded.unknown.iter().map(ToString::to_string).collect();
    warnings.extend(loaded.notices.iter().cloned());
    warnings.extend(unusable_lessons);
    warnings.extend(log.clock().doubt(now_ms()));
    if training.room.meter.is_some() {
        warnings.extend(estimate_day(&loaded.config, log).await);
    }
    warnings
}

fn keep_house(start: &Start, rooms: &Rooms, background: &Background) {
    let Background { tasks, ending } = background;
    let (log, library) = (rooms.log.clone(), rooms.lessons.library.clone());
    let (privacy, home) = (Arc::clone(&rooms.gateway.privacy), start.site.home.clone());
    let (switched, budget) = (Arc::clone(&privacy), Arc::clone(&rooms.learning.budget));
    let is_off = Arc::new(move |agent: &AgentId| switched.switch.is_off(agent));
    let turns = start.loaded.config.turns.clone();
    tasks.spawn(privacy::keep_off_record(privacy, home, ending.clone()));
    tasks.spawn(warn_dropped(start.dropped_lines.clone(), ending.clone()));
    tasks.spawn(lessons::rescan(library.clone(), ending.clone()));
    tasks.spawn(token_budget::run(budget, ending.clone()));
    tasks.spawn(note_hosts(log.clone(), library, is_off, ending.clone()));
    tasks.spawn(turn_log::retain(log, turns, ending.clone()));
}

fn run_room(
    start: &Start,
    settings: Arc<UsedSettings>,
    ending: CancellationToken,
) -> anyhow::Result<RunRoom> {
    let logins = BrowserLogins::open(&start.site.home).context("cannot use page.key")?;
    let dropped_lines = start.dropped_lines.clone();
    Ok(RunRoom {
        settings,
        since_ms: now_ms(),
        dropped_lines: Arc::new(move || dropped_lines.dropped_lines()),
        logins: Arc::new(logins),
        ending,
    })
}

fn publish(
    start: &Start,
    rooms: &Arc<Rooms>,
    token: String,
    listeners: ControlListeners,
    background: &Background,
) -> anyhow::Result<()> {
    let home = &start.site.home;
    let page_address = listeners.page_address()?;
    let ControlListeners { control, page } = listeners;
    let run = RunFile {
        pid: std::process::id(),
        control: control.local_addr()?,
        token: token.clone(),
        page: Some(page_address),
        base_url: format!("{}/v1", origin(rooms.gateway.address)),
        started_ms: rooms.run.since_ms,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        settings: Some(path::absolute(&start.config_name)?),
    };
    let instance = Arc::new(Instance::of_process(home.clone(), Arc::clone(rooms)));
    let Background { tasks, ending } = background;
    let logins = Arc::clone(&rooms.run.logins);
    let state = PageState::new(Arc::clone(&instance), &token, logins, tasks.clone());
    let routes = metaclaw_page::router(state);
    if let Some(page) = page {
        let served = serve_local(
            page,
            routes.clone(),
            max_local_connections(),
            ending.clone(),
        );
        tasks.spawn(served);
    }
    let served = server::serve(control, instance, token, routes, ending.clone());
    tasks.spawn(served);
    home.publish(&run).context("cannot write run.json")
}

#[cfg(test)]
mod tests;
