//! The product under test: `metaclaw start` in a home of its own, with a row's configuration. The home stays until all of
//! its runs are at their ends.
//!
//! Between two sessions a real owner is away for minutes, in which the learner does what is due. The scripted owner waits
//! exactly until then. The owner also waits for the learner's work for other agents, because until the learner checks
//! again, the status of this agent is outdated, and the count would include delays that a learner of one agent would not
//! have.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use metaclaw_tests::{
    client::Client,
    external,
    home::{Home, Proxy},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::{rows::Row, trainer::Trainer};

/// Where the folders of products lie until their runs are at their ends.
pub const HOMES: &str = "homes";
/// What its gate has asked of the base model, in a home: figures that hold for the next product as well.
const OF_BASE: &str = "learning/gate.json";
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// If nothing changes although something waits (a learner that rests), it is assumed that nothing will.
const STUCK_AFTER: Duration = Duration::from_secs(20);
/// The same, if the learner waits a minute (`scheduler.idle_minutes`) before the owner counts as away.
const STUCK_AT_NIGHT_AFTER: Duration = Duration::from_secs(100);
/// The longest absence of the owner, also for a night, because the learner of a row has to make and test the steps of
/// all its agents.
const AWAY: Duration = Duration::from_secs(1_800);

/// A proxy with its control.
#[derive(Debug)]
pub struct Product {
    proxy: Proxy,
    /// With its home, and what its runs keep.
    pub folder: PathBuf,
    home: Home,
    control: Client,
    /// `rl.batch_size`, as it is in force.
    batch_size: u64,
}

/// What the bench has seen of an agent's learning.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Watch {
    /// The serving adapter; `None` is the base model.
    pub adapter: Option<String>,
    /// Every adapter that began to serve.
    pub served: BTreeSet<String>,
    /// Every step, by adapter, as the status reported it.
    pub steps: BTreeMap<String, Value>,
    /// How often the owner came back although something waited.
    pub n_stuck: usize,
    /// The state at that time, because waiting again in the same state is of no use.
    #[serde(skip)]
    stuck_at: Option<Value>,
}

// === impl Product ===

impl Product {
    /// Starts one for a row before `trainer`, with the reward function at `judge`. The inner error says why this build
    /// cannot run the row.
    pub async fn start(
        out: &Path,
        trainer: &Trainer,
        row: &Row,
        judge: &str,
    ) -> Result<Result<Self, String>> {
        let mut config = json!({"mode": "rl", "judge": {"kind": "http", "url": judge}});
        let at = if row.config["rl"]["backend"] == "tinker" {
            // The training server asks for no key.
            let model = trainer.model.file_stem().unwrap_or_default();
            let model = model.to_string_lossy();
            json!({
                "rl": {"tinker_base_url": trainer.url(), "tinker_api_key": "tml-of-the-bench", "model": model,
                    "tokenizer": external::converted_from(&trainer.model)},
                "privacy": {"cloud_training_ok": true},
            })
        } else {
            json!({"rl": {"backend": "remote", "remote_url": trainer.url()}})
        };
        merge(&mut config, &at);
        merge(&mut config, &row.config);
        let folder = out.join(HOMES).join(&row.name);
        // JSON is YAML.
        let home = Home::at(
            &folder.join("home"),
            &external::bin_dir(),
            &config.to_string(),
        );
        let in_force = match home.ask(&["config", "--json"]).await {
            Ok(in_force) => in_force,
            Err(refused) => return Ok(Err(last_line(&format!("{refused:#}")))),
        };
        if let Some(key) = without_effect(&row.config, &in_force) {
            return Ok(Err(format!("{key} does nothing in this build")));
        }
        let mut keys = in_force.as_array().into_iter().flatten();
        let batch_size = keys.find(|listed| listed["key"] == "rl.batch_size");
        let batch_size = batch_size.and_then(|listed| listed["value"].as_u64());
        copy_if_there(&out.join(OF_BASE), &home.path().join(OF_BASE))?;
        let proxy = match home.start().await {
            Ok(proxy) => proxy,
            Err(refused) => return Ok(Err(last_line(&format!("{refused:#}")))),
        };
        let run: Value = serde_json::from_slice(&fs::read(home.path().join("run.json"))?)?;
        let text = |key: &str| {
            run[key]
                .as_str()
                .with_context(|| format!("run.json has no {key}"))
        };
        let token = format!("Bearer {}", text("token")?);
        let url = format!("http://{}", text("control")?);
        Ok(Ok(Self {
            control: Client::with_headers(url, &[("authorization", &token)]),
            batch_size: batch_size.context("config --json has no rl.batch_size")?,
            proxy,
            folder,
            home,
        }))
    }

