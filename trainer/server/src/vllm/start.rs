//! Configures vLLM from the flags.

use std::{
    net::{Ipv4Addr, TcpListener},
    path::Path,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, Result};
use metaclaw_engine::engine::Dtype;
use metaclaw_trainer_api::ApiKey;

use super::{
    link::{Link, LinkConfig},
    process::{Process, ProcessConfig},
};
use crate::{args::InferenceServer, host::Host};

/// The folder below the checkpoint folder that vLLM loads from.
const FOLDER: &str = "vllm";
/// The file below the checkpoint folder with vLLM's output.
const LOG: &str = "vllm.log";
/// After a crash of its engine, vLLM's process was seen to wait for ever for its own tasks.
const HANGS_AFTER: Duration = Duration::from_secs(30);
/// The number of adapters that may answer at once; more wait.
const SLOTS: u32 = 4;
/// The number of adapters in memory; more are read from their folders again.
const IN_MEMORY: u32 = 32;

/// Returns the link to vLLM, and its process if it is started here.
///
/// # Errors
/// Returns an error if no port is free, or no client can be built.
pub(crate) fn prepare(
    inference: InferenceServer,
    checkpoint_dir: &Path,
    host: Arc<Host>,
) -> Result<(Link, Option<Process>)> {
    let folder = checkpoint_dir.canonicalize();
    let folder = folder.context("--checkpoint-dir")?.join(FOLDER);
    let (config, process) = match inference {
        InferenceServer::Found { url, key, max_rank } => {
            let config = LinkConfig {
                url,
                key,
                max_rank,
                folder,
            };
            (config, None)
        }
        InferenceServer::Started {
            python,
            arguments,
            max_rank,
            devices,
        } => {
            let port = free_port().context("no port is free for vLLM")?;
            let key = format!("{:032x}", rand::random::<u128>());
            let own = arguments_of(&host, port, max_rank)?;
            let process = ProcessConfig {
                python,
                arguments: own.into_iter().chain(arguments).collect(),
                key: key.clone(),
                devices,
                log: checkpoint_dir.join(LOG),
                hangs_after: HANGS_AFTER,
            };
            let config = LinkConfig {
                url: format!("http://127.0.0.1:{port}"),
                key: Some(ApiKey::new(key)),
                max_rank: Some(max_rank),
                folder,
            };
            (config, Some(Process::new(process)))
        }
    };
    Ok((Link::new(config, http()?, host), process))
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
fn free_port() -> std::io::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(listener.local_addr()?.port())
}

fn arguments_of(host: &Host, port: u16, max_rank: u32) -> Result<Vec<String>> {
    let dtype = host.dtype().context("vLLM is started with a model")?;
    let dtype = match dtype {
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
    Ok(words.map(|word| (*word).to_owned()).collect())
}
