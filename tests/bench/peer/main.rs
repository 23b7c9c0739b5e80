//! `cargo xtask bench tinker-peer`: MetaClaw's learning loop at a SkyRL server, which serves Tinker's API as others wrote it.
//!
//! A scripted owner talks; three steps are made there, and the server is killed and started again after each but the last.
//! A step counts where its adapter answers by the proxy, and answers again after the restart.

mod skyrl;

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Parser;
use metaclaw_tests::{
    external,
    home::{Home, Proxy},
    laptop::Script,
    trainer::{Start, Trainer},
    wait::until,
};
use serde_json::{Value, json};

use self::skyrl::{MODEL, SkyRl};

/// Of each reply: SkyRL compiles anew for another number.
const MAX_TOKENS: u32 = 64;

#[derive(Debug, Parser)]
struct Flags {
    /// The virtual environment that SkyRL is installed in.
    #[arg(long)]
    venv: PathBuf,
    /// A model in Hugging Face form, in place of the demo model: a folder with config.json, model.safetensors and
    /// tokenizer.json.
    #[arg(long)]
    model: Option<PathBuf>,
    /// Where logs, checkpoints and the record go; what an earlier run left there is removed.
    #[arg(long)]
    out: PathBuf,
    /// How many steps are made.
    #[arg(long, default_value_t = 3)]
    steps: u64,
    /// Minutes that a step, or the server's start, may take.
    #[arg(long, default_value_t = 30)]
    minutes: u64,
    /// The method that weights are trained by.
    #[arg(long, default_value = "binary_rl")]
    method: String,
    /// Tests of the gate that an adapter may serve without, where SkyRL cannot answer what they ask.
    #[arg(long, default_value = "[]")]
    accept_without: String,
    /// No gate: every adapter serves.
    #[arg(long)]
    no_gate: bool,
}

#[tokio::main]
async fn main() -> Result<()> {
    let flags = Flags::parse();
    if flags.out.exists() {
        std::fs::remove_dir_all(&flags.out)?;
    }
    std::fs::create_dir_all(&flags.out)?;
    let began = Instant::now();
    let model = match &flags.model {
        Some(model) => model.clone(),
        None => convert().await?,
    };
    let mut server = SkyRl::prepare(&flags.venv, &model, &flags.out)?;
    server.start(within(&flags)).await?;
    let started = began.elapsed();
    println!(
        "SkyRL answers at {} after {} s",
        server.url,
        started.as_secs()
    );
    let mut rows = Vec::new();
    let made = steps(&flags, &mut server, &mut rows).await;
    server.stop().await;
    let file = flags.out.join("steps.json");
    std::fs::write(file, serde_json::to_vec_pretty(&rows)?)?;
    let log = server.log.display();
    made.with_context(|| format!("the loop did not go through; SkyRL's log is {log}"))?;
    let (n, n_rows) = (flags.steps, rows.len());
    println!("{n} steps made; of {n_rows} the adapter was asked, and answered");
    Ok(())
}

/// Returns the demo model in Hugging Face form, as MetaClaw's own training server keeps it once it has started.
async fn convert() -> Result<PathBuf> {
    let checkpoints = tempfile::tempdir()?;
    let start = Start {
        model: Some(external::model()),
        checkpoints: Some(checkpoints.path().to_owned()),
        ..Start::default()
    };
    Trainer::start(&start).await.stop().await;
    Ok(external::converted())
}

fn within(flags: &Flags) -> Duration {
    Duration::from_secs(60 * flags.minutes)
}

fn home(flags: &Flags, server: &SkyRl) -> Home {
    let config = include_str!("../../../examples/laptop/config.yaml");
    let folder = flags.out.join("home");
    let home = Home::at(&folder, &external::bin_dir(), config)
        .with_env("METACLAW__WISHES__ENABLED", "false")
        // Short prompts, of which SkyRL compiles few shapes.
        .with_env("METACLAW__SKILLS__ENABLED", "false")
        .with_env("METACLAW__RL__BACKEND", "tinker")
        .with_env("METACLAW__RL__MODEL", MODEL)
        .with_env("METACLAW__RL__TOKENIZER", server.model.to_string_lossy())
        .with_env("TINKER_BASE_URL", &server.url)
        .with_env("TINKER_API_KEY", "tml-none")
        .with_env("METACLAW__PRIVACY__CLOUD_TRAINING_OK", "true")
        .with_env("METACLAW__RL__METHOD", &flags.method)
        .with_env("METACLAW__RL__BATCH_SIZE", "2")
        .with_env("METACLAW__RL__LEARNING_RATE", "0.00005")
        .with_env("METACLAW__RL__MAX_STEPS", flags.steps.to_string())
        .with_env("METACLAW__GATE__ACCEPT_WITHOUT", &flags.accept_without);
    if flags.no_gate {
        return home.with_env("METACLAW__GATE__ENABLED", "false");
    }
    home
}

