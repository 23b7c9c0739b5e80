//! A training server's own calls: runs that make adapters, chats, and what was sampled for them.

use std::collections::BTreeMap;

use metaclaw_tests::{client::Client, trainer::Trainer};
use metaclaw_turns::Tokens;
use serde_json::{Value, json};

/// Ids of a step's datum.
const N_IDS: usize = 24;
/// They are drawn from here on, and below the size of any vocabulary.
const FIRST_ID: u64 = 300;
const IDS: u64 = 4_000;

/// A training server, asked by its own API.
#[derive(Debug, Clone)]
pub(super) struct Api(Client, Client);

/// Why there is no whole reply.
#[derive(Debug, Clone)]
pub(super) enum Failed {
    /// An answer that is no success.
    Status(u16, Value),
    /// A stream that ended before its end, or with an error.
    Cut(String),
}

/// A reply that has begun.
#[derive(Debug)]
pub(super) struct Streaming {
    answer: reqwest::Response,
    text: String,
}

// === impl Api ===

impl Api {
    pub(super) fn of(trainer: &Trainer) -> Self {
        Self(
            Client::new(format!("{}/v1", trainer.url)),
            Client::new(&trainer.url),
        )
    }

    /// What a POST answers.
    pub(super) async fn said(&self, path: &str, body: &Value) -> (u16, Value) {
        let answer = self.0.post(path, body).send().await.unwrap();
        let status = answer.status().as_u16();
        let text = answer.text().await.unwrap();
        (status, serde_json::from_str(&text).unwrap_or(json!(text)))
    }

    /// A POST that must succeed.
    pub(super) async fn ok(&self, path: &str, body: Value) -> Value {
        let (status, answer) = self.said(path, &body).await;
        assert_eq!(status, 200, "{path}: {answer}");
        answer
    }

    /// The same of a route that is not below `/v1`.
    pub(super) async fn beside(&self, path: &str, body: Value) -> Value {
        let answer = self.1.post(path, &body).send().await.unwrap();
        answer.json().await.unwrap()
    }

    /// How vLLM is, by the training server's word.
    pub(super) async fn inference(&self) -> Value {
        self.0.get_json("/health").await.unwrap()["inference"].take()
    }

    pub(super) async fn run(&self, rank: u32) -> String {
        let run = self
            .ok("/lora/create", json!({"rank": rank, "seed": 3}))
            .await;
        run["session_id"].as_str().expect("a run").to_owned()
    }

    /// A step on ids that depend on `seed`.
    pub(super) async fn learn(&self, run: &str, seed: u64) {
        let mut state = seed;
        let draw = || metaclaw_tests::questions::split_mix(&mut state) % IDS + FIRST_ID;
        let ids: Vec<u64> = std::iter::repeat_with(draw).take(N_IDS).collect();
        self.learn_ids(run, &ids[..1], &ids[1..]).await;
    }

    /// A step on what follows a prompt.
    pub(super) async fn learn_ids(&self, run: &str, prompt: &[u64], reply: &[u64]) {
        let all = [prompt, reply].concat();
        let weights = [vec![0.0; prompt.len() - 1], vec![1.0; reply.len()]].concat();
        let (inputs, targets) = (&all[..all.len() - 1], &all[1..]);
        let datum =
            json!({"model_input_tokens": inputs, "target_tokens": targets, "weights": weights});
        let pass = json!({"session_id": run, "loss_fn": "cross_entropy", "datums": [datum]});
        self.ok("/train/forward_backward", pass).await;
        let step = json!({"session_id": run, "learning_rate": 0.002});
        self.ok("/train/optim_step", step).await;
    }

    /// The run as it is, as a checkpoint and an adapter of this name.
    pub(super) async fn save(&self, run: &str, name: &str) {
        let checkpoint = json!({"session_id": run, "name": name, "manifest": {}});
        self.ok("/checkpoint/save", checkpoint).await;
        self.ok("/weights/save", json!({"session_id": run, "name": name}))
            .await;
    }

    /// Has an adapter loaded in vLLM.
    pub(super) async fn load(&self, name: &str) -> (u16, Value) {
        self.said("/load_lora_adapter", &json!({"lora_name": name}))
            .await
    }

    /// Has it unloaded there.
    pub(super) async fn unload(&self, name: &str) {
        self.ok("/unload_lora_adapter", json!({"lora_name": name}))
            .await;
    }