    /// A client that speaks as this agent.
    pub fn client(&self, agent: &str) -> Client {
        Client::with_headers(&self.proxy.base_url, &[("x-agent-id", agent)])
    }

    /// What `metaclaw status` shows.
    pub async fn status(&self) -> Result<Value> {
        let response = self.control.post("/status", &Value::Null).send().await?;
        Ok(response.error_for_status()?.json().await?)
    }

    /// Ends it; its log and its last status stay in `out`, and its folder if it `has_more` to do.
    pub async fn stop(self, out: &Path, name: &str, has_more: bool) -> Result<()> {
        let logs = out.join("logs");
        fs::create_dir_all(&logs)?;
        if let Ok(status) = self.status().await {
            fs::write(
                logs.join(format!("{name}.status.json")),
                format!("{status:#}"),
            )?;
        }
        let stopped = self.proxy.stop().await;
        copy_if_there(&self.home.path().join(OF_BASE), &out.join(OF_BASE))?;
        fs::write(logs.join(format!("{name}.log")), self.home.log())?;
        if !has_more {
            fs::remove_dir_all(&self.folder)?;
        }
        stopped
    }
}

fn copy_if_there(from: &Path, to: &Path) -> Result<()> {
    if from.exists() {
        fs::create_dir_all(to.parent().context("a file has a folder")?)?;
        fs::copy(from, to)?;
    }
    Ok(())
}

/// Puts `more` over `config`, key by key.
fn merge(config: &mut Value, more: &Value) {
    match (config, more) {
        (Value::Object(config), Value::Object(more)) => {
            for (key, value) in more {
                merge(config.entry(key).or_insert(Value::Null), value);
            }
        }
        (config, more) => *config = more.clone(),
    }
}

/// The paths of all values, as in `rl.batch_size`.
fn paths(config: &Map<String, Value>, prefix: &str) -> Vec<String> {
    let path = |(key, value): (&String, &Value)| match value {
        Value::Object(inner) => paths(inner, &format!("{prefix}{key}.")),
        _ => vec![format!("{prefix}{key}")],
    };
    config.iter().flat_map(path).collect()
}

/// The first key of a row that the build takes without doing anything: it is not among those that work.
fn without_effect(config: &Value, in_force: &Value) -> Option<String> {
    let known = in_force.as_array()?;
    let works = |path: &str| {
        let is_it = |listed: &Value| listed["key"] == path && !listed["origin"].is_null();
        known.iter().any(is_it)
    };
    let mut set = paths(config.as_object()?, "").into_iter();
    set.find(|path| !works(path))
}

/// What a program said last, which is why it ended.
fn last_line(text: &str) -> String {
    let last = text.lines().map(str::trim).rfind(|line| !line.is_empty());
    last.unwrap_or_default().to_owned()
}

// === impl Watch ===

impl Watch {
    /// Waits until the learner has done what is due for an agent that has sent `n_turns`, by `is_night` for the longer
    /// time of a night; returns the product's status of the agent then.
    pub async fn until_quiet(
        &mut self,
        product: &Product,
        agent: &str,
        n_turns: u64,
        is_night: bool,
    ) -> Result<Option<Value>> {
        let stuck_after = if is_night {
            STUCK_AT_NIGHT_AFTER
        } else {
            STUCK_AFTER
        };
        let began = Instant::now();
        let (mut last, mut since) = (None, Instant::now());
        loop {
            let status = product.status().await?;
            let own = own(&status, agent).cloned();
            self.note(own.as_ref());
            let is_same = own == last;
            if is_same && is_quiet(&status, agent, n_turns, product.batch_size) {
                self.stuck_at = None;
                return Ok(own);
            }
            let moves = !is_same || is_busy(&status);
            if moves {
                since = Instant::now();
            }
            let is_known = own.is_some() && own == self.stuck_at;
            if began.elapsed() > AWAY || since.elapsed() > stuck_after || (is_known && !moves) {
                self.n_stuck += 1;
                self.stuck_at.clone_from(&own);
                return Ok(own);
            }
            last = own;
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    fn note(&mut self, own: Option<&Value>) {
        let Some(own) = own else { return };
        self.adapter = own["adapter"].as_str().map(str::to_owned);
        self.served.extend(self.adapter.clone());
        let step = &own["last_step"];
        if let Some(adapter) = step["adapter"].as_str() {
            self.steps.insert(adapter.to_owned(), step.clone());
        }
    }
}

/// Returns the product's status of an agent.
pub fn own<'a>(status: &'a Value, agent: &str) -> Option<&'a Value> {
    let agents = status["learner"]["agents"].as_array()?;
    agents.iter().find(|listed| listed["agent"] == agent)
}

