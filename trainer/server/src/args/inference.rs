//! Chooses the server that answers chats: the engine of this process, or vLLM, which is running already or is started
//! here.

use std::path::PathBuf;

use clap::Args;
use metaclaw_trainer_api::ApiKey;

/// The ranks that vLLM can reserve memory for.
const RANKS: [u32; 9] = [1, 8, 16, 32, 64, 128, 256, 320, 512];
const USUAL_RANK: u32 = 32;

/// Flags about who answers chats.
#[derive(Debug, Args)]
#[expect(clippy::struct_field_names, reason = "a flag is called as its field")]
pub(crate) struct InferenceArgs {
    /// Who answers chats: hf or builtin, the engine in this process; vllm, a vLLM server [env: METACLAW_INFERENCE_BACKEND] [default: builtin, or vllm with --inference-url]
    #[arg(long, value_name = "NAME")]
    inference_backend: Option<String>,
    /// A vLLM server that runs already, which finds the checkpoint folder by the same path; its key in METACLAW_INFERENCE_KEY. Without it vLLM is started [env: METACLAW_INFERENCE_URL]
    #[arg(long, value_name = "URL")]
    inference_url: Option<String>,
    /// The Python that starts vLLM [env: METACLAW_INFERENCE_PYTHON] [default: python3]
    #[arg(long, value_name = "PATH")]
    inference_python: Option<PathBuf>,
    /// More flags for the vLLM server that is started, as in "--gpu-memory-utilization 0.5" [env: METACLAW_INFERENCE_ARGS]
    #[arg(long, value_name = "FLAGS", allow_hyphen_values = true)]
    inference_args: Option<String>,
    /// The largest rank of adapters that vLLM takes [env: METACLAW_INFERENCE_MAX_RANK] [default: 32 where vLLM is started]
    #[arg(long, value_name = "N")]
    inference_max_rank: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum InferenceServer {
    /// A server that already runs.
    Found {
        url: String,
        key: Option<ApiKey>,
        max_rank: Option<u32>,
    },
    /// A server that we start.
    Started {
        python: PathBuf,
        arguments: Vec<String>,
        max_rank: u32,
        /// The numbers of the GPUs that it may use, for example `1` or `0,1`; `None` means all.
        devices: Option<String>,
    },
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum InferenceError {
    #[error(
        "inference backend {value:?} is not known: builtin or hf (the engine in this process), or vllm"
    )]
    Backend { value: String },
    /// An address for an engine that has none.
    #[error(
        "--inference-url (METACLAW_INFERENCE_URL) is {url:?}, and the inference backend is {backend}, the engine in this process: set the backend to vllm, or leave the address out"
    )]
    Useless { url: String, backend: String },
    #[error(
        "--inference-url (METACLAW_INFERENCE_URL) is {url:?}: an address as in http://127.0.0.1:8001"
    )]
    Url { url: String },
    /// A rank that vLLM cannot reserve memory for.
    #[error("the largest rank for vLLM is {value:?}: from 1 to 512")]
    Rank { value: String },
}

// === impl InferenceArgs ===

impl InferenceArgs {
    /// Returns the server that answers chats, or `None` for the engine.
    ///
    /// # Errors
    /// Returns [`InferenceError`] with the flag or variable.
    pub(super) fn resolve(
        &self,
        env: &impl Fn(&str) -> Option<String>,
    ) -> Result<Option<InferenceServer>, InferenceError> {
        let url = self.inference_url.clone();
        let url = url.or_else(|| env("METACLAW_INFERENCE_URL"));
        let backend = self.inference_backend.clone();
        let backend = backend.or_else(|| env("METACLAW_INFERENCE_BACKEND"));
        match (backend.as_deref(), url) {
            (None | Some("hf" | "builtin"), None) => Ok(None),
            (Some(backend @ ("hf" | "builtin")), Some(url)) => Err(InferenceError::Useless {
                url,
                backend: backend.to_owned(),
            }),
            (None | Some("vllm"), Some(url)) if !url.starts_with("http://") => {
                Err(InferenceError::Url { url })
            }
            (None | Some("vllm"), Some(url)) => Ok(Some(InferenceServer::Found {
                url,
                key: env("METACLAW_INFERENCE_KEY").map(ApiKey::new),
                max_rank: self.max_rank(env)?,
            })),
            (Some("vllm"), None) => self.started(env).map(Some),
            (Some(other), _) => Err(InferenceError::Backend {
                value: other.to_owned(),
            }),
        }
    }

    fn started(
        &self,
        env: &impl Fn(&str) -> Option<String>,
    ) -> Result<InferenceServer, InferenceError> {
        let python = self.inference_python.clone();
        let python = python.or_else(|| env("METACLAW_INFERENCE_PYTHON").map(PathBuf::from));
        let more = self.inference_args.clone();
        let more = more.or_else(|| env("METACLAW_INFERENCE_ARGS"));
        let words = more.as_deref().unwrap_or_default().split_whitespace();
        let wanted = self.max_rank(env)?.unwrap_or(USUAL_RANK);
        // The check above excludes ranks over the last one.
        let max_rank = RANKS.into_iter().find(|rank| *rank >= wanted);
        Ok(InferenceServer::Started {
            python: python.unwrap_or_else(|| PathBuf::from("python3")),
            arguments: words.map(str::to_owned).collect(),
            max_rank: max_rank.unwrap_or(wanted),
            devices: None,
        })
    }

    fn max_rank(
        &self,
        env: &impl Fn(&str) -> Option<String>,
    ) -> Result<Option<u32>, InferenceError> {
        let given = self.inference_max_rank.map(|rank| rank.to_string());
        let given = given.or_else(|| env("METACLAW_INFERENCE_MAX_RANK"));
        let Some(value) = given else {
            return Ok(None);
        };
        let rank = value.parse().ok().filter(|rank| (1..=512).contains(rank));
        rank.map(Some).ok_or(InferenceError::Rank { value })
    }
}
