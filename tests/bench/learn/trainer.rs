//! The training server of all runs, and what is asked of it beside the chat.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use metaclaw_tests::{
    bench::median,
    client::Client,
    trainer::{Start, Trainer as Process},
};
use reqwest::StatusCode;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::sync::Mutex;

/// What every question is asked with, in sessions and in tests.
pub const MAX_TOKENS: u32 = 128;
pub const TEMPERATURE: f64 = 0.7;
/// The base model's name at the server.
pub const BASE: &str = "base";

const LOOK_EVERY: Duration = Duration::from_millis(500);
/// A server with no room right now has some later.
const ROOM_WITHIN: Duration = Duration::from_secs(600);
/// Ids of a reply that are scored.
const SCORED: usize = 64;
/// Pairs of one forward call, of under 100 tokens each: chats and steps come in between.
const AT_ONCE: usize = 32;
/// `--keep`: checkpoints of each agent that stay. What serves is among them while it is measured.
const FLAGS: [&str; 2] = ["--keep=8", "--max-queue=2000"];

/// A server of this bench; ends when dropped.
#[derive(Debug)]
pub struct Trainer {
    /// The model that it trains.
    pub model: PathBuf,
    process: Process,
    client: Client,
    /// Of the lowest rank: a forward pass is of a run, even with its adapter off.
    base_run: Mutex<Option<String>>,
    /// One adapter is loaded to be scored at a time: runs are few.
    scoring: Mutex<()>,
    /// What the server calls an adapter that the learner calls by another name.
    names: Mutex<HashMap<String, String>>,
}

/// A checkpoint at the server.
struct Saved {
    /// As the server calls it.
    name: String,
    /// As the learner does.
    adapter: String,
    /// What the learner says of it.
    manifest: Value,
}

/// A reply with its ids, the one that ends it among them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    pub text: String,
    /// Whether it ended by itself.
    pub ended: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ids: Vec<u32>,
}

/// How likely the tokens of a reply are: log-probabilities in nats.
#[derive(Debug, Clone, Copy, Default)]
pub struct Likelihood {
    pub mean: f64,
    pub median: f64,
}

/// A prompt and the reply to it, to be scored.
pub type Pair<'a> = (Vec<u32>, &'a [u32]); // pair: prompt and reply

// === impl Trainer ===

impl Trainer {
    /// Starts one of `model` with its checkpoints in `folder`, and with those that are there.
    pub async fn start(folder: &Path, model: PathBuf) -> Self {
        let start = Start {
            model: Some(model.clone()),
            checkpoints: Some(folder.join("checkpoints")),
            flags: FLAGS.map(str::to_owned).to_vec(),
            log: Some(folder.join("trainer.log")),
            ..Start::default()
        };
        let process = Process::start(&start).await;
        Self {
            client: Client::new(&process.url),
            model,
            process,
            base_run: Mutex::default(),
            scoring: Mutex::default(),
            names: Mutex::default(),
        }
    }

    pub fn url(&self) -> &str {
        &self.process.url
    }

    /// The ids of a question, up to where the reply begins.
    pub async fn prompt(&self, question: &str) -> Result<Vec<u32>> {
        self.tokenize(&json!({"messages": [{"role": "user", "content": question}]}))
            .await
    }

    /// The ids of a text.
    pub async fn ids(&self, text: &str) -> Result<Vec<u32>> {
        self.tokenize(&json!({ "prompt": text })).await
    }

    /// The reply of `model` (an adapter, or [`BASE`]) to a question.
    pub async fn ask(&self, model: &str, question: &str, seed: u64) -> Result<Reply> {
        let body = json!({
            "model": self.name_of(model).await?, "messages": [{"role": "user", "content": question}],
            "max_tokens": MAX_TOKENS, "temperature": TEMPERATURE, "seed": seed,
        });
        self.reply(&self.post("/v1/chat/completions", &body).await?)
            .await
    }

    /// A reply, of this server or the product's, with its ids. Where the product samples by Tinker's API, it has their
    /// record; then they are those of the text, which are nearly always the same.
    pub async fn reply(&self, completion: &Value) -> Result<Reply> {
        let choice = &completion["choices"][0];
        let text = choice["message"]["content"].as_str().unwrap_or_default();
        let id = completion["id"].as_str().context("a reply without an id")?;
        let sampled = self.client.get(&format!("/v1/sampled/{id}")).send().await?;
        let ids = if sampled.status() == StatusCode::NOT_FOUND {
            self.ids(text).await?
        } else {
            let sampled: Value = sampled.error_for_status()?.json().await?;
            read(&sampled["ids"])?
        };
        Ok(Reply {
            text: text.to_owned(),
            ended: choice["finish_reason"] == "stop",
            ids,
        })
    }

