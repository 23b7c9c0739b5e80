//! The life of the process: start, ready line, signals, drain, end.

use std::{
    io::{self, IsTerminal as _, Write as _},
    net::{SocketAddr, TcpListener},
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow};
use clap::Parser as _;
use metaclaw_engine::{
    device,
    engine::{Dtype, EngineConfig},
    matrix::Quantization,
};
use metaclaw_trainer_chat as chat;
use serde::Serialize;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing_subscriber::EnvFilter;

use crate::{
    app,
    args::{Args, DtypeArg, QuantizationArg, Resolved},
    connections,
    host::{Fetcher, Host, HostConfig, hub_from_env},
    lock::FolderLock,
    state::{Behind, ServerLimits, TrainerApp},
    tinker::shared::{SAMPLES_AT_ONCE, TinkerLimits},
    vllm,
};

const DRAIN: Duration = Duration::from_secs(30);
/// Replies at once on a GPU, where one more costs little as long as reading the weights takes the time.
const GPU_STREAMS: usize = 64;
/// The time that a write to the disk has at the end.
const WRITE: Duration = Duration::from_secs(10);

/// The first line on stdout, which a parent waits for. It is the only line there.
#[derive(Debug, Serialize)]
struct ReadyMessage {
    ready: bool,
    address: SocketAddr,
    pid: u32,
}

/// Runs the server until it is told to end.
pub fn main() -> ExitCode {
    let args = Args::parse();
    if let Err(error) = log_to_stderr(&args.log_level) {
        return failed(&error);
    }
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

fn failed(error: &anyhow::Error) -> ExitCode {
    // Nothing more can be done if this fails.
    let _ = writeln!(io::stderr(), "metaclaw-trainer: {error:#}");
    ExitCode::FAILURE
}

fn log_to_stderr(level: &str) -> Result<()> {
    // Level names as in Python, which the fork's users know.
    let known = match level.to_ascii_lowercase().as_str() {
        "warning" => "warn".to_owned(),
        "critical" => "error".to_owned(),
        _ => level.to_owned(),
    };
    let filter = EnvFilter::try_new(known)
        .with_context(|| format!("--log-level {level:?} is not allowed: error, warn, info, debug, trace, or a filter such as info,metaclaw_engine=debug"))?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .try_init()
        .map_err(|error| anyhow!("logging: {error}"))
}

#[expect(
    clippy::disallowed_methods,
    reason = "this is where the environment is read"
)]
fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn run(args: &Args) -> Result<()> {
    let resolved = args.resolve(environment)?;
    if environment("OMP_WAIT_POLICY").is_none_or(|policy| !policy.eq_ignore_ascii_case("passive")) {
        tracing::warn!(
            "OMP_WAIT_POLICY is not passive: training and chat will stall each other on few cores; start metaclaw-trainer instead"
        );
    }
    // Steps that can fail quickly come before slow ones.
    let listener = TcpListener::bind(resolved.address)
        .with_context(|| format!("cannot listen on {}", resolved.address))?;
    listener.set_nonblocking(true)?;
    let lock = FolderLock::take(&resolved.checkpoint_dir)?;
    if let Some(words) = device::unused_gpus().filter(|_| !args.names_devices(&environment)) {
        tracing::warn!("no GPU is used, the CPU computes: {words}");
    }
    let host = Arc::new(Host::start(HostConfig {
        model: args.model.clone(),
        fetcher: Fetcher::new(
            resolved.hub.clone(),
            Box::new(|| hub_from_env(&environment)),
        ),
        engine: engine_config(args, &resolved),
        n_kept: usize::from(args.keep),
    })?);
    let inference = inference(&resolved, &host)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("http")
        .enable_all()
        .build()?;
    let app = TrainerApp::with_inference(
        Arc::clone(&host),
        limits(args),
        resolved.key.clone(),
        inference,
    );
    let ended = runtime.block_on(async {
        let (tasks, ending) = (TaskTracker::new(), CancellationToken::new());
        run_inference(&app, &tasks, &ending);
        let ended = serve(listener, app, args.parent_stdin, &resolved).await;
        ending.cancel();
        tasks.close();
        tasks.wait().await;
        ended
    });
    // A step that is under way is lost with the process, as at a kill; the last checkpoint holds. The engine ends first,
    // so that nobody waits for it. Adapters and snapshots of runs are also tensors: they go with the requests.
    host.stop();
    runtime.shutdown_timeout(WRITE);
    drop(host);
    drop(lock);
    ended
}