    /// Begins a reply of so many tokens, and waits until its first has come.
    pub(super) async fn begin(
        &self,
        model: &str,
        text: &str,
        max_tokens: u32,
    ) -> Result<Streaming, Failed> {
        let body = json!({
            "model": model, "stream": true, "max_tokens": max_tokens, "ignore_eos": true, "temperature": 1,
            "messages": [{"role": "user", "content": text}],
        });
        let sent = self.0.post("/chat/completions", &body).send().await;
        let answer = sent.map_err(|error| Failed::Cut(error.to_string()))?;
        if !answer.status().is_success() {
            let status = answer.status().as_u16();
            let text = answer.text().await.unwrap_or_default();
            let said = serde_json::from_str(&text).unwrap_or(json!(text));
            return Err(Failed::Status(status, said));
        }
        let mut begun = Streaming {
            answer,
            text: String::new(),
        };
        while !begun.text.contains("\"content\":\"") && begun.more().await? {}
        Ok(begun)
    }

    /// A whole reply, and what was sampled for it.
    pub(super) async fn chat(
        &self,
        model: &str,
        text: &str,
        max_tokens: u32,
    ) -> Result<Tokens, Failed> {
        let id = self.begin(model, text, max_tokens).await?.end().await?;
        Ok(self.sampled(&id).await)
    }

    /// What was sampled for a reply.
    pub(super) async fn sampled(&self, id: &str) -> Tokens {
        let said = self.0.get_json(&format!("/sampled/{id}")).await;
        serde_json::from_value(said.unwrap()).expect("ids and log-probabilities")
    }

    /// The largest differences, in nats, between the log-probabilities that vLLM gave and the engine's of the same ids, by adapter.
    pub(super) async fn rescored(
        &self,
        of: &BTreeMap<Option<String>, Vec<Tokens>>,
    ) -> BTreeMap<Option<String>, f64> {
        let mut largest = BTreeMap::new();
        for (adapter, turns) in of {
            let run = self.run(32).await;
            if let Some(adapter) = adapter {
                let load = json!({"session_id": run, "path": adapter});
                let loaded = self.ok("/checkpoint/load", load).await;
                assert_eq!(loaded["status"], "ok", "{loaded}");
            }
            let most = self.difference(&run, adapter.is_some(), turns).await;
            self.ok("/lora/close", json!({"session_id": run})).await;
            largest.insert(adapter.clone(), most);
        }
        largest
    }

    async fn difference(&self, run: &str, has_adapter: bool, turns: &[Tokens]) -> f64 {
        let datums: Vec<Value> = turns.iter().map(datum).collect();
        let forward = json!({"session_id": run, "datums": datums, "adapter": has_adapter});
        let found = self.ok("/train/forward", forward).await;
        let mut most = 0_f64;
        for (tokens, scored) in turns.iter().zip(found["logprobs"].as_array().unwrap()) {
            let scored = scored.as_array().expect("log-probabilities");
            let scored = &scored[tokens.prompt_ids.len() - 1..];
            assert_eq!(scored.len(), tokens.logprobs.len());
            for (one, other) in scored.iter().zip(&tokens.logprobs) {
                let difference = one.as_f64().expect("a number") - f64::from(*other);
                most = most.max(difference.abs());
            }
        }
        most
    }
}

/// What has a reply's ids scored.
fn datum(tokens: &Tokens) -> Value {
    let all = [&tokens.prompt_ids[..], &tokens.ids].concat();
    let (inputs, targets) = (&all[..all.len() - 1], &all[1..]);
    json!({"model_input_tokens": inputs, "target_tokens": targets, "weights": vec![1.0; inputs.len()]})
}

// === impl Failed ===

impl Failed {
    /// For whoever reads why a test failed.
    pub(super) fn said(&self) -> String {
        match self {
            Self::Status(status, said) => format!("{status}: {said}"),
            Self::Cut(text) => format!("cut: {text}"),
        }
    }
}

// === impl Streaming ===

impl Streaming {
    /// Reads some more of it; whether there may be more.
    async fn more(&mut self) -> Result<bool, Failed> {
        match self.answer.chunk().await {
            Ok(Some(bytes)) => {
                self.text += &String::from_utf8_lossy(&bytes);
                Ok(true)
            }
            Ok(None) => Ok(false),
            Err(_) => Err(Failed::Cut(self.text.clone())),
        }
    }

    /// Reads it to its end; the reply's id.
    pub(super) async fn end(mut self) -> Result<String, Failed> {
        while self.more().await? {}
        if !self.text.contains("data: [DONE]") || self.text.contains("\"error\"") {
            return Err(Failed::Cut(self.text));
        }
        let first = self.text.split_once("\"id\":\"").expect("an id").1;
        Ok(first.split('"').next().unwrap_or_default().to_owned())
    }
}
