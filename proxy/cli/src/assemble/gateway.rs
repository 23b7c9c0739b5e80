//! What the gateway is made from, and the port that it listens on.

use std::{io, net::SocketAddr, os::fd::AsFd as _, sync::Arc};

use anyhow::{Context as _, anyhow, ensure};
use metaclaw_chat::now_ms;
use metaclaw_control::forgetting::KeptLessons;
use metaclaw_gateway::{
    Gateway, GatewayConfig, GatewayParts, Privacy, Rollouts, Services, Serving,
};
use metaclaw_settings::{Config, Loaded, Policy};
use metaclaw_skills::MemoryStore;
use metaclaw_turns::{Durability, Turn, TurnFilter, TurnLog};
use tokio::net::TcpListener;
use tracing::warn;

use super::{background::Background, upstreams};
use crate::{environment::Environment, site::Site};

/// Sessions that clients without names may go on from after a restart.
const KNOWN_CHAINS: usize = 2_000;

/// Turns of the last hour that are read at a start: a sub-agent that was sent out in one goes on with its work.
const RECENT_TURNS: usize = 200;
const RECENT_MS: u64 = 60 * 60 * 1_000;

pub(super) async fn listen(address: SocketAddr, is_on_stdin: bool) -> anyhow::Result<TcpListener> {
    if is_on_stdin {
        return inherited(address);
    }
    TcpListener::bind(address).await.map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => anyhow!(
            "{address} is in use by another program: `metaclaw start --port N` (or proxy.port) takes another one, 0 any free one"
        ),
        _ => anyhow!("cannot listen on {address} (proxy.host, proxy.port): {error}"),
    })
}

/// The socket that was handed to this process as its standard input, by `start -d` or by systemd.
///
/// `address` is the one of the settings. The socket stays open when the proxy is killed, so it may be older than the
/// settings: then a line says so, and the socket is used.
fn inherited(address: SocketAddr) -> anyhow::Result<TcpListener> {
    let socket = std::io::stdin().as_fd().try_clone_to_owned()?;
    let listener = std::net::TcpListener::from(socket);
    let not_one = "standard input is no listening socket: --listen-on-stdin is for `start -d` and the service unit";
    let is_listening = rustix::net::sockopt::socket_acceptconn(&listener);
    ensure!(is_listening.unwrap_or(false), not_one);
    let open = listener.local_addr().context(not_one)?;
    if open != address && address.port() != 0 {
        warn!(
            %open, settings = %address,
            "the socket that was handed over is not that of the settings: `metaclaw stop` and a new start use theirs"
        );
    }
    listener.set_nonblocking(true)?;
    // Programs that this process starts would inherit the socket, and keep the port when this process is gone.
    rustix::stdio::dup2_stdin(std::fs::File::open("/dev/null")?)?;
    Ok(TcpListener::from_std(listener)?)
}

pub(super) struct GatewayMaker<'a> {
    pub(super) loaded: &'a Loaded,
    pub(super) policy: &'a Policy,
    pub(super) site: &'a Site,
    pub(super) log: &'a TurnLog,
    pub(super) lessons: &'a KeptLessons,
    pub(super) privacy: &'a Arc<Privacy>,
}

// === impl GatewayMaker ===

impl GatewayMaker<'_> {
    /// The gateway of the settings; it serves nobody yet.
    pub(super) async fn make(
        &self,
        serving: &Arc<Serving>,
        services: Services,
        background: &Background,
    ) -> anyhow::Result<Gateway> {
        let log = self.log;
        let is_recorded = self.loaded.config.turns.enabled;
        let rollouts = match is_recorded.then(|| rollouts(log, background)) {
            Some(rollouts) => Some(rollouts.await?),
            None => None,
        };
        // Names the file as well, where a room refuses what stands there.
        let in_file =
            |error: anyhow::Error| anyhow!(self.loaded.with_origin(&format!("{error:#}")));
        let config = config(&self.loaded.config, self.policy, &self.site.environment);
        let gateway = Gateway::new(GatewayParts {
            config: config.map_err(in_file)?,
            log: Arc::new(log.clone()),
            past: Arc::new(log.clone()),
            known: log.recent_chains(KNOWN_CHAINS).await?,
            recent: recent_turns(log).await?,
            library: self.lessons.library.clone(),
            memory: self.memory(),
            roots: Arc::clone(&self.site.roots),
            serving: Arc::clone(serving),
            privacy: Arc::clone(self.privacy),
            services,
            rollouts,
        });
        gateway.map_err(|error| in_file(error.into()))
    }

    pub(super) fn memory(&self) -> Option<MemoryStore> {
        let memory = &self.lessons.memory;
        memory.config().is_on().then(|| memory.clone())
    }
}

/// The settings of the gateway, with those that other settings and the environment give.
pub(super) fn config(
    all: &Config,
    policy: &Policy,
    environment: &Environment,
) -> anyhow::Result<GatewayConfig> {
    let mut config = all.gateway.clone();
    config.strict = all.turns.durability == Durability::Strict;
    config.unrecorded = !all.turns.enabled;
    if !policy.is_some() {
        upstreams::without_policy(&mut config)?;
    }
    config.environment = upstreams::environment(environment);
    config.aws = upstreams::credentials(environment);
    upstreams::add_llm(&mut config.upstreams, &all.llm);
    Ok(config)
}

/// The open rollouts, each of which ends at its deadline.
async fn rollouts(log: &TurnLog, background: &Background) -> anyhow::Result<Arc<Rollouts>> {
    let rollouts = Rollouts::load(log.clone()).await?;
    let (late, ending) = (Arc::clone(&rollouts), background.ending.clone());
    let end_late_ones = async move {
        ending.run_until_cancelled(late.end_late_ones()).await;
    };
    background.tasks.spawn(end_late_ones);
    Ok(rollouts)
}

/// The turns of the last hour, the newest first.
async fn recent_turns(log: &TurnLog) -> anyhow::Result<Vec<Turn>> {
    let since = now_ms().saturating_sub(RECENT_MS);
    let filter = TurnFilter {
        limit: RECENT_TURNS,
        ..TurnFilter::default()
    };
    let mut turns = Vec::new();
    for line in log.list(filter).await? {
        if line.ended_ms >= since {
            // One that does not read back keeps nobody from chatting.
            turns.extend(log.get(line.id).await.ok().flatten());
        }
    }
    Ok(turns)
}
