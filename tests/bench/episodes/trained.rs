//! One run: the product with a seed's tasks, measured before, trained, and measured after.

use std::{fs, iter, path::Path, process::Stdio, time::Instant};

use anyhow::{Context as _, Result, ensure};
use metaclaw_tests::{external, home::Home};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::tasks::BenchFamily;

/// The agent that learns.
const AGENT: &str = "episodes";
/// The episodes before and after training that are printed.
const SHOWN: usize = 10;
/// The name of the run.
const RUN: &str = "run";
/// The limit of a list that has none.
const ALL: &str = "0";

/// What is run.
#[derive(Debug, Clone, Copy)]
pub struct EpisodeRun {
    pub family: BenchFamily,
    pub seed: u64,
    pub steps: u64,
    /// Whether the gate tests the adapter of each step.
    pub gate: bool,
}

/// What a run came to.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct EpisodeRecord {
    pub track: String,
    pub seed: u64,
    pub gate: bool,
    pub steps: u64,
    /// The rate of success on the held-out tasks after so many steps.
    pub curve: Vec<(String, f64)>, // pair: the measurement's name and pass@1
    /// The capability probes that the base model and the last adapter answer right, of 64.
    pub probes_before: u64,
    pub probes_after: u64,
    pub n_episodes: u64,
    pub minutes: f64,
    pub before: Vec<ShownEpisode>,
    pub after: Vec<ShownEpisode>,
}

/// An episode, to be read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShownEpisode {
    pub asked: String,
    pub replied: String,
    pub score: f64,
}

// === impl EpisodeRun ===

impl EpisodeRun {
    pub fn name(self) -> String {
        let gate = if self.gate { "-gate" } else { "" };
        format!("{}-{}{gate}", self.family.track(), self.seed)
    }

    /// Returns whether a record is of this run.
    pub fn is(self, record: &EpisodeRecord) -> bool {
        let of_record = (&*record.track, record.seed, record.gate, record.steps);
        of_record == (self.family.track(), self.seed, self.gate, self.steps)
    }

    /// Runs it in `out`, from where an earlier process stood.
    ///
    /// # Errors
    /// If a program fails, or says something else than is expected.
    pub async fn run(self, bin_dir: &Path, out: &Path) -> Result<EpisodeRecord> {
        let folder = out.join(self.name());
        fs::create_dir_all(&folder)?;
        self.family.write(&folder, self.seed)?;
        let file = folder.join("run.yaml");
        fs::write(&file, self.file())?;
        let home = Home::at(&folder.join("home"), bin_dir, &self.config());
        let earlier = fs::read_to_string(folder.join("minutes")).unwrap_or_default();
        let earlier: f64 = earlier.trim().parse().unwrap_or_default();
        let began = Instant::now();
        let proxy = home.start().await?;
        let ended = self.measured(&home, &file).await;
        let minutes = earlier + began.elapsed().as_secs_f64() / 60.0;
        fs::write(folder.join("minutes"), minutes.to_string())?;
        proxy.stop().await?;
        let mut record = ended?;
        record.minutes = minutes;
        Ok(record)
    }

    async fn measured(self, home: &Home, file: &Path) -> Result<EpisodeRecord> {
        let summary = train(home, file).await?;
        let measurements = summary["measurements"].as_array();
        let curve = measurements.into_iter().flatten().map(measured_success);
        let curve = curve.collect::<Result<Vec<_>>>()?;
        let probes = probes(home).await?;
        let (before, after) = shown(home).await?;
        Ok(EpisodeRecord {
            track: self.family.track().to_owned(),
            seed: self.seed,
            gate: self.gate,
            steps: self.steps,
            curve,
            probes_before: probes.0,
            probes_after: probes.1,
            n_episodes: summary["funnel"]["opened"].as_u64().unwrap_or_default(),
            minutes: 0.0,
            before,
            after,
        })
    }

    fn config(self) -> String {
        let config = json!({
            "mode": "rl",
            "judge": {"kind": "rules"},
            "wishes": {"enabled": false},
            "gate": {"enabled": self.gate},
            "trainer": {"model": external::model()},
            "rl": {"learning_rate": 1e-3},
        });
        // JSON is YAML.
        config.to_string()
    }

