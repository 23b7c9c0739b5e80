//! vLLM's own process, if it is started here: configured from the flags, started, restarted when it ends, and ended
//! together with this one.

use std::{
    fs::File,
    io,
    net::{Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, Result};
use metaclaw_engine::engine::Dtype;
use metaclaw_trainer_api::ApiKey;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::{
    process::{Child, ChildStdin, Command},
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;

use super::link::{Link, LinkConfig};
use crate::{args::InferenceServer, host::Host};

const FOLDER: &str = "vllm";
const LOG: &str = "vllm.log";
/// After a crash of its engine, vLLM's process was seen to wait for ever for its own tasks.
const HANGS_AFTER: Duration = Duration::from_secs(30);
/// The number of adapters that may answer at once; more wait.
const SLOTS: u32 = 4;
/// The number of adapters in memory; more are read from their folders again.
const IN_MEMORY: u32 = 32;

/// Returns the link to vLLM, and the vLLM that is to be started here, if one is.
///
/// # Errors
/// Returns an error if no port is free, or no client can be built.
pub(crate) fn prepare(
    inference: InferenceServer,
    checkpoint_dir: &Path,
    host: Arc<Host>,
) -> Result<(Link, Option<StartedVllm>)> {
    let folder = checkpoint_dir.canonicalize();
    let folder = folder.context("--checkpoint-dir")?.join(FOLDER);
    let (url, key, max_rank, started) = match inference {
        InferenceServer::Found { url, key, max_rank } => (url, key, max_rank, None),
        InferenceServer::Started {
            python,
            arguments,
            max_rank,
            devices,
        } => {
            let port = free_port().context("no port is free for vLLM")?;
            let key = format!("{:032x}", rand::random::<u128>());
            let started = StartedVllm {
                config: ProcessConfig {
                    python,
                    arguments,
                    key: key.clone(),
                    devices,
                    log: checkpoint_dir.join(LOG),
                    hangs_after: HANGS_AFTER,
                },
                port,
                max_rank,
                host: Arc::clone(&host),
            };
            let (url, key) = (format!("http://127.0.0.1:{port}"), ApiKey::new(key));
            (url, Some(key), Some(max_rank), Some(started))
        }
    };
    let config = LinkConfig {
        url,
        key,
        max_rank,
        folder,
    };
    Ok((Link::new(config, http()?, host), started))
}

/// The client has no redirects, proxies and retries, because callers decide what is repeated.
fn http() -> Result<reqwest::Client> {
    // Only plain HTTP is used, but the client cannot be built without a TLS provider. In a test, it is set already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder()
        .tls_certs_only([])
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .build();
    client.context("no client for vLLM")
}

/// Returns a port that was free a moment ago, because vLLM does not report a port that it chose.
fn free_port() -> io::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(listener.local_addr()?.port())
}

fn arguments_of(host: &Host, port: u16, max_rank: u32) -> Option<Vec<String>> {
    let dtype = match host.dtype()? {
        Dtype::Bf16 => "bfloat16",
        Dtype::F16 => "float16",
        Dtype::F32 => "float32",
    };
    let (port, rank) = (port.to_string(), max_rank.to_string());
    let (slots, in_memory) = (SLOTS.to_string(), IN_MEMORY.to_string());
    let folder = host.model_folder().to_string_lossy();
    let flags = [
        ["--model", &folder],
        ["--served-model-name", host.base()],
        ["--host", "127.0.0.1"],
        ["--port", &port],
        ["--dtype", dtype],
        ["--max-lora-rank", &rank],
        ["--max-loras", &slots],
        ["--max-cpu-loras", &in_memory],
    ];
    let switches = ["--enable-lora", "--enable-prompt-tokens-details"];
    let words = flags.as_flattened().iter().chain(&switches);
    Some(words.map(|word| (*word).to_owned()).collect())
}

/// A script that runs the rest of its arguments, and ends them when its stdin closes, which happens however this
/// process ends.
const KEEPER: &str = include_str!("keeper.sh");
/// It is not `vllm serve`, which asks for the version of a package that vLLM's build for CPUs does not have.
const MODULE: [&str; 2] = ["-m", "vllm.entrypoints.openai.api_server"];
/// The pause before it is started again; it doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
const RAN_WELL: Duration = Duration::from_secs(300);
const GRACE: Duration = Duration::from_secs(20);

#[derive(Debug, Clone)]
struct ProcessConfig {
    python: PathBuf,
    arguments: Vec<String>,
    key: String,
    /// The numbers of the GPUs that it may use; `None` means all.
    devices: Option<String>,
    log: PathBuf,
    hangs_after: Duration,
}

/// How one run of the process ended.
enum Ended {
    ByItself(io::Result<ExitStatus>),
    Hanging,
    /// It has to end.
    Told,
}

#[derive(Debug)]
pub(crate) struct Process(ProcessConfig);

/// A vLLM that is started when the base model is known: at once, or after the first lora/create.
#[derive(Debug, Clone)]
pub(crate) struct StartedVllm {
    /// Its arguments are those of `--inference-args` alone.
    config: ProcessConfig,
    port: u16,
    max_rank: u32,
    host: Arc<Host>,
}

// === impl StartedVllm ===

impl StartedVllm {
    /// Returns its process, or `None` before there is a model.
    pub(crate) fn process(&self) -> Option<Process> {
        let mut config = self.config.clone();
        let own = arguments_of(&self.host, self.port, self.max_rank)?;
        config.arguments.splice(0..0, own);
        Some(Process(config))
    }

    /// Waits for the model, then as [`Process::run`].
    pub(crate) async fn run(
        self,
        is_away: impl Fn() -> bool + Send + Sync,
        ending: CancellationToken,
    ) {
        let has_model = ending.run_until_cancelled(self.host.until_loaded()).await;
        if let Some(process) = self.process().filter(|_| has_model.is_some()) {
            process.run(is_away, ending).await;
        }
    }
}

// === impl Process ===

impl Process {
    pub(crate) fn command(&self) -> String {
        let python = self.0.python.to_string_lossy();
        let words = std::iter::once(&*python).chain(MODULE);
        let words = words.chain(self.0.arguments.iter().map(String::as_str));
        words.collect::<Vec<_>>().join(" ")
    }

    pub(crate) fn log(&self) -> String {
        self.0.log.to_string_lossy().into_owned()
    }

    /// Keeps it running until `ending`. `is_away` is whether it does not answer.
    pub(crate) async fn run(
        self,
        is_away: impl Fn() -> bool + Send + Sync,
        ending: CancellationToken,
    ) {
        let mut pause = FIRST_PAUSE;
        loop {
            let began = Instant::now();
            match self.start() {
                Ok(child) => {
                    let log = self.log();
                    tracing::info!(command = self.command(), log, "vLLM is started");
                    let Some(how) = self.live(child, &is_away, &ending).await else {
                        return;
                    };
                    tracing::warn!(how, log, "vLLM has ended");
                }
                Err(error) => {
                    let python = self.0.python.display();
                    tracing::error!(%python, %error, "vLLM cannot be started: --inference-python names a Python that has it");
                }
            }
            if began.elapsed() > RAN_WELL {
                pause = FIRST_PAUSE;
            }
            let rest = tokio::time::sleep(pause);
            if ending.run_until_cancelled(rest).await.is_none() {
                return;
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Waits for the end of one run, and returns how it ended, or `None` if it has to end.
    async fn live(
        &self,
        mut child: Child,
        is_away: impl Fn() -> bool + Send + Sync,
        ending: &CancellationToken,
    ) -> Option<String> {
        // Waiting would close its stdin, which ends vLLM.
        let stdin = child.stdin.take();
        let ended = tokio::select! {
            status = child.wait() => Ended::ByItself(status),
            () = hangs(is_away, self.0.hangs_after) => Ended::Hanging,
            () = ending.cancelled() => Ended::Told,
        };
        match ended {
            Ended::ByItself(status) => Some(describe(status)),
            Ended::Hanging => {
                kill_group(&child);
                let status = child.wait().await;
                let how = describe(status);
                Some(format!("it did not answer and was killed: {how}"))
            }
            Ended::Told => {
                end(child, stdin).await;
                None
            }
        }
    }

    fn start(&self) -> io::Result<Child> {
        let log = File::create(&self.0.log)?;
        let mut command = self.keeper();
        command.stdout(log.try_clone()?).stderr(log);
        command.spawn()
    }

    fn keeper(&self) -> Command {
        let mut command = Command::new("sh");
        command
            .args(["-c", KEEPER, "vllm"])
            .arg(&self.0.python)
            .args(MODULE)
            .args(&self.0.arguments)
            .env("VLLM_API_KEY", &self.0.key)
            .env("VLLM_ALLOW_RUNTIME_LORA_UPDATING", "True")
            .env("VLLM_NO_USAGE_STATS", "1")
            // The model is a folder, so no hub has to be asked.
            .env("HF_HUB_OFFLINE", "1")
            .env_remove("METACLAW_API_KEY")
            // vLLM must not use the engine's thread settings; and without bytecode on disk, each of its three processes
            // compiles all of Python at each start.
            .env_remove("OMP_NUM_THREADS")
            .env_remove("PYTHONDONTWRITEBYTECODE")
            .envs(
                self.0
                    .devices
                    .iter()
                    .map(|gpus| ("CUDA_VISIBLE_DEVICES", gpus)),
            )
            .process_group(0)
            .stdin(Stdio::piped());
        command
    }
}

fn describe(status: io::Result<ExitStatus>) -> String {
    status.map_or_else(|error| error.to_string(), |status| status.to_string())
}

/// Ends it by closing its stdin; kills all of its processes after a while.
async fn end(mut child: Child, stdin: Option<ChildStdin>) {
    drop(stdin);
    if timeout(GRACE, child.wait()).await.is_err() {
        tracing::warn!("vLLM does not end: it is killed");
        kill_group(&child);
    }
}

fn kill_group(child: &Child) {
    if let Some(group) = child.id().and_then(|id| Pid::from_raw(id.cast_signed())) {
        // This fails only if it has ended meanwhile.
        let _ = kill_process_group(group, Signal::KILL);
    }
}

/// Resolves when a server that had answered has been silent for this long. A server that was never ready may still be
/// loading its model.
async fn hangs(is_away: impl Fn() -> bool, after: Duration) {
    let (mut has_answered, mut away_since) = (false, None);
    loop {
        tokio::time::sleep(after / 10).await;
        if !is_away() {
            (has_answered, away_since) = (true, None);
        } else if has_answered {
            let since = *away_since.get_or_insert_with(Instant::now);
            if since.elapsed() >= after {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        path::Path,
        sync::atomic::{AtomicUsize, Ordering},
    };

    use super::*;

    fn process(folder: &Path, script: &str) -> Process {
        let program = folder.join("python");
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        fs::set_permissions(&program, executable).unwrap();
        Process(ProcessConfig {
            python: program,
            arguments: vec!["--port=9".to_owned()],
            key: "secret-of-this-run".to_owned(),
            devices: None,
            log: folder.join("vllm.log"),
            hangs_after: Duration::from_millis(100),
        })
    }

    #[test]
    fn python_may_keep_its_bytecode_and_vllm_has_all_cores() {
        let dir = tempfile::tempdir().unwrap();
        let keeper = process(dir.path(), "exit 0").keeper();
        for name in ["PYTHONDONTWRITEBYTECODE", "OMP_NUM_THREADS"] {
            let mut set = keeper.as_std().get_envs();
            assert!(
                set.any(|variable| variable == (name.as_ref(), None)),
                "{name}"
            );
        }
    }

    async fn logged(folder: &Path, text: &str) -> String {
        let wait = async {
            loop {
                let log = fs::read_to_string(folder.join("vllm.log")).unwrap_or_default();
                if log.contains(text) {
                    return log;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let found = timeout(Duration::from_secs(20), wait).await;
        found.expect("it says so in time")
    }

    #[tokio::test]
    async fn it_runs_until_it_is_told_to_end_and_is_started_again_when_it_ends_by_itself() {
        let dir = tempfile::tempdir().unwrap();
        let (folder, ending) = (dir.path(), CancellationToken::new());
        let script = "cd \"$(dirname \"$0\")\"; echo x >> starts; echo \"$* $VLLM_API_KEY\"\n\
            [ $(wc -l < starts) = 1 ] && exit 1\n\
            trap 'echo told; exit 0' TERM; echo up; while :; do sleep 0.05; done";
        let running =
            tokio::task::JoinSet::from_iter(
                [process(folder, script).run(|| false, ending.clone())],
            );
        let log = logged(folder, "up").await;
        assert!(
            log.contains("-m vllm.entrypoints.openai.api_server --port=9 secret-of-this-run"),
            "{log}"
        );
        assert_eq!(fs::read_to_string(folder.join("starts")).unwrap(), "x\nx\n");
        ending.cancel();
        running.join_all().await;
        assert!(logged(folder, "told").await.contains("up"));
    }

    #[tokio::test]
    async fn one_that_runs_and_does_not_answer_any_more_is_started_again() {
        let dir = tempfile::tempdir().unwrap();
        let (folder, ending) = (dir.path(), CancellationToken::new());
        let script = "cd \"$(dirname \"$0\")\"; echo x >> starts\n\
            [ $(wc -l < starts) = 1 ] && trap '' TERM\n\
            echo \"life $(wc -l < starts)\"; while :; do sleep 0.05; done";
        let n_looks = AtomicUsize::new(0);
        // The first process answers once, the second never, because it may be loading its model.
        let is_away = move || n_looks.fetch_add(1, Ordering::Relaxed) > 0;
        let running =
            tokio::task::JoinSet::from_iter([process(folder, script).run(is_away, ending.clone())]);
        logged(folder, "life 2").await;
        ending.cancel();
        running.join_all().await;
        assert_eq!(fs::read_to_string(folder.join("starts")).unwrap(), "x\nx\n");
    }
}