    /// How likely the first ids of each reply are, by the base model, or by an adapter that was saved with a checkpoint of
    /// its name.
    pub async fn score(
        &self,
        adapter: Option<&str>,
        pairs: &[Pair<'_>],
    ) -> Result<Vec<Likelihood>> {
        let mut means = Vec::with_capacity(pairs.len());
        let Some(adapter) = adapter else {
            for call in pairs.chunks(AT_ONCE) {
                means.extend(self.by_base(call).await?);
            }
            return Ok(means);
        };
        let _one_at_a_time = self.scoring.lock().await;
        let run = self.load(adapter).await?;
        for call in pairs.chunks(AT_ONCE) {
            means.extend(self.forward(&run, true, call).await?);
        }
        self.post("/v1/lora/close", &json!({ "session_id": run }))
            .await?;
        Ok(means)
    }

    /// The checkpoints of an agent, by the names of its adapters.
    pub async fn made_by(&self, agent: &str) -> Result<Vec<String>> {
        let own = self.saved().await?.into_iter();
        let own = own.filter(|saved| saved.manifest["agent"] == agent);
        Ok(own.map(|saved| saved.adapter).collect())
    }

    async fn saved(&self) -> Result<Vec<Saved>> {
        let all = self.client.get_json("/v1/checkpoints").await?;
        let all = all["checkpoints"].as_array().into_iter().flatten();
        Ok(all.filter_map(Saved::read).collect())
    }

    /// The server's name of an adapter: where the learner speaks Tinker's API it begins with the run it is of.
    async fn name_of(&self, adapter: &str) -> Result<String> {
        if let Some(known) = self.names.lock().await.get(adapter) {
            return Ok(known.clone());
        }
        let all = self.client.get_json("/v1/adapters").await?;
        let all = all["adapters"].as_array().into_iter().flatten();
        let mut names = all.filter_map(|listed| listed["name"].as_str());
        // The base model is no adapter, and one of the REST API has one name.
        let name = names
            .find(|name| of_tinker(name) == Some(adapter))
            .unwrap_or(adapter);
        let mut known = self.names.lock().await;
        known.insert(adapter.to_owned(), name.to_owned());
        Ok(name.to_owned())
    }

    async fn tokenize(&self, body: &Value) -> Result<Vec<u32>> {
        read(&self.post("/tokenize", body).await?["tokens"])
    }

    /// A run that holds what a checkpoint does.
    async fn load(&self, adapter: &str) -> Result<String> {
        let mut all = self.saved().await?.into_iter();
        let found = all.find(|saved| saved.adapter == adapter);
        let found = found.with_context(|| format!("{adapter} has no checkpoint"))?;
        let shape = &found.manifest["shape"];
        let create = json!({"rank": shape["rank"], "lora_alpha": shape["alpha"], "targets": shape["targets"]});
        let run = self.create(&create).await?;
        let load = json!({"session_id": run, "path": found.name});
        self.post("/v1/checkpoint/load", &load).await?;
        Ok(run)
    }

    async fn create(&self, shape: &Value) -> Result<String> {
        read(&self.post("/v1/lora/create", shape).await?["session_id"])
    }

    /// The server closes the run that was used least recently: one that is gone is made again.
    async fn by_base(&self, pairs: &[Pair<'_>]) -> Result<Vec<Likelihood>> {
        let mut run = self.base_run.lock().await;
        if let Some(id) = &*run
            && let Ok(means) = self.forward(id, false, pairs).await
        {
            return Ok(means);
        }
        let id = run.insert(self.create(&json!({"rank": 1})).await?);
        self.forward(id, false, pairs).await
    }

    async fn forward(
        &self,
        run: &str,
        adapter: bool,
        pairs: &[Pair<'_>],
    ) -> Result<Vec<Likelihood>> {
        let (mut datums, mut positions) = (Vec::new(), Vec::new());
        for (prompt, reply) in pairs {
            let all = [prompt, &reply[..reply.len().min(SCORED)]].concat();
            let n = all.len() - 1;
            datums.push(json!({"model_input_tokens": all[..n], "target_tokens": all[1..]}));
            positions.push((prompt.len() - 1..n).collect::<Vec<_>>());
        }
        let body = json!({"session_id": run, "datums": datums, "adapter": adapter, "positions": positions});
        let answer = self.post("/v1/train/forward", &body).await?;
        let logprobs: Vec<Vec<f64>> = read(&answer["logprobs"])?;
        let (n, n_asked) = (logprobs.len(), pairs.len());
        ensure!(n == n_asked, "{n} answers to {n_asked} sequences");
        let likelihood = |of: &Vec<f64>| Likelihood {
            mean: of.iter().sum::<f64>() / of.len().max(1) as f64,
            median: median(of.iter().copied()),
        };
        Ok(logprobs.iter().map(likelihood).collect())
    }

    /// A POST; one for which there is no room is tried again.
    async fn post(&self, path: &str, body: &Value) -> Result<Value> {
        let began = Instant::now();
        loop {
            let response = self.client.post(path, body).send().await?;
            let status = response.status();
            let text = response.text().await?;
            if status.is_success() {
                return serde_json::from_str(&text).with_context(|| format!("POST {path}: {text}"));
            }
            let is_full = [429, 503].contains(&status.as_u16());
            ensure!(
                is_full && began.elapsed() < ROOM_WITHIN,
                "POST {path}: {status}: {text}"
            );
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

fn read<T: DeserializeOwned>(value: &Value) -> Result<T> {
    Ok(T::deserialize(value)?)
}

// === impl Saved ===

impl Saved {
    fn read(listed: &Value) -> Option<Self> {
        let name = listed["name"].as_str()?;
        let manifest = &listed["manifest"];
        let by_tinker = &manifest["tinker"]["user_metadata"]["metaclaw_manifest"];
        let (adapter, manifest) = match by_tinker.as_str() {
            // The mark of the manifest is behind the name.
            Some(text) => (
                of_tinker(name)?.rsplit_once("_m")?.0,
                serde_json::from_str(text).ok()?,
            ),
            None => (name, manifest.clone()),
        };
        Some(Self {
            name: name.to_owned(),
            adapter: adapter.to_owned(),
            manifest,
        })
    }
}

/// The learner's part of what a path of Tinker's is called on the server's disk: `sHEX.train.N.NAME`.
fn of_tinker(name: &str) -> Option<&str> {
    let (_, behind) = name.split_once(".train.")?;
    Some(behind.split_once('.')?.1)
}