/// Returns whether the learner is working, for any agent.
fn is_busy(status: &Value) -> bool {
    let phase = status["learner"]["phase"]["is"].as_str();
    phase.is_some_and(|phase| ["teaching", "stepping", "testing"].contains(&phase))
}

/// Returns whether nothing is in progress or due for an agent.
fn is_quiet(status: &Value, agent: &str, n_turns: u64, batch_size: u64) -> bool {
    let Some(own) = own(status, agent) else {
        return false;
    };
    let learner = &status["learner"];
    let count = |key: &str| own[key].as_u64().unwrap_or_default();
    let funnel = |key: &str| own["funnel"][key].as_u64().unwrap_or_default();
    // The teacher answers turns as soon as there are enough for a batch.
    let n_redo = count("n_redo") + count("n_unanswered");
    let is_due = n_redo >= batch_size || count("n_binary_rl") >= batch_size;
    // If weights are trained, ids arrive by themselves a moment after the reply.
    let has_ids = learner["phase"]["is"] == "off" || funnel("with_ids") >= funnel("complete");
    let is_judged = learner["judging"]["waiting"] == 0;
    funnel("turns") >= n_turns && has_ids && is_judged && !is_busy(status) && !is_due
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rows_keys_come_over_the_others_and_one_that_does_nothing_is_named() {
        let mut config = json!({"mode": "rl", "rl": {"backend": "remote"}});
        merge(
            &mut config,
            &json!({"mode": "skills_only", "rl": {"w_rl": 1}, "gate": {"enabled": false}}),
        );
        let expected = json!({"mode": "skills_only", "rl": {"backend": "remote", "w_rl": 1}, "gate": {"enabled": false}});
        assert_eq!(config, expected);
        let in_force = json!([{"key": "rl.w_rl", "value": 1, "origin": "config.yaml"},
            {"key": "rl.batch_size", "value": 4, "origin": null}]);
        for (row, key) in [
            (json!({"rl": {"w_rl": 1}}), None),
            (json!({"rl": {"w_rl": 1, "reuse": 4}}), Some("rl.reuse")),
            (json!({"rl": {"batch_size": 4}}), Some("rl.batch_size")),
        ] {
            assert_eq!(without_effect(&row, &in_force).as_deref(), key);
        }
        assert_eq!(
            last_line("a\n  rl.method opd is not built yet\n\n"),
            "rl.method opd is not built yet"
        );
    }

    fn status() -> Value {
        json!({"learner": {
            "judging": {"waiting": 0},
            "phase": {"is": "collecting"},
            "agents": [{"agent": "a", "adapter": "a-1", "n_redo": 1, "n_unanswered": 0, "n_binary_rl": 0, "last_step": null,
                "funnel": {"turns": 4, "complete": 4, "with_ids": 4}}],
        }})
    }

    #[test]
    fn it_is_quiet_when_nothing_is_due() {
        assert!(is_quiet(&status(), "a", 4, 4));
        assert!(
            !is_quiet(&status(), "a", 5, 4),
            "a turn is on its way to the log"
        );
        assert!(
            !is_quiet(&status(), "b", 0, 4),
            "nothing of it was seen yet"
        );
        assert!(!is_quiet(&status(), "a", 4, 1), "a batch is due");
        for (place, value) in [
            ("/learner/judging/waiting", json!(1)),
            ("/learner/phase", json!({"is": "stepping", "agent": "a"})),
            ("/learner/phase", json!({"is": "stepping", "agent": "b"})),
            ("/learner/phase", json!({"is": "teaching", "agent": "a"})),
            ("/learner/phase", json!({"is": "testing", "agent": "a"})),
            ("/learner/agents/0/n_unanswered", json!(3)),
            ("/learner/agents/0/funnel/with_ids", json!(3)),
        ] {
            let mut busy = status();
            *busy.pointer_mut(place).unwrap() = value;
            assert!(!is_quiet(&busy, "a", 4, 4), "{place}");
        }
    }

    #[test]
    fn what_served_and_what_was_made_is_remembered() {
        let mut watch = Watch::default();
        watch.note(own(&status(), "a"));
        let mut later = status();
        later["learner"]["agents"][0]["last_step"] = json!({"adapter": "a-2", "seconds": 3.0});
        watch.note(own(&later, "a"));
        assert_eq!(
            (watch.served.len(), &watch.steps["a-2"]["seconds"]),
            (1, &json!(3.0))
        );
    }
}
