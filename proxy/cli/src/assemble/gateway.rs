//! The gateway, and the port that it listens on.

use std::{io, net::SocketAddr, os::fd::AsFd as _, sync::Arc};

use anyhow::{Context as _, anyhow, ensure};
use metaclaw_chat::now_ms;
use metaclaw_gateway::{Gateway, GatewayParts, Rollouts, Services};
use metaclaw_turns::{Durability, Turn, TurnFilter, TurnLog};
use tokio::net::TcpListener;
use tracing::warn;

use super::{
    parts::{Background, GatewayState, Stores},
    plan::StartPlan,
    upstreams,
};

/// Sessions that clients without names may go on from after a restart.
const KNOWN_CHAINS: usize = 2_000;

/// Turns of the last hour that are read at a start: a sub-agent that was sent out in one goes on with its work.
const RECENT_TURNS: usize = 200;
const RECENT_MS: u64 = 60 * 60 * 1_000;

/// The port of the settings, opened by this process or handed over to it.
pub(super) async fn listen(plan: &StartPlan) -> anyhow::Result<TcpListener> {
    let address = plan.loaded.config.gateway.proxy.address();
    if plan.listens_on_stdin {
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

/// The open rollouts, each of which ends at its deadline; none where nothing is recorded.
async fn rollouts(
    plan: &StartPlan,
    log: &TurnLog,
    background: &Background,
) -> anyhow::Result<Option<Arc<Rollouts>>> {
    if !plan.loaded.config.turns.enabled {
        return Ok(None);
    }
    let rollouts = Rollouts::load(log.clone()).await?;
    let (late, ending) = (Arc::clone(&rollouts), background.ending.clone());
    let end_late_ones = async move {
        ending.run_until_cancelled(late.end_late_ones()).await;
    };
    background.tasks.spawn(end_late_ones);
    Ok(Some(rollouts))
}

/// The gateway of the settings; it serves nobody yet.
pub(super) async fn gateway(
    plan: &StartPlan,
    stores: &Stores,
    state: &GatewayState,
    services: Services,
    background: &Background,
) -> anyhow::Result<Gateway> {
    let log = &stores.log;
    let rollouts = rollouts(plan, log, background).await?;
    let mut config = plan.loaded.config.gateway.clone();
    let turns = &plan.loaded.config.turns;
    config.strict = turns.durability == Durability::Strict;
    config.unrecorded = !turns.enabled;
    // Names the file as well, where a room refuses what stands there.
    let in_file = |error: anyhow::Error| anyhow!(plan.loaded.with_origin(&format!("{error:#}")));
    if !plan.policy.is_some() {
        upstreams::without_policy(&mut config).map_err(in_file)?;
    }
    config.environment = upstreams::environment(&plan.environment);
    config.aws = upstreams::credentials(&plan.environment);
    upstreams::add_llm(&mut config.upstreams, &plan.loaded.config.llm);
    let gateway = Gateway::new(GatewayParts {
        config,
        log: Arc::new(log.clone()),
        past: Arc::new(log.clone()),
        known: log.recent_chains(KNOWN_CHAINS).await?,
        recent: recent_turns(log).await?,
        library: stores.library.clone(),
        memory: Some(stores.memory.clone()).filter(|it| it.config().enabled),
        roots: Arc::clone(&plan.roots),
        serving: Arc::clone(&state.serving),
        privacy: Arc::clone(&state.privacy),
        services,
        rollouts,
    });
    gateway.map_err(|error| in_file(error.into()))
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
