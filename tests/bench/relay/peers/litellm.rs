//! LiteLLM's proxy with one model of the OpenAI kind, one worker per CPU.

use std::{net::SocketAddr, path::Path, thread};

use anyhow::Result;
use tokio::process::Command;

use super::program::{Program, free_address};

pub async fn start(litellm: &Path, upstream: SocketAddr) -> Result<Program> {
    let address = free_address().await?;
    let folder = tempfile::tempdir()?;
    let config = folder.path().join("config.yaml");
    std::fs::write(&config, settings(upstream))?;
    let n_workers = thread::available_parallelism().map_or(1, usize::from);
    let mut command = Command::new(litellm);
    command
        .arg("--config")
        .arg(&config)
        .args(["--host", "127.0.0.1", "--port", &address.port().to_string()])
        .args([
            "--num_workers",
            &n_workers.to_string(),
            "--telemetry",
            "False",
        ])
        .env("LITELLM_LOG", "ERROR")
        // Without a key of its own, it asks callers for none, like the others.
        .env(
            "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY",
            "true",
        )
        // It contains a price list, and downloading a newer one must not be measured.
        .env("LITELLM_LOCAL_MODEL_COST_MAP", "True");
    Program::run(command, address, folder).await
}

fn settings(upstream: SocketAddr) -> String {
    format!(
        "model_list:
  - model_name: mock-model
    litellm_params:
      model: openai/mock-model
      api_base: http://{upstream}/v1
      api_key: sk-bench
"
    )
}