async fn steps(flags: &Flags, server: &mut SkyRl, rows: &mut Vec<Value>) -> Result<()> {
    let home = home(flags, server);
    let proxy = home.start().await?;
    answers(&home, within(flags)).await?;
    let mut last = 0;
    while last < flags.steps {
        let began = Instant::now();
        let step = step(flags, &home, &proxy, last).await?;
        last = step["n"].as_u64().unwrap_or(last);
        let mut row = json!({"n": last, "seconds": began.elapsed().as_secs(),
            "answered": by_adapter(&proxy, within(flags)).await?});
        for name in ["adapter", "serves", "n_turns", "loss", "grad_norm"] {
            row[name] = step[name].clone();
        }
        row["gate"] = step["gate"]["tests"].clone();
        if last < flags.steps {
            server.kill().await;
            server.start(within(flags)).await?;
            answers(&home, within(flags)).await?;
            row["after_restart"] = json!(by_adapter(&proxy, within(flags)).await?);
        }
        println!("{row}");
        let is_well = row["serves"] == true
            && is_new_enough(&row["answered"], last)
            && (last == flags.steps || is_new_enough(&row["after_restart"], last));
        rows.push(row);
        ensure!(
            is_well,
            "the adapter of step {last} does not serve, or another one answered than it, or one after it: {step}"
        );
    }
    proxy.stop().await
}

/// Returns whether an adapter is that of step `n`, or of a step that was made meanwhile. Names of adapters end with the
/// number of their step.
fn is_new_enough(adapter: &Value, n: u64) -> bool {
    let number = adapter
        .as_str()
        .and_then(|name| name.rsplit('-').next()?.parse::<u64>().ok());
    number.is_some_and(|number| number >= n)
}

/// Waits until the proxy says that the server answers.
async fn answers(home: &Home, within: Duration) -> Result<()> {
    let mut status = Value::Null;
    let is_so = async || {
        status = home.ask(&["status", "--json"]).await.unwrap_or_default();
        status["trainer"]["is"] == "answers"
    };
    let waited = until(within, is_so).await;
    waited.with_context(|| format!("the proxy does not find the server: {}", status["trainer"]))
}

/// Talks until a step after the `last` one is made; what the status says of it.
async fn step(flags: &Flags, home: &Home, proxy: &Proxy, last: u64) -> Result<Value> {
    let began = Instant::now();
    let mut seed = last * 100;
    loop {
        let script = Script {
            seed,
            conversations: 2,
            max_tokens: MAX_TOKENS,
            retry_for: within(flags),
        };
        script.run(&proxy.client(), began, |_, _| ()).await;
        seed += 1;
        let look = Duration::from_secs(120);
        let mut step = Value::Null;
        let is_made = async || {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let mut status = home.ask(&["status", "--json"]).await.unwrap_or_default();
            step = status["learner"]["agents"][0]["last_step"].take();
            let waits = status["learner"]["phase"]["is"] == "waiting";
            step["n"].as_u64() > Some(last) || waits
        };
        until(look, is_made).await.ok();
        if step["n"].as_u64() > Some(last) {
            return Ok(step);
        }
        if began.elapsed() > within(flags) {
            let minutes = flags.minutes;
            bail!("no step after {last} in {minutes} minutes: {}", home.log());
        }
    }
}

/// Which adapter answers a new conversation.
async fn by_adapter(proxy: &Proxy, within: Duration) -> Result<Option<String>> {
    let question = [json!({"role": "user", "content": "What is tea?"})];
    let asked = json!({"max_tokens": MAX_TOKENS});
    let began = Instant::now();
    loop {
        match proxy.client().stream(&question, &asked).await {
            Ok(reply) => return Ok(reply.adapter.filter(|name| name != "base")),
            Err(refusal) if began.elapsed() > within => bail!("no answer: {refusal:?}"),
            Err(_) => tokio::time::sleep(Duration::from_secs(2)).await,
        }
    }
}
