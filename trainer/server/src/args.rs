//! Flags and environment variables: those of the fork, and additional ones.

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
};

use clap::{Parser, ValueEnum};
use metaclaw_engine::device::{DeviceError, Devices};
use metaclaw_trainer_api::ApiKey;
use metaclaw_trainer_text::hub;

use self::inference::InferenceArgs;
pub(crate) use self::inference::{InferenceError, InferenceServer};

mod inference;

/// The training server: one model that serves and learns.
///
/// Each flag that the fork's server reads from the environment is read from there too; the flag
/// wins.
#[derive(Debug, Parser)]
#[command(name = "metaclaw-trainer", version)]
pub(crate) struct Args {
    /// The base model: a GGUF file, a Hugging Face directory, or owner/name of one at the Hugging Face hub, which is
    /// fetched; without it the first lora/create says which
    #[arg(long, value_name = "PATH|NAME")]
    pub(crate) model: Option<PathBuf>,
    /// Address to listen on; one that others can reach needs a key
    #[arg(long, default_value = "127.0.0.1")]
    pub(crate) host: IpAddr,
    /// Port; 0 for one of the system's choice [env: METACLAW_PORT] [default: 8000]
    #[arg(long)]
    port: Option<u16>,
    /// Key that callers must send; better by environment, where others cannot see it [env: METACLAW_API_KEY]
    #[arg(long, value_name = "KEY")]
    api_key: Option<String>,
    /// Where adapters and checkpoints are kept [env: METACLAW_CHECKPOINT_DIR] [default: in the cache folder]
    #[arg(long, value_name = "DIR")]
    checkpoint_dir: Option<PathBuf>,
    /// Where converted models are kept [default: $METACLAW_CACHE, else $XDG_CACHE_HOME/metaclaw, else ~/.cache/metaclaw]
    #[arg(long, value_name = "DIR")]
    cache_dir: Option<PathBuf>,
    /// Precision of weights and activations
    #[arg(long, value_enum, default_value_t = DtypeArg::Auto)]
    pub(crate) dtype: DtypeArg,
    /// Keep the base model's matrices rounded: 8 bits a weight and a scale a row
    #[arg(long, value_enum, default_value_t = QuantizationArg::None)]
    pub(crate) quantization: QuantizationArg,
    /// Compute threads [default: OMP_NUM_THREADS, else the physical cores]
    #[arg(long)]
    threads: Option<u16>,
    /// Bytes beside the weights, for keys and values and for training [default: what is free]
    #[arg(long, value_name = "BYTES")]
    pub(crate) memory: Option<usize>,
    /// Bytes of them for the keys and values of all replies, never passed [default: half, at most two contexts or 1 GiB]
    #[arg(long, value_name = "BYTES")]
    pub(crate) kv_budget: Option<usize>,
    /// Requests for text that may wait or run at once; more are answered 429
    #[arg(long, default_value_t = 256)]
    pub(crate) max_queue: u16,
    /// Checkpoints of each line of training that checkpoints/prune leaves at least
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) keep: u16,
    /// Tinker's sessions end that were silent for so many seconds, and give their models back
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) session_idle: u32,
    /// Where training is computed: cpu, a GPU's number, or several as 0,1, which share the layers in order [env: METACLAW_TRAINING_DEVICES] [default: GPU 0 if libtorch sees one, else cpu]
    #[arg(long, value_name = "LIST")]
    training_devices: Option<String>,
    /// Where replies are computed, likewise; other devices than those of training have a copy of the model of their own [env: METACLAW_INFERENCE_DEVICES] [default: GPU 1 if there is one, else as training]
    #[arg(long, value_name = "LIST")]
    inference_devices: Option<String>,
    #[command(flatten)]
    inference: InferenceArgs,
    /// error, warn, info, debug, trace, or a filter of tracing-subscriber
    #[arg(long, default_value = "info")]
    pub(crate) log_level: String,
    /// End when stdin closes, as it does when the parent dies
    #[arg(long)]
    pub(crate) parent_stdin: bool,
}

/// Precision of weights and activations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DtypeArg {
    /// bf16 on GPUs; on a CPU f32, unless bf16 is clearly faster, which is measured once for a model and a machine.
    Auto,
    /// bfloat16: half the memory.
    Bf16,
    /// float16: half the memory; for comparing with what other programs compute in it.
    F16,
    /// float32.
    F32,
}

/// How the base model's matrices are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum QuantizationArg {
    /// In the precision of --dtype.
    None,
    /// 8 bits a weight and a scale a row; a half of bf16's memory, a quarter of f32's.
    Int8,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ArgsError {
    /// The value is not a number.
    #[error("METACLAW_PORT is {value:?}: a port from 0 to 65535")]
    Port { value: String },
    /// An address beyond this machine without a key.
    #[error(
        "--host {host} can be reached by others and no key is set: set METACLAW_API_KEY, or listen on 127.0.0.1"
    )]
    Open { host: IpAddr },
    /// An error in the settings of the server that answers chats.
    #[error(transparent)]
    Inference(#[from] InferenceError),
    /// Devices that do not exist, or an unknown word.
    #[error("{flag} ({name}): {wrong}")]
    Devices {
        flag: &'static str,
        /// The environment variable that has the same setting.
        name: &'static str,
        wrong: DeviceError,
    },
    /// There is no folder for files.
    #[error(
        "there is neither METACLAW_CACHE, XDG_CACHE_HOME nor HOME: give --cache-dir and --checkpoint-dir"
    )]
    NoCache,
}

