//! The server's workload.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::Write as _,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use metaclaw_tests::{client::Client, questions::QUESTIONS};
use serde_json::{Value, json};

/// The number of turns after which a conversation ends.
const TURNS: usize = 4;
/// After this many chats, one client disconnects, after this time.
const LEAVES: u64 = 5;
const LEAVES_AFTER: Duration = Duration::from_millis(400);
/// After this many steps, one is cancelled, after this time; and an adapter and a checkpoint are saved.
const CALLED_OFF: u64 = 3;
const CALLED_OFF_AFTER: Duration = Duration::from_millis(300);
const SAVED: u64 = 2;

/// What happened when, a JSON object a line.
#[derive(Debug)]
pub struct Journal {
    lines: Mutex<(File, Vec<Value>)>, // pair: on disk and in memory
    began: Instant,
}

/// All parts of the load.
#[derive(Debug)]
pub struct Load {
    client: Client,
    checkpoints: PathBuf,
    journal: Arc<Journal>,
    adapter: Mutex<Option<String>>,
    chats: AtomicU64,
    left: AtomicU64,
    steps: AtomicU64,
    called_off: AtomicU64,
    swaps: AtomicU64,
    failed: AtomicU64,
}

fn count(counter: &AtomicU64) -> u64 {
    counter.fetch_add(1, Ordering::Relaxed) + 1
}

// === impl Journal ===

impl Journal {
    pub fn create(file: &Path) -> Result<Self> {
        Ok(Self {
            lines: Mutex::new((File::create(file)?, Vec::new())),
            began: Instant::now(),
        })
    }

    /// Writes down what happened now.
    pub fn write(&self, what: &str, value: &Value) -> Result<()> {
        let line =
            json!({"seconds": self.began.elapsed().as_secs_f64(), "what": what, "value": value});
        let mut lines = self.lines.lock().expect("nobody panics while writing");
        writeln!(lines.0, "{line}").context("cannot write the journal")?;
        lines.1.push(line);
        Ok(())
    }

    pub fn lines(&self) -> Vec<Value> {
        self.lines
            .lock()
            .expect("nobody panics while writing")
            .1
            .clone()
    }
}

// === impl Load ===

impl Load {
    pub fn new(url: &str, checkpoints: PathBuf, journal: &Arc<Journal>) -> Self {
        let [chats, left, steps, called_off, swaps, failed] = Default::default();
        Self {
            client: Client::new(url),
            checkpoints,
            journal: Arc::clone(journal),
            adapter: Mutex::default(),
            chats,
            left,
            steps,
            called_off,
            swaps,
            failed,
        }
    }

    pub fn counts(&self) -> Value {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        json!({
            "chats": of(&self.chats), "left": of(&self.left), "steps": of(&self.steps),
            "called_off": of(&self.called_off), "swaps": of(&self.swaps), "failed": of(&self.failed),
        })
    }