fn engine_config(args: &Args, resolved: &Resolved) -> EngineConfig {
    let (cache, checkpoints) = (resolved.cache_dir.clone(), resolved.checkpoint_dir.clone());
    let default = EngineConfig::new(PathBuf::new(), cache, checkpoints);
    EngineConfig {
        dtype: match args.dtype {
            DtypeArg::Auto => None,
            DtypeArg::Bf16 => Some(Dtype::Bf16),
            DtypeArg::F16 => Some(Dtype::F16),
            DtypeArg::F32 => Some(Dtype::F32),
        },
        quantization: match args.quantization {
            QuantizationArg::None => None,
            QuantizationArg::Int8 => Some(Quantization::Int8),
        },
        threads: usize::from(resolved.n_threads),
        training: resolved.training.clone(),
        inference: resolved.serving.clone(),
        memory: args.memory,
        kv_budget: args.kv_budget,
        max_waiting: usize::from(args.max_queue.saturating_add(SAMPLES_AT_ONCE)),
        max_streams: if resolved.serving.gpus().is_empty() {
            default.max_streams
        } else {
            GPU_STREAMS
        },
        ..default
    }
}

fn inference(resolved: &Resolved, host: &Arc<Host>) -> Result<Option<Behind>> {
    let Some(inference) = resolved.inference.clone() else {
        return Ok(None);
    };
    let (link, started) = vllm::prepare(inference, &resolved.checkpoint_dir, Arc::clone(host))?;
    let link = Arc::new(link);
    Ok(Some(Behind { link, started }))
}

fn run_inference(app: &TrainerApp, tasks: &TaskTracker, ending: &CancellationToken) {
    let Some(behind) = &app.inference else {
        return;
    };
    if let Some(started) = behind.started.clone() {
        let link = Arc::clone(&behind.link);
        tasks.spawn(started.run(move || link.is_away(), ending.clone()));
    }
    let (link, ending) = (Arc::clone(&behind.link), ending.clone());
    tasks.spawn(async move { link.follow(ending).await });
}

fn limits(args: &Args) -> ServerLimits {
    ServerLimits {
        text: chat::Limits {
            n_queue: usize::from(args.max_queue),
            ..chat::Limits::default()
        },
        tinker: TinkerLimits {
            session_idle: Duration::from_secs(u64::from(args.session_idle)),
            ..TinkerLimits::default()
        },
        ..ServerLimits::default()
    }
}

async fn serve(
    listener: TcpListener,
    app: TrainerApp,
    parent_stdin: bool,
    resolved: &Resolved,
) -> Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let address = listener.local_addr()?;
    let ending = CancellationToken::new();
    let parent = parent_gone(parent_stdin)?;
    let signals = [
        signal(SignalKind::terminate())?,
        signal(SignalKind::interrupt())?,
    ];
    let server = connections::serve(listener, app::router(&app), ending.clone());
    say_ready(address)?;
    tracing::info!(%address, checkpoints = %resolved.checkpoint_dir.display(), "ready");
    tokio::select! {
        () = server => Ok(()),
        () = told_to_end(signals, &ending) => Ok(()),
        () = parent.cancelled() => {
            tracing::info!("the parent is gone");
            Ok(())
        }
    }
}

/// Begins the drain at the first signal; returns at the second, or when the drain has taken too long.
async fn told_to_end([mut terminate, mut interrupt]: [Signal; 2], ending: &CancellationToken) {
    either(&mut terminate, &mut interrupt).await;
    tracing::info!("told to end: running replies are finished, a second signal ends them");
    ending.cancel();
    let second = either(&mut terminate, &mut interrupt);
    if tokio::time::timeout(DRAIN, second).await.is_err() {
        tracing::warn!("replies are still running after {DRAIN:?}: they are cut");
    }
}

async fn either(one: &mut Signal, other: &mut Signal) {
    tokio::select! {
        _ = one.recv() => {}
        _ = other.recv() => {}
    }
}

/// A token that is cancelled when stdin closes. It needs a thread, because a blocking read of stdin cannot be
/// cancelled.
fn parent_gone(watch: bool) -> Result<CancellationToken> {
    let gone = CancellationToken::new();
    if watch {
        let gone = gone.clone();
        std::thread::Builder::new()
            .name("parent-stdin".to_owned())
            .spawn(move || {
                // An error ends it as well.
                let _ = io::copy(&mut io::stdin(), &mut io::sink());
                gone.cancel();
            })?;
    }
    Ok(gone)
}

fn say_ready(address: SocketAddr) -> Result<()> {
    let line = serde_json::to_string(&ReadyMessage {
        ready: true,
        address,
        pid: std::process::id(),
    })?;
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{line}")?;
    stdout.flush().context("the ready line")
}
