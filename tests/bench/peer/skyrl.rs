//! A SkyRL server: started as its documentation says, killed, and started again.

use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use metaclaw_tests::{client::Client, wait::until};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;
use tokio::process::{Child, Command};

/// What the server calls the model: a folder where it is started.
pub(crate) const MODEL: &str = "SmolLM2-135M-Instruct";
/// `uv` reads it; the packages are there already.
const PROJECT: &str = "[project]\nname = \"peer\"\nversion = \"0\"\nrequires-python = \">=3.12\"\n\n\
    [project.optional-dependencies]\ntinker = []\njax = []\n";
/// One slot for the base model, one to train in, two for adapters that answer, and one to spare. JAX compiles anew for each
/// shape, so that batches have one size.
const BACKEND: &str = r#"{"max_lora_adapters":5,"max_lora_rank":16,"sample_max_num_sequences":1,"train_micro_batch_size":1}"#;

/// The server, which may run or not.
#[derive(Debug)]
pub(crate) struct SkyRl {
    venv: PathBuf,
    folder: PathBuf,
    port: u16,
    child: Option<Child>,
    /// `http://127.0.0.1:PORT`.
    pub(crate) url: String,
    pub(crate) log: PathBuf,
    pub(crate) model: PathBuf,
}

// === impl SkyRl ===

impl SkyRl {
    /// A folder for it: the model, with numbers in full precision, and the project file.
    pub(crate) fn prepare(venv: &Path, model: &Path, out: &Path) -> Result<Self> {
        let folder = out.join("skyrl").canonicalize().or_else(|_| {
            fs::create_dir_all(out.join("skyrl"))?;
            out.join("skyrl").canonicalize()
        })?;
        fs::write(folder.join("pyproject.toml"), PROJECT)?;
        let place = folder.join(MODEL);
        fs::create_dir_all(&place)?;
        let model = model.canonicalize().context("--model names no folder")?;
        for entry in fs::read_dir(&model)? {
            let file = entry?.path();
            let name = file.file_name().context("a file has a name")?;
            if name == "config.json" {
                let mut config: Value = serde_json::from_slice(&fs::read(&file)?)?;
                config["torch_dtype"] = "float32".into();
                fs::write(place.join(name), config.to_string())?;
            } else {
                std::os::unix::fs::symlink(&file, place.join(name))?;
            }
        }
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        Ok(Self {
            venv: venv.canonicalize().context("--venv names no folder")?,
            log: folder.join("skyrl.log"),
            folder,
            model,
            port,
            child: None,
            url: format!("http://127.0.0.1:{port}"),
        })
    }

    /// Starts it and waits until it answers.
    pub(crate) async fn start(&mut self, within: Duration) -> Result<()> {
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.log)?;
        let bin = self.venv.join("bin");
        let path = std::env::var_os("PATH").unwrap_or_default();
        let paths = [bin.clone()]
            .into_iter()
            .chain(std::env::split_paths(&path));
        let path = std::env::join_paths(paths)?;
        let database = format!("sqlite:///{}/tinker.db", self.folder.display());
        let child = Command::new(bin.join("uv"))
            .args(["run", "--no-sync", "-m", "skyrl.tinker.api"])
            .args(["--base-model", MODEL, "--backend", "jax"])
            .args(["--backend-config", BACKEND, "--host", "127.0.0.1"])
            .args(["--port", &self.port.to_string()])
            .arg("--checkpoints-base")
            .arg(self.folder.join("checkpoints"))
            .args(["--database-url", &database])
            .current_dir(&self.folder)
            .env("PATH", path)
            .env("UV_PROJECT_ENVIRONMENT", &self.venv)
            .env("UV_OFFLINE", "1")
            .env("HF_HUB_OFFLINE", "1")
            .env("JAX_PLATFORMS", "cpu")
            // What it compiled is there after a restart.
            .env("JAX_COMPILATION_CACHE_DIR", self.folder.join("compiled"))
            .env(
                "JAX_PERSISTENT_COMPILATION_CACHE_MIN_COMPILE_TIME_SECS",
                "0",
            )
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            // Its engine is a process of its own below it.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("{} does not start", bin.join("uv").display()))?;
        self.child = Some(child);
        let client = Client::new(&self.url);
        let mut ended = None;
        let answers = async || {
            ended = self.child.as_mut().and_then(|child| child.try_wait().ok()?);
            ended.is_some() || client.get_json("/api/v1/healthz").await.is_ok()
        };
        let waited = until(within, answers).await;
        if let Some(status) = ended {
            bail!("SkyRL ended with {status}: {}", self.log.display());
        }
        waited.with_context(|| format!("SkyRL does not answer: {}", self.log.display()))
    }

    /// `kill -9` of all its processes.
    pub(crate) async fn kill(&mut self) {
        self.signal(Signal::KILL).await;
    }

    /// The same, asked for: it has ended before the next line.
    pub(crate) async fn stop(&mut self) {
        self.signal(Signal::TERM).await;
    }

    async fn signal(&mut self, signal: Signal) {
        let Some(mut child) = self.child.take() else {
            return;
        };
        let pid = child.id().and_then(|pid| Pid::from_raw(pid.cast_signed()));
        if let Some(pid) = pid {
            kill_process_group(pid, signal).ok();
        }
        child.wait().await.ok();
        if let Some(pid) = pid {
            // A process of the group that is still running.
            kill_process_group(pid, Signal::KILL).ok();
        }
    }
}

impl Drop for SkyRl {
    fn drop(&mut self) {
        let pid = self.child.as_ref().and_then(Child::id);
        if let Some(pid) = pid.and_then(|pid| Pid::from_raw(pid.cast_signed())) {
            kill_process_group(pid, Signal::KILL).ok();
        }
    }
}