    /// Runs conversations, one after the other; some end in the middle of a reply.
    pub async fn chat(&self, number: usize) -> Result<()> {
        let questions = QUESTIONS.iter().cycle().skip(number * 7);
        let mut messages = Vec::new();
        for question in questions {
            if messages.len() >= 2 * TURNS {
                messages.clear();
            }
            messages.push(json!({"role": "user", "content": question}));
            let adapter = self.adapter.lock().expect("never poisoned").clone();
            let model = adapter.unwrap_or_else(|| "base".to_owned());
            let extra = json!({"model": model, "max_tokens": 48, "temperature": 0.7});
            let reply = self.client.stream(&messages, &extra);
            if count(&self.chats).is_multiple_of(LEAVES) {
                // The connection is dropped in the middle, or the chat ended before: clients do both.
                if tokio::time::timeout(LEAVES_AFTER, reply).await.is_err() {
                    count(&self.left);
                }
                messages.clear();
                continue;
            }
            match reply.await {
                Ok(reply) => messages.push(json!({"role": "assistant", "content": reply.text})),
                Err(refusal) => {
                    count(&self.failed);
                    let text = format!("{refusal:?}");
                    self.journal
                        .write("failed", &json!({"model": model, "refusal": text}))?;
                    messages.clear();
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            }
        }
        Ok(())
    }

    /// Makes steps of one run; every few steps, it saves a new adapter, which the chats then use, and a checkpoint.
    pub async fn train(&self) -> Result<()> {
        let run = self
            .post("/v1/lora/create", &json!({"rank": 16, "seed": 1}))
            .await?;
        let run = run["session_id"].as_str().context("no session_id")?;
        loop {
            let pass = json!({"session_id": run, "datums": self.datums().await?, "loss_fn": "cross_entropy"});
            let step = count(&self.steps);
            if step.is_multiple_of(CALLED_OFF) {
                let pass = self.post("/v1/train/forward_backward", &pass);
                if tokio::time::timeout(CALLED_OFF_AFTER, pass).await.is_err() {
                    count(&self.called_off);
                }
            }
            self.post("/v1/train/forward_backward", &pass).await?;
            let settings = json!({"session_id": run, "learning_rate": 1e-6, "grad_clip_norm": 1.0});
            self.post("/v1/train/optim_step", &settings).await?;
            if step.is_multiple_of(SAVED) {
                self.save(run, step).await?;
            }
        }
    }

    /// There are four questions with an answer each, as ids.
    async fn datums(&self) -> Result<Vec<Value>> {
        let mut datums = Vec::new();
        let steps = usize::try_from(self.steps.load(Ordering::Relaxed))?;
        for question in QUESTIONS
            .iter()
            .cycle()
            .skip(4 * steps % QUESTIONS.len())
            .take(4)
        {
            let text = format!("{question} {}", "A short and friendly answer. ".repeat(12));
            let reply = self.post("/tokenize", &json!({"prompt": text})).await?;
            let ids = reply["tokens"].as_array().context("no tokens")?;
            let (inputs, targets) = (&ids[..ids.len() - 1], &ids[1..]);
            let weights = vec![0.01; inputs.len()];
            datums.push(
                json!({"model_input_tokens": inputs, "target_tokens": targets, "weights": weights}),
            );
        }
        Ok(datums)
    }

    async fn save(&self, run: &str, step: u64) -> Result<()> {
        let name = format!("soak-{step}");
        self.post(
            "/v1/weights/save",
            &json!({"session_id": run, "name": name}),
        )
        .await?;
        self.post(
            "/v1/checkpoint/save",
            &json!({"session_id": run, "name": name}),
        )
        .await?;
        *self.adapter.lock().expect("never poisoned") = Some(name.clone());
        let swaps = count(&self.swaps);
        // The learner does the same after each checkpoint. A server without this call keeps all of them.
        let pruned = self
            .post("/v1/checkpoints/prune", &json!({"keep": [name]}))
            .await;
        let checkpoint = json!({
            "number": swaps, "adapter": name, "disk_bytes": self.disk()?,
            "pruned": pruned.map_or_else(|error| json!(format!("{error:#}")), |answer| answer["deleted"].clone()),
        });
        self.journal.write("checkpoint", &checkpoint)
    }

    /// Bytes of all adapters and checkpoints; what hangs on several links counts once.
    fn disk(&self) -> Result<u64> {
        let mut seen = BTreeMap::new();
        let mut folders = vec![self.checkpoints.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder)?.flatten() {
                let Ok(meta) = entry.metadata() else { continue };
                if meta.is_dir() {
                    folders.push(entry.path());
                } else {
                    seen.insert(meta.ino(), meta.blocks() * 512);
                }
            }
        }
        Ok(seen.values().sum())
    }

    async fn post(&self, path: &str, body: &Value) -> Result<Value> {
        let response = self.client.post(path, body).send().await?;
        let status = response.status();
        let text = response.text().await?;
        ensure!(status.is_success(), "POST {path}: {status}: {text}");
        serde_json::from_str(&text).with_context(|| format!("POST {path} gave no JSON: {text}"))
    }
}
