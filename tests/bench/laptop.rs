//! `cargo xtask laptop` runs the laptop script with training on and off and several seeds, and writes JSON, curves, and
//! a measurement of the final weights.
//!
//! It can be continued: each (seed, arm) is one file, and a run with a file is not repeated.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use clap::Parser;
use metaclaw_tests::{
    external,
    home::Home,
    laptop::{Conversation, Outcome, Script},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Debug, Parser)]
struct Flags {
    /// Seeds to run.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 3])]
    seeds: Vec<u64>,
    /// With training, without, or both.
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["trained", "untrained"])]
    arms: Vec<Arm>,
    /// Conversations a run.
    #[arg(long, default_value_t = 40)]
    conversations: usize,
    /// Where the JSON files go; those already there are not run again.
    #[arg(long)]
    out: PathBuf,
    /// The configuration.
    #[arg(long, default_value = "examples/laptop/config.yaml")]
    config: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Arm {
    Trained,
    Untrained,
}

#[derive(Debug, Serialize, Deserialize)]
struct Record {
    seed: u64,
    trained: bool,
    outcome: Outcome,
    status: Value,
    /// What `metaclaw eval` says of the weights that serve in the end; nothing of a run without training.
    #[serde(default)]
    eval: Value,
    conversations: Vec<Conversation>,
}

/// What this owner wishes: what the weights are measured against, once they are to do it without being told.
const WISH: &str = "Please answer in one short sentence.";
/// Replies that are shown side by side.
const REPLIES: usize = 5;

#[tokio::main]
async fn main() -> Result<()> {
    let flags = Flags::parse();
    std::fs::create_dir_all(&flags.out)?;
    for seed in &flags.seeds {
        for arm in flags.arms.iter().copied() {
            let file = flags.out.join(format!("{}-{seed}.json", arm.name()));
            let record = if file.exists() {
                read(&file)?
            } else {
                let record = run(&flags, *seed, arm).await?;
                std::fs::write(&file, serde_json::to_vec_pretty(&record)?)?;
                record
            };
            show(&record);
        }
    }
    Ok(())
}

fn read(file: &Path) -> Result<Record> {
    serde_json::from_slice(&std::fs::read(file)?)
        .with_context(|| format!("{} is no record of a run", file.display()))
}

async fn run(flags: &Flags, seed: u64, arm: Arm) -> Result<Record> {
    let bin_dir = external::bin_dir();
    let model = external::model();
    let config = std::fs::read_to_string(&flags.config)?;
    let mut home = Home::new(&bin_dir, &config)
        .with_env("METACLAW__TRAINER__MODEL", model.to_string_lossy())
        .with_env("METACLAW__WISHES__ENABLED", "false");
    if arm == Arm::Untrained {
        // This batch never fills: the proxy and the judge are the same, and no step is made.
        home = home.with_env("METACLAW__RL__BATCH_SIZE", "1000000");
    }
    let proxy = home.start().await?;
    let script = Script {
        seed,
        conversations: flags.conversations,
        max_tokens: 128,
        retry_for: Duration::ZERO,
    };
    let told = |number: usize, talk: &Conversation| {
        let after = talk
            .corrected_words
            .map_or(String::new(), |words| format!(" -> {words}"));
        let adapter = talk.adapter.as_deref().unwrap_or("base");
        println!(
            "{number:3}  {:3}{after:8} words  {adapter}  {}",
            talk.words, talk.question
        );
    };
    let conversations = script.run(&proxy.client(), Instant::now(), told).await;
    let status = home.ask(&["status", "--json"]).await?;
    let eval = match arm {
        Arm::Trained => measured(&home).await?,
        Arm::Untrained => Value::Null,
    };
    proxy.stop().await?;
    let outcome = Outcome::of(&conversations);
    Ok(Record {
        seed,
        trained: arm == Arm::Trained,
        outcome,
        status,
        eval,
        conversations,
    })
}

/// The weights that serve beside the base model.
async fn measured(home: &Home) -> Result<Value> {
    let n_replies = REPLIES.to_string();
    let args = ["eval", "--json", "--last", "0", "--wish", WISH, "--replies"];
    home.ask(&[&args[..], &[&n_replies]].concat()).await
}

fn show(record: &Record) {
    let outcome = &record.outcome;
    let arm = if record.trained {
        Arm::Trained
    } else {
        Arm::Untrained
    };
    println!(
        "seed {} {}: {} of the last 10 first answers are short, median {} words; {} requests, {} failures, longest wait for a first token {} ms",
        record.seed,
        arm.name(),
        outcome.short_of_last_ten,
        outcome.median_of_last_ten,
        outcome.requests,
        outcome.failures,
        outcome.longest_first_token_ms,
    );
    let curve: Vec<String> = record
        .conversations
        .iter()
        .map(|c| c.words.to_string())
        .collect();
    println!("  words of the first answers: {}", curve.join(" "));
    show_eval(&record.eval);
}

/// What the weights say and know, and some of what they say.
fn show_eval(eval: &Value) {
    for row in eval["rows"].as_array().into_iter().flatten() {
        let (said, known) = (&row["on_probes"], &row["knowledge"]);
        let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
        println!(
            "  {}: {:.0} words at the median, relevance {:.2}, knows {}, tools {}",
            row["name"].as_str().unwrap_or_default(),
            number(&said["words"]),
            number(&said["relevance"]),
            known["n_right"],
            known["n_tools"],
        );
    }
    for replied in eval["replies"].as_array().into_iter().flatten() {
        println!("  > {}", replied["question"].as_str().unwrap_or_default());
        for said in replied["replies"].as_array().into_iter().flatten() {
            let (by, text) = (said[0].as_str(), said[1].as_str());
            println!(
                "    {}: {:?}",
                by.unwrap_or_default(),
                text.unwrap_or_default()
            );
        }
    }
}

impl Arm {
    fn name(self) -> &'static str {
        match self {
            Self::Trained => "trained",
            Self::Untrained => "untrained",
        }
    }
}