    /// Returns the file of `metaclaw rollout run`.
    fn file(self) -> String {
        let Self { steps, seed, .. } = self;
        let track = self.family.track();
        let every = steps.div_ceil(2);
        format!(
            "agent: {AGENT}\ntrack: {track}\ntasks: train.jsonl\neval_tasks: held-out.jsonl\neval_every: \
             {every}\neval_tries: 2\ngroup_size: 8\ntasks_per_step: 4\nresample: 8\nat_once: 32\nsteps: {steps}\nseed: {seed}\n"
        )
    }
}

/// Runs `metaclaw rollout run`, whose lines are passed on, and returns its summary.
async fn train(home: &Home, file: &Path) -> Result<Value> {
    let file = file.to_str().context("a path in UTF-8")?;
    let mut command = home.command(&["rollout", "run", file, "--run", RUN, "--json"]);
    let run = command.stderr(Stdio::inherit()).stdout(Stdio::piped());
    let output = run.spawn()?.wait_with_output().await?;
    ensure!(output.status.success(), "metaclaw rollout run failed");
    let said = String::from_utf8(output.stdout)?;
    let start = said.find('{').context("no JSON")?;
    Ok(serde_json::from_str(&said[start..])?)
}

/// Returns the name of a measurement and its pass@1.
fn measured_success(measurement: &Value) -> Result<(String, f64)> {
    let pass = measurement["pass"].as_array();
    let first = pass.into_iter().flatten().find(|pass| pass["k"] == 1);
    let rate = first.and_then(|pass| pass["estimate"].as_f64());
    let name = measurement["name"].as_str().unwrap_or_default();
    Ok((
        name.to_owned(),
        rate.context("a measurement without pass@1")?,
    ))
}

/// Returns how many of the gate's 64 probes the base model and the serving adapter answer right.
async fn probes(home: &Home) -> Result<(u64, u64)> {
    let report = home
        .ask(&["eval", "--agent", AGENT, "--last", "0", "--json"])
        .await?;
    let rows = report["rows"].as_array().context("no rows")?;
    let known: Vec<u64> = rows
        .iter()
        .filter_map(|row| row["knowledge"]["n_right"].as_u64())
        .collect();
    let (Some(base), Some(adapter)) = (known.first(), known.get(1)) else {
        anyhow::bail!("no adapter serves: {report}");
    };
    Ok((*base, *adapter))
}

/// Returns episodes on the same held-out tasks, before training and after it.
async fn shown(home: &Home) -> Result<(Vec<ShownEpisode>, Vec<ShownEpisode>)> {
    // pair: before and after
    let listed = home
        .ask(&["rollout", "list", "--run", RUN, "-n", ALL, "--json"])
        .await?;
    let mut rollouts: Vec<&Value> = listed.as_array().into_iter().flatten().collect();
    rollouts.retain(|rollout| rollout["held_out"] == true && rollout["state"] == "scored");
    rollouts.sort_by_key(|rollout| rollout["opened_ms"].as_u64());
    let mut before = Vec::new();
    let mut after = Vec::new();
    let task = |n: usize| format!("held-out-{n}");
    for n in 0..SHOWN {
        let mut of_task = rollouts
            .iter()
            .filter(|rollout| rollout["task"] == *task(n));
        let first = of_task.next().context("a task that was never tried")?;
        let last = of_task.next_back().unwrap_or(first);
        before.push(episode(home, first).await?);
        after.push(episode(home, last).await?);
    }
    Ok((before, after))
}

async fn episode(home: &Home, rollout: &Value) -> Result<ShownEpisode> {
    let id = rollout["id"].as_str().context("a rollout without id")?;
    let shown = home.ask(&["rollout", "show", id, "--json"]).await?;
    let turn = &shown["turns"][0];
    let messages = turn["request"]["messages"].as_array();
    let asked = messages
        .and_then(|all| all.last())
        .map(|last| &last["content"]);
    let calls = turn["reply"]["tool_calls"].as_array();
    let calls = calls.into_iter().flatten().map(|call| {
        let function = &call["function"];
        format!(
            "{}({})",
            text(&function["name"]),
            text(&function["arguments"])
        )
    });
    let said = text(&turn["reply"]["content"]);
    let replied = iter::once(said).chain(calls).collect::<String>();
    Ok(ShownEpisode {
        asked: asked.map(text).unwrap_or_default(),
        replied,
        score: rollout["outcome"].as_f64().unwrap_or_default(),
    })
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(
        || match value {
            Value::Null => String::new(),
            other => other.to_string(),
        },
        str::to_owned,
    )
}
