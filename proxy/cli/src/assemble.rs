//! Puts the house together, keeps it, and takes it down.
//!
//! Order matters at both ends. The port is taken first, so that a second proxy on it is refused
//! before anything else is touched, and agents find us at once while the trainer still loads. At
//! the end: no new requests, replies finish, their turns reach the log, the learner comes to rest,
//! the trainer goes, the log is closed.

use std::{
    future::Future,
    io,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, anyhow};
use metaclaw_chat::now_ms;
use metaclaw_gateway::{Gateway, GatewayConfig, GatewayParts, Services, Serving};
use metaclaw_learner::LearnerConfig;
use metaclaw_skills::Library;
use metaclaw_turns::{Durability, TurnLog, TurnsConfig};
use rustls::RootCertStore;
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{info, warn};
use tracing_appender::non_blocking::ErrorCounter;

use self::{
    served::Served,
    services::Later,
    trainer::{TrainingSide, Unloader},
};
use crate::{
    banner::{About, Banner},
    config::{Loaded, Policy},
    control,
    environment::Environment,
    home::{Home, RunFile},
    house::House,
    logging::tell_dropped,
    signals::Signals,
};

mod learner;
mod lessons;
mod served;
mod services;
mod trainer;
mod upstreams;

pub(crate) use self::{lessons::library, trainer::checkpoint_dir};

/// How long everything behind the chat may take to come to rest.
const REST: Duration = Duration::from_secs(20);
/// Sessions that clients without names may go on from after a restart.
const KNOWN_CHAINS: usize = 2_000;
/// As a shell reports a program that a second interrupt ended.
const INTERRUPTED: u8 = 130;

/// All that is known before anything runs.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The file that the settings came from.
    pub config_name: PathBuf,
    /// MetaClaw's home; the caller has its lock.
    pub home: Home,
    /// The environment as it was.
    pub environment: Environment,
    /// The settings.
    pub loaded: Loaded,
    /// The policy model.
    pub policy: Policy,
    /// The certificates that servers are trusted by.
    pub roots: Arc<RootCertStore>,
    /// Counts log lines that were dropped.
    pub dropped_lines: ErrorCounter,
}

/// Builds the house, keeps it until it is told to end, takes it down.
///
/// `tell` gets the banner once the proxy listens.
///
/// # Errors
///
/// When a part cannot be built; nothing runs then.
pub(crate) async fn keep(
    plan: Plan,
    tell: impl FnOnce(&str) + Send + 'static,
) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::new()?;
    let running = Running::build(&plan).await?;
    let banner = running.banner(&plan);
    // Whoever stopped the terminal is not waited for.
    tokio::task::spawn_blocking(move || tell(&banner));
    tokio::select! {
        () = signals.next() => {}
        () = running.house.ending.cancelled() => {}
    }
    info!("ending: replies under way may finish");
    tokio::select! {
        ended = running.end(&plan.home) => ended.map(|()| ExitCode::SUCCESS),
        () = signals.next() => {
            warn!("ended at once, by a second signal");
            Ok(ExitCode::from(INTERRUPTED))
        }
    }
}

/// The house, and the tasks that it is made of.
struct Running {
    house: Arc<House>,
    gateway: JoinHandle<()>,
    /// Ends everything but the gateway, once no reply is under way.
    rest: CancellationToken,
    keyed: bool,
}

// === impl Running ===

impl Running {
    /// Builds everything and lets it run.
    async fn build(plan: &Plan) -> anyhow::Result<Self> {
        let config = &plan.loaded.config;
        let listener = listen(config.proxy.address()).await?;
        let proxy = listener.local_addr()?;
        let log = open_log(plan).await?;
        let library = lessons::open(&plan.loaded, &plan.home).await?;

        let tasks = TaskTracker::new();
        let rest = CancellationToken::new();
        let unloader = Unloader::new(tasks.clone());
        let serving = Serving::new(unloader.on_idle());
        let training = TrainingSide::new(plan, &serving)?;
        unloader.set(training.backend.as_ref());

        let settings = plan.loaded.room::<LearnerConfig>()?;
        let (judge, judged_with) = learner::judge(plan, &settings)?;
        let mut about = About::of(
            config,
            &plan.policy,
            &judged_with,
            &settings.rl.method.to_string(),
        );
        if !plan.loaded.section::<TurnsConfig>("turns")?.enabled {
            about = about.of_nothing_new();
        }
        let learner = learner::start(
            settings,
            judge,
            &log,
            training.backend.clone(),
            &serving,
            (&tasks, &rest),
        )
        .await?;
        let stands = Later::default();
        let token = random_token();
        let ready = services::ready(training.state.clone(), &serving);
        let services = services::services(&stands, &log, ready, &token);
        let gateway = gateway(plan, &log, &library, &serving, services).await?;
        if let Some(served) = served(&training, &serving, &log) {
            tasks.spawn(served.keep(rest.clone()));
        }
        let house = Arc::new(House {
            about,
            proxy,
            since_ms: now_ms(),
            log,
            library,
            serving,
            backend: training.backend,
            learner,
            trainer: training.state,
            metrics: gateway.metrics(),
            dropped_lines: plan.dropped_lines.clone(),
            authenticator: gateway.authenticator(),
            tasks: tasks.clone(),
            ending: CancellationToken::new(),
        });
        // Set once, here.
        stands.set(Arc::downgrade(&house)).ok();
        if let Some(supervisor) = training.supervisor {
            tasks.spawn(vital(&house, supervisor.run(rest.clone())));
        }
        tasks.spawn(tell_dropped(plan.dropped_lines.clone(), rest.clone()));
        tasks.spawn(lessons::rescan(house.library.clone(), rest.clone()));
        publish(&house, token, &plan.home, &rest).await?;
        let gateway = gateway.serve(listener, house.ending.clone());
        let gateway = tasks.spawn(vital(&house, gateway));
        Ok(Self {
            house,
            gateway,
            rest,
            keyed: config.proxy.is_locked(),
        })
    }

