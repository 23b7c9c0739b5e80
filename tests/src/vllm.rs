//! The real vLLM on a CPU, as somebody starts it beside the training server.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use serde_json::Value;
use tokio::process::{Child, Command};

use crate::wait::until;

/// On two cores that others use as well.
pub const STARTS_WITHIN: Duration = Duration::from_secs(400);
/// Tokens of prompt and reply.
pub const CONTEXT: u32 = 2_048;

/// What it is started with on a CPU besides what tells where it is: float32, so that a batch does not change what a request is
/// answered.
pub const FLAGS: [&str; 5] = [
    "--dtype",
    "float32",
    "--max-model-len",
    "2048",
    "--enforce-eager",
];

/// A running server; killed when dropped.
#[derive(Debug)]
pub struct Vllm {
    child: Child,
    /// `http://127.0.0.1:PORT`.
    pub url: String,
    log: PathBuf,
}

/// Variables of a vLLM in tests, wherever it is started: no compiler, one of the cores, 1 GiB of keys and values, its files in `folder`.
pub fn environment(folder: &Path) -> Vec<(&'static str, String)> {
    let place = |name: &str| folder.join(name).to_string_lossy().into_owned();
    vec![
        ("TORCHDYNAMO_DISABLE", "1".to_owned()),
        ("VLLM_CPU_KVCACHE_SPACE", "1".to_owned()),
        ("VLLM_CPU_OMP_THREADS_BIND", "1".to_owned()),
        ("VLLM_CACHE_ROOT", place("cache")),
        ("VLLM_CONFIG_ROOT", place("config")),
    ]
}

// === impl Vllm ===

impl Vllm {
    /// Starts one that serves the model in `model`, a folder in Hugging Face form, on a port that was free a moment ago. Adapters up
    /// to rank 16 may be loaded; four stay in memory. Does not wait.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start_on(port: u16, python: &Path, model: &Path, folder: &Path) -> Self {
        let log = folder.join("vllm.log");
        let output = File::create(&log).expect("a log");
        let mut command = Command::new(python);
        command
            .args(["-m", "vllm.entrypoints.openai.api_server", "--model"])
            .arg(model)
            .args(["--served-model-name", "smol", "--host", "127.0.0.1"])
            .arg(format!("--port={port}"))
            .args(FLAGS)
            .args(["--enable-lora", "--max-lora-rank", "16", "--max-loras", "2"])
            .args(["--max-cpu-loras", "4", "--enable-prompt-tokens-details"])
            .envs(environment(folder))
            .env("VLLM_ALLOW_RUNTIME_LORA_UPDATING", "True")
            .env("VLLM_NO_USAGE_STATS", "1")
            .env("HF_HUB_OFFLINE", "1")
            .env_remove("PYTHONDONTWRITEBYTECODE")
            .env_remove("OMP_NUM_THREADS")
            .stdin(Stdio::null())
            .stdout(output.try_clone().expect("a log"))
            .stderr(output)
            .kill_on_drop(true);
        Self {
            child: command.spawn().expect("vLLM starts"),
            url: format!("http://127.0.0.1:{port}"),
            log,
        }
    }

    /// Waits until it answers.
    ///
    /// # Panics
    /// When it does not in time.
    pub async fn is_up(&self) {
        let health = format!("{}/health", self.url);
        let answers = async || is_ok(&health).await;
        let waited = until(STARTS_WITHIN, answers).await;
        waited.unwrap_or_else(|error| panic!("vLLM: {error}: {}", self.said()));
    }

    /// The adapters that it has: the name and the folder of each.
    ///
    /// # Panics
    /// When it does not answer.
    pub async fn adapters(&self) -> Vec<(String, PathBuf)> {
        let answer = get(&format!("{}/v1/models", self.url)).await;
        let list: Value = answer.expect("it answers").json().await.expect("JSON");
        let models = list["data"].as_array().expect("a list").iter();
        let adapters = models.filter(|it| !it["parent"].is_null());
        let text = |it: &Value| it.as_str().expect("a text").to_owned();
        adapters
            .map(|it| (text(&it["id"]), PathBuf::from(text(&it["root"]))))
            .collect()
    }

    /// The end of its output.
    pub fn said(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    /// Has it end by itself.
    ///
    /// # Panics
    /// When it does not run.
    pub async fn stop(mut self) {
        let pid = self.child.id().expect("it runs");
        crate::home::signal(pid, rustix::process::Signal::INT).expect("it runs");
        self.child.wait().await.expect("it ends");
    }
}

async fn is_ok(url: &str) -> bool {
    let answer = get(url).await;
    answer.is_ok_and(|answer| answer.status().is_success())
}

async fn get(url: &str) -> reqwest::Result<reqwest::Response> {
    // Another test may have been first.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().tls_certs_only([]).no_proxy();
    client.build()?.get(url).send().await
}
