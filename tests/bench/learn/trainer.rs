//! The training server of all runs, and what is asked of it beside the chat.

use std::{
    collections::HashMap,
    fs::File,
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use metaclaw_tests::{client::Client, wait::found};
use reqwest::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::{
    process::{Child, Command},
    sync::Mutex,
};

/// What every question is asked with, in sessions and in tests.
pub const MAX_TOKENS: u32 = 128;
pub const TEMPERATURE: f64 = 0.7;

/// A cold start converts the model first.
const READY_WITHIN: Duration = Duration::from_secs(180);
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// A server with no room right now has some later.
const ROOM_WITHIN: Duration = Duration::from_secs(600);
/// Ids of a reply that are scored.
const SCORED: usize = 64;
/// Pairs of one forward call, of under 100 tokens each: chats and steps come in between.
const AT_ONCE: usize = 32;
/// Checkpoints of each agent that stay: what serves is among them while it is measured.
const KEEP: &str = "8";

/// A server of this bench; ends when dropped.
#[derive(Debug)]
pub struct Trainer {
    _child: Child,
    pub url: String,
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

/// A reply after a prompt, to be scored.
pub type Pair<'a> = (&'a [u32], &'a [u32]);

// === impl Trainer ===

impl Trainer {
    /// Starts one with its checkpoints in `folder`, and with those that are there.
    pub async fn start(program: &Path, model: &Path, folder: &Path) -> Result<Self> {
        std::fs::create_dir_all(folder)?;
        let ready = folder.join("ready.json");
        let child = Command::new(program)
            .arg("--model")
            .arg(model)
            .args(["--port", "0", "--keep", KEEP, "--max-queue", "2000"])
            .arg("--checkpoint-dir")
            .arg(folder.join("checkpoints"))
            .stdin(Stdio::null())
            .stdout(File::create(&ready)?)
            .stderr(File::create(folder.join("trainer.log"))?)
            .kill_on_drop(true)
            .spawn();
        let mut child = child.with_context(|| format!("cannot start {}", program.display()))?;
        let look = async || {
            let said = std::fs::read_to_string(&ready)?;
            if said.ends_with('\n') {
                return Ok(Some(said));
            }
            if let Some(status) = child.try_wait()? {
                bail!(
                    "metaclaw-trainer ended with {status}: {}/trainer.log says why",
                    folder.display()
                );
            }
            Ok(None)
        };
        let line = found(READY_WITHIN, look).await?;
        let line: Value = serde_json::from_str(&line)?;
        let url = format!("http://{}", line["address"].as_str().context("no address")?);
        Ok(Self {
            _child: child,
            client: Client::new(&url),
            url,
            base_run: Mutex::default(),
            scoring: Mutex::default(),
            names: Mutex::default(),
        })
    }

    /// The ids of a question, up to where the reply begins.
    pub async fn prompt(&self, question: &str) -> Result<Vec<u32>> {
        self.tokenize(&json!({"messages": [{"role": "user", "content": question}]}))
            .await
    }

    /// The ids of a text.
    pub async fn ids(&self, text: &str) -> Result<Vec<u32>> {
        self.tokenize(&json!({"prompt": text})).await
    }

    /// The reply of `model` (an adapter, or `base`) to a question.
    pub async fn ask(&self, model: &str, question: &str, seed: u64) -> Result<Reply> {
        let model = self.name_of(model).await?;
        let body = json!({
            "model": model, "messages": [{"role": "user", "content": question}],
            "max_tokens": MAX_TOKENS, "temperature": TEMPERATURE, "seed": seed,
        });
        let answer = self.post("/v1/chat/completions", &body).await?;
        let choice = &answer["choices"][0];
        let id = answer["id"].as_str().context("a reply without an id")?;
        Ok(Reply {
            text: choice["message"]["content"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
            ended: choice["finish_reason"] == "stop",
            ids: self.sampled(id).await?,
        })
    }

    /// The ids of a reply that was given within the last 15 minutes.
    pub async fn sampled(&self, id: &str) -> Result<Vec<u32>> {
        let sampled = self.client.get_json(&format!("/v1/sampled/{id}")).await?;
        Ok(serde_json::from_value(sampled["ids"].clone())?)
    }

    /// The ids of a reply that came through the product. Where it samples by Tinker's API the record is in the product's
    /// process; then they are those of the text, which are nearly always the same.
    pub async fn ids_of(&self, id: &str, text: &str) -> Result<Vec<u32>> {
        let response = self.client.get(&format!("/v1/sampled/{id}")).send().await?;
        if response.status() == StatusCode::NOT_FOUND {
            return self.ids(text).await;
        }
        let sampled: Value = serde_json::from_str(&response.error_for_status()?.text().await?)?;
        Ok(serde_json::from_value(sampled["ids"].clone())?)
    }

    /// The mean log-probability a token of the first ids of each reply, by the base model.
    pub async fn score(&self, pairs: &[Pair<'_>]) -> Result<Vec<f64>> {
        let mut means = Vec::with_capacity(pairs.len());
        for call in pairs.chunks(AT_ONCE) {
            means.extend(self.by_base(call).await?);
        }
        Ok(means)
    }

    /// The same by an adapter that was saved with a checkpoint of its name.
    pub async fn score_by(&self, adapter: &str, pairs: &[Pair<'_>]) -> Result<Vec<f64>> {
        let _one_at_a_time = self.scoring.lock().await;
        let run = self.open(adapter).await?;
        let mut means = Vec::with_capacity(pairs.len());
        for call in pairs.chunks(AT_ONCE) {
            means.extend(self.forward(&run, true, call).await?);
        }
        self.post("/v1/lora/close", &json!({"session_id": run}))
            .await?;
        Ok(means)
    }

    /// The checkpoints of an agent, by the names of its adapters.
    pub async fn made_by(&self, agent: &str) -> Result<Vec<String>> {
        let own = self.saved().await?.into_iter();
        let own = own.filter(|it| it.manifest["agent"] == agent);
        Ok(own.map(|it| it.adapter).collect())
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
        let mut names = all.filter_map(|it| it["name"].as_str());
        let is_it = |name: &&str| of_tinker(name) == Some(adapter);
        // The base model is no adapter, and one of the REST API has one name.
        let name = names.find(is_it).unwrap_or(adapter).to_owned();
        let mut known = self.names.lock().await;
        known.insert(adapter.to_owned(), name.clone());
        Ok(name)
    }

    async fn tokenize(&self, body: &Value) -> Result<Vec<u32>> {
        let answer = self.post("/tokenize", body).await?;
        Ok(serde_json::from_value(answer["tokens"].clone())?)
    }

    /// A run that holds what a checkpoint does.
    async fn open(&self, adapter: &str) -> Result<String> {
        let mut all = self.saved().await?.into_iter();
        let found = all.find(|it| it.adapter == adapter);
        let found = found.with_context(|| format!("{adapter} has no checkpoint"))?;
        let shape = &found.manifest["shape"];
        let create = json!({"rank": shape["rank"], "lora_alpha": shape["alpha"], "targets": shape["targets"]});
        let run = self.create(&create).await?;
        self.post(
            "/v1/checkpoint/load",
            &json!({"session_id": run, "path": found.name}),
        )
        .await?;
        Ok(run)
    }

    async fn create(&self, shape: &Value) -> Result<String> {
        let created = self.post("/v1/lora/create", shape).await?;
        let run = created["session_id"]
            .as_str()
            .context("a run without an id")?;
        Ok(run.to_owned())
    }

    /// The server closes the run that was used least recently: one that is gone is made again.
    async fn by_base(&self, pairs: &[Pair<'_>]) -> Result<Vec<f64>> {
        let mut run = self.base_run.lock().await;
        if let Some(id) = &*run
            && let Ok(means) = self.forward(id, false, pairs).await
        {
            return Ok(means);
        }
        let id = self.create(&json!({"rank": 1})).await?;
        let means = self.forward(&id, false, pairs).await;
        *run = Some(id);
        means
    }

    async fn forward(&self, run: &str, adapter: bool, pairs: &[Pair<'_>]) -> Result<Vec<f64>> {
        let (mut datums, mut positions) = (Vec::new(), Vec::new());
        for (prompt, reply) in pairs {
            let all = [*prompt, cut(reply)].concat();
            let n = all.len() - 1;
            datums.push(json!({"model_input_tokens": all[..n], "target_tokens": all[1..]}));
            positions.push((prompt.len() - 1..n).collect::<Vec<_>>());
        }
        let body = json!({"session_id": run, "datums": datums, "adapter": adapter, "positions": positions});
        let answer = self.post("/v1/train/forward", &body).await?;
        let logprobs: Vec<Vec<f64>> = serde_json::from_value(answer["logprobs"].clone())?;
        ensure!(
            logprobs.len() == pairs.len(),
            "{} answers to {} sequences",
            logprobs.len(),
            pairs.len()
        );
        Ok(logprobs
            .iter()
            .map(|it| it.iter().sum::<f64>() / it.len().max(1) as f64)
            .collect())
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
            tokio::time::sleep(LOOK_EVERY * 5).await;
        }
    }
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

fn cut(reply: &[u32]) -> &[u32] {
    &reply[..reply.len().min(SCORED)]
}