    fn banner(&self, plan: &Plan) -> String {
        let name = plan.config_name.display();
        let config = if plan.config_name.exists() {
            name.to_string()
        } else {
            format!("the defaults ({name} is not there)")
        };
        let banner = Banner {
            proxy: self.house.proxy,
            keyed: self.keyed,
            about: &self.house.about,
            inert: &plan.loaded.inert,
            config: &config,
        };
        banner.text()
    }

    /// Takes it down, in order; turns that were answered are in the log when it returns.
    async fn end(self, home: &Home) -> anyhow::Result<()> {
        let Self {
            house,
            gateway,
            rest,
            keyed: _,
        } = self;
        house.stop();
        gateway.await?;
        info!("no reply is under way any more");
        // A step that was begun is settled at the next start.
        rest.cancel();
        house.tasks.close();
        if tokio::time::timeout(REST, house.tasks.wait())
            .await
            .is_err()
        {
            warn!("something did not come to rest");
        }
        house.log.clone().close().await;
        home.retract()?;
        info!("ended");
        Ok(())
    }
}

/// Who sees to it that the policy model is served as the log says; none without a trainer of our own.
fn served(training: &TrainingSide, serving: &Arc<Serving>, log: &TurnLog) -> Option<Served> {
    Some(Served {
        serving: Arc::clone(serving),
        log: log.clone(),
        backend: training.backend.clone()?,
        key: training.key.clone()?,
        trainer: training.state.clone()?,
    })
}

/// Work without which the rest is of no use: when it ends, well or badly, everything ends.
fn vital<W: Future<Output = ()>>(house: &House, work: W) -> impl Future<Output = ()> + use<W> {
    let ending = house.ending.clone().drop_guard();
    async move {
        work.await;
        drop(ending);
    }
}

/// Takes the port.
async fn listen(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => anyhow!(
            "{address} is in use by another program: `metaclaw start --port N` (or proxy.port) takes another one, 0 any free one"
        ),
        _ => anyhow!("cannot listen on {address} (proxy.host, proxy.port): {error}"),
    })
}

async fn open_log(plan: &Plan) -> anyhow::Result<TurnLog> {
    let folder = plan.home.turns();
    let config: TurnsConfig = plan.loaded.section("turns")?;
    // Opening reads the disk.
    let log = tokio::task::spawn_blocking(move || TurnLog::open(&folder, &config)).await??;
    Ok(log)
}

async fn gateway(
    plan: &Plan,
    log: &TurnLog,
    library: &Library,
    serving: &Arc<Serving>,
    services: Services,
) -> anyhow::Result<Gateway> {
    let mut config: GatewayConfig = plan.loaded.room()?;
    let turns: TurnsConfig = plan.loaded.section("turns")?;
    config.strict = turns.durability == Durability::Strict;
    config.unrecorded = !turns.enabled;
    // The door was guarded when the settings were read.
    config.proxy.host = plan.loaded.config.proxy.host;
    if !plan.policy.is_some() {
        upstreams::without_policy(&mut config)?;
    }
    config.environment = upstreams::environment(&plan.environment);
    upstreams::add_llm(&mut config.upstreams, &plan.loaded.config.llm);
    let gateway = Gateway::new(GatewayParts {
        config,
        log: Arc::new(log.clone()),
        known: log.recent_chains(KNOWN_CHAINS).await?,
        library: library.clone(),
        roots: Arc::clone(&plan.roots),
        serving: Arc::clone(serving),
        services,
    })?;
    Ok(gateway)
}

/// Opens the control listener and says where it is.
async fn publish(
    house: &Arc<House>,
    token: String,
    home: &Home,
    rest: &CancellationToken,
) -> anyhow::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let run = RunFile {
        pid: std::process::id(),
        control: listener.local_addr()?,
        token: token.clone(),
        base_url: format!("http://{}/v1", house.proxy),
        started_ms: house.since_ms,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let serving = control::serve(listener, Arc::clone(house), token, rest.clone());
    house.tasks.spawn(async move {
        if let Err(error) = serving.await {
            warn!(%error, "the control listener ended: subcommands cannot ask any more");
        }
    });
    home.publish(&run).context("cannot write run.json")
}

/// A secret of this run: 32 hex digits.
fn random_token() -> String {
    format!("{:032x}", rand::random::<u128>())
}