#[derive(Debug)]
pub(crate) struct Resolved {
    pub(crate) address: SocketAddr,
    pub(crate) key: Option<ApiKey>,
    pub(crate) checkpoint_dir: PathBuf,
    pub(crate) cache_dir: PathBuf,
    /// The cache of `huggingface_hub`.
    pub(crate) hub: Option<PathBuf>,
    /// Compute threads; 0 means one for each core.
    pub(crate) n_threads: u16,
    pub(crate) training: Devices,
    pub(crate) serving: Devices,
    /// Who answers chats in place of the engine.
    pub(crate) inference: Option<InferenceServer>,
}

// === impl Args ===

impl Args {
    /// Takes missing flags from the environment `env`, and checks all values.
    ///
    /// # Errors
    /// Returns [`ArgsError`] with the flag or variable, its value and what is allowed.
    pub(crate) fn resolve(
        &self,
        env: impl Fn(&str) -> Option<String>,
    ) -> Result<Resolved, ArgsError> {
        let env = |name: &str| env(name).filter(|value| !value.is_empty());
        let port = match (self.port, env("METACLAW_PORT")) {
            (Some(port), _) => port,
            (None, Some(value)) => value.parse().map_err(|_| ArgsError::Port { value })?,
            (None, None) => 8000,
        };
        let key = self.api_key.clone().or_else(|| env("METACLAW_API_KEY"));
        if key.is_none() && !self.host.is_loopback() {
            return Err(ArgsError::Open { host: self.host });
        }
        let mut inference = self.inference.resolve(&env)?;
        if let Some(InferenceServer::Started { devices, .. }) = &mut inference {
            let given = self.inference_devices.clone();
            let given = given.or_else(|| env("METACLAW_INFERENCE_DEVICES"));
            *devices = given.filter(|given| given != "cpu");
        }
        let [training, serving] = self.devices(&env, inference.is_some())?;
        let cache_dir = self.cache_dir.clone().or_else(|| cache_folder(&env));
        let checkpoint_dir = self
            .checkpoint_dir
            .clone()
            .or_else(|| env("METACLAW_CHECKPOINT_DIR").map(PathBuf::from))
            .or_else(|| Some(cache_dir.as_ref()?.join("checkpoints")));
        Ok(Resolved {
            address: SocketAddr::new(self.host, port),
            key: key.map(ApiKey::new),
            checkpoint_dir: checkpoint_dir.ok_or(ArgsError::NoCache)?,
            cache_dir: cache_dir.ok_or(ArgsError::NoCache)?,
            hub: hub::cache_dir(&env),
            n_threads: self.n_threads(&env),
            training,
            serving,
            inference,
        })
    }

    pub(crate) fn names_devices(&self, env: &impl Fn(&str) -> Option<String>) -> bool {
        let given = self.training_devices.clone();
        let given = given.or_else(|| env("METACLAW_TRAINING_DEVICES"));
        given.is_some_and(|text| !text.is_empty())
    }

    /// A value that OpenMP itself would not read (a list, for nested regions) is left to the engine.
    fn n_threads(&self, env: &impl Fn(&str) -> Option<String>) -> u16 {
        let from_env = || env("OMP_NUM_THREADS")?.trim().parse().ok();
        self.threads.or_else(from_env).unwrap_or(0)
    }

    /// The devices of training, and of the engine's replies. If vLLM answers chats, the devices of replies are vLLM's.
    fn devices(
        &self,
        env: &impl Fn(&str) -> Option<String>,
        is_vllm: bool,
    ) -> Result<[Devices; 2], ArgsError> {
        let read = |given: &Option<String>, flag, name, by_default| {
            let Some(text) = given.clone().or_else(|| env(name)) else {
                return Ok(by_default);
            };
            let checked = text
                .parse()
                .and_then(|devices: Devices| devices.check().map(|()| devices));
            checked.map_err(|wrong| ArgsError::Devices { flag, name, wrong })
        };
        let training = read(
            &self.training_devices,
            "--training-devices",
            "METACLAW_TRAINING_DEVICES",
            Devices::by_default(),
        )?;
        if is_vllm {
            return Ok([training.clone(), training]);
        }
        let serving = read(
            &self.inference_devices,
            "--inference-devices",
            "METACLAW_INFERENCE_DEVICES",
            Devices::beside(&training),
        )?;
        Ok([training, serving])
    }
}

fn cache_folder(env: &impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let ours = env("METACLAW_CACHE").map(PathBuf::from);
    let xdg = || Some(PathBuf::from(env("XDG_CACHE_HOME")?).join("metaclaw"));
    let home = || Some(PathBuf::from(env("HOME")?).join(".cache/metaclaw"));
    ours.or_else(xdg).or_else(home)
}

#[cfg(test)]
mod tests;
