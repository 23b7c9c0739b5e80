//! `cargo xtask laptop` runs the laptop script with training on and off and several seeds, and writes JSON, curves, and
//! a measurement of the final weights.
//!
//! It can be continued: each run is a line of runs.jsonl, and is not repeated.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::Result;
use clap::Parser;
use metaclaw_tests::{
    bench::{append, records},
    external,
    home::Home,
    laptop::{Conversation, Outcome, Script},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

const CONFIG: &str = include_str!("../../examples/laptop/config.yaml");
/// What this owner wishes: what the weights are measured against, once they are to do it without being told.
const WISH: &str = "Please answer in one short sentence.";

#[derive(Debug, Parser)]
struct Flags {
    /// Seeds to run, each with training and without.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 3])]
    seeds: Vec<u64>,
    /// Conversations a run.
    #[arg(long, default_value_t = 40)]
    conversations: usize,
    /// No runs without training.
    #[arg(long)]
    trained_only: bool,
    /// Where the records go; runs already there are not run again.
    #[arg(long)]
    out: PathBuf,
}

#[derive(Debug, Serialize, Deserialize)]
struct Record {
    seed: u64,
    trained: bool,
    outcome: Outcome,
    status: Value,
    /// What `metaclaw eval` says of the weights that serve in the end; nothing of a run without training.
    eval: Value,
    conversations: Vec<Conversation>,
}

#[tokio::main]
async fn main() -> Result<()> {
    let flags = Flags::parse();
    std::fs::create_dir_all(&flags.out)?;
    for seed in flags.seeds.iter().copied() {
        let arms: &[bool] = if flags.trained_only {
            &[true]
        } else {
            &[true, false]
        };
        for &trained in arms {
            let mut there = records::<Record>(&flags.out).into_iter();
            let is_it = |record: &Record| (record.seed, record.trained) == (seed, trained);
            let record = if let Some(record) = there.find(is_it) {
                record
            } else {
                let record = run(&flags, seed, trained).await?;
                append(&flags.out, &record)?;
                record
            };
            show(&record);
        }
    }
    Ok(())
}

async fn run(flags: &Flags, seed: u64, trained: bool) -> Result<Record> {
    let model = external::model();
    let mut home = Home::new(&external::bin_dir(), CONFIG)
        .with_env("METACLAW__TRAINER__MODEL", model.to_string_lossy())
        .with_env("METACLAW__WISHES__ENABLED", "false");
    if !trained {
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
    let shown = |number: usize, talk: &Conversation| {
        let after = talk
            .corrected_words
            .map_or(String::new(), |words| format!(" -> {words}"));
        let adapter = talk.adapter.as_deref().unwrap_or("base");
        println!(
            "{number:3}  {:3}{after:8} words  {adapter}  {}",
            talk.words, talk.question
        );
    };
    let conversations = script.run(&proxy.client(), Instant::now(), shown).await;
    let status = home.ask(&["status", "--json"]).await?;
    let measure = [
        "eval",
        "--json",
        "--last",
        "0",
        "--wish",
        WISH,
        "--replies",
        "5",
    ];
    let eval = if trained {
        home.ask(&measure).await?
    } else {
        Value::Null
    };
    proxy.stop().await?;
    Ok(Record {
        seed,
        trained,
        outcome: Outcome::of(&conversations),
        status,
        eval,
        conversations,
    })
}

fn show(record: &Record) {
    let Outcome {
        short_of_last_ten,
        median_of_last_ten,
        requests,
        failures,
        longest_first_token_ms,
    } = record.outcome;
    let arm = if record.trained {
        "trained"
    } else {
        "untrained"
    };
    println!(
        "seed {} {arm}: {short_of_last_ten} of the last 10 first answers are short, median {median_of_last_ten} words; \
         {requests} requests, {failures} failures, longest wait for a first token {longest_first_token_ms} ms",
        record.seed
    );
    let words: Vec<String> = record
        .conversations
        .iter()
        .map(|talk| talk.words.to_string())
        .collect();
    println!("  words of the first answers: {}", words.join(" "));
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    for row in list(&record.eval["rows"]) {
        let (said, known) = (&row["on_probes"], &row["knowledge"]);
        let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
        println!(
            "  {}: {:.0} words at the median, relevance {:.2}, knows {}, tools {}",
            row["name"],
            number(&said["words"]),
            number(&said["relevance"]),
            known["n_right"],
            known["n_tools"],
        );
    }
    for replied in list(&record.eval["replies"]) {
        println!("  > {}", replied["question"]);
        for said in list(&replied["replies"]) {
            println!("    {}: {}", said[0], said[1]);
        }
    }
}
