//! A service with Tinker's API that answers chats by a script, in place of a model that can call tools and think.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use metaclaw_test_kit::{Reply, Request, Server};
use metaclaw_trainer_api::tinker::{
    SampleOutput, Sequence,
    json::{JsonSample, SampleCall},
};
use metaclaw_trainer_text::tokenizer::ChatTokenizer;
use serde_json::json;

/// The only model that it offers.
pub const MODEL: &str = "org/scripted";
/// The longest sequence of that model.
const CONTEXT: u32 = 128_000;

/// Returns the model's reply to a prompt.
type Script = Box<dyn Fn(&str) -> String + Send + Sync>;

pub struct Tinker {
    /// `http://127.0.0.1:PORT`.
    pub url: String,
    _server: Server,
}

struct Shared {
    tokenizer: ChatTokenizer,
    script: Script,
    n: AtomicU64,
    results: Mutex<BTreeMap<String, JsonSample>>,
}

// === impl Tinker ===

impl Tinker {
    /// Starts one. Ids are those of the tokenizer in this folder.
    pub fn scripted(
        tokenizer: &Path,
        script: impl Fn(&str) -> String + Send + Sync + 'static,
    ) -> Self {
        let shared = Shared {
            tokenizer: ChatTokenizer::load(tokenizer).expect("a tokenizer"),
            script: Box::new(script),
            n: AtomicU64::new(0),
            results: Mutex::default(),
        };
        let server = Server::new(move |request| shared.answer(request));
        Self {
            url: server.url(),
            _server: server,
        }
    }
}

// === impl Shared ===

impl Shared {
    fn next(&self) -> u64 {
        self.n.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns a reply to a prompt: the script's text and the model's end token.
    fn reply(&self, prompt: &[u32]) -> Sequence {
        let said = (self.script)(&self.tokenizer.decode_special(prompt));
        let mut tokens = self.tokenizer.encode(&said).expect("ids");
        tokens.extend(self.tokenizer.end_id());
        Sequence {
            logprobs: Some(vec![-0.5; tokens.len()]),
            tokens,
            ..Sequence::default()
        }
    }

    fn answer(&self, request: &Request) -> Reply {
        let asked = request.json();
        Reply::json(match request.path().trim_start_matches("/api/v1/") {
            "client/config" | "session_heartbeat" => json!({}),
            "get_server_capabilities" => json!({"supported_models": [
                {"model_name": MODEL, "trainable": true, "max_context_length": CONTEXT},
            ]}),
            "create_session" => {
                json!({"type": "create_session", "session_id": format!("sess-{}", self.next())})
            }
            "create_sampling_session" => json!({"type": "create_sampling_session",
                "sampling_session_id": format!("sampler-{}", self.next())}),
            "checkpoints" => {
                json!({"checkpoints": [], "cursor": {"offset": 0, "limit": 100, "total_count": 0}})
            }
            "asample" => {
                let sampled = serde_json::from_value::<SampleCall>(asked).ok();
                let sampled =
                    sampled.and_then(|it| Some((it.num_samples, it.prompt.into_tokens().ok()?)));
                let Some((n_samples, prompt)) = sampled else {
                    return Reply::status(400, "");
                };
                let output = SampleOutput {
                    sequences: vec![self.reply(&prompt); n_samples as usize],
                    ..SampleOutput::default()
                };
                let id = format!("req-{}", self.next());
                let mut results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
                results.insert(id.clone(), output.to_json(&[]));
                json!({"request_id": id})
            }
            "retrieve_future" => {
                let id = asked["request_id"].as_str().unwrap_or_default();
                let results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
                match results.get(id) {
                    Some(output) => json!(output),
                    None => return Reply::status(404, ""),
                }
            }
            _ => return Reply::status(404, ""),
        })
    }
}
