//! `cargo xtask soak` runs an hour of a training server's typical work, and measures whether its memory grows.
//!
//! The load consists of chats that stream, some of which are dropped; training steps, some of which are cancelled; and
//! a new adapter and a checkpoint every few steps, which the chats then use. Memory, threads and disk are recorded all
//! the time.

mod judge;
mod load;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use clap::Parser;
use metaclaw_tests::{
    bench::status_kib,
    external,
    home::signal,
    trainer::{Start, Trainer},
    wait::until,
};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use self::load::{Journal, Load};

/// The interval at which memory and threads are read.
const SAMPLE_EVERY: Duration = Duration::from_secs(5);
/// Chats at once.
const CHATS: usize = 3;
/// What the server gives itself for running replies, and some.
const ENDS_WITHIN: Duration = Duration::from_secs(45);

#[derive(Debug, Parser)]
struct Flags {
    /// How long.
    #[arg(long, default_value_t = 60.0)]
    minutes: f64,
    /// Where samples, the server's log and result.json go.
    #[arg(long)]
    out: PathBuf,
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let flags = Flags::parse();
    let checkpoints = flags.out.join("checkpoints");
    if checkpoints.exists() {
        fs::remove_dir_all(&checkpoints)?;
    }
    fs::create_dir_all(&flags.out)?;
    let start = Start {
        model: Some(external::model()),
        checkpoints: Some(checkpoints.clone()),
        log: Some(flags.out.join("trainer.log")),
        ..Start::default()
    };
    let server = Trainer::start(&start).await;
    let journal = Arc::new(Journal::create(&flags.out.join("journal.jsonl"))?);
    let load = Arc::new(Load::new(&server.url, checkpoints, &journal));
    let (began, whole) = (
        Instant::now(),
        Duration::from_secs_f64(flags.minutes * 60.0),
    );
    let mut tasks = JoinSet::new();
    for chat in 0..CHATS {
        let load = Arc::clone(&load);
        tasks.spawn(async move { load.chat(chat).await });
    }
    let training = Arc::clone(&load);
    tasks.spawn(async move { training.train().await });
    let mut shown = Instant::now();
    while began.elapsed() < whole {
        let sample = sample(server.pid())?;
        journal.write("sample", &sample)?;
        if shown.elapsed() > Duration::from_secs(60) {
            shown = Instant::now();
            let minutes = began.elapsed().as_secs_f64() / 60.0;
            println!("{minutes:5.1} min  {sample}  {}", load.counts());
        }
        tokio::select! {
            () = tokio::time::sleep(SAMPLE_EVERY) => {}
            Some(ended) = tasks.join_next() => {
                ended.context("a part of the load panicked")??;
            }
        }
    }
    tasks.shutdown().await;
    journal.write("sample", &sample(server.pid())?)?;
    journal.write("counts", &load.counts())?;
    let ended = stop(server.pid()).await;
    let result = judge::judge(&journal.lines(), flags.minutes, &ended);
    println!("{result:#}");
    write(&flags.out.join("result.json"), &result)?;
    let is_kept = result["is_kept"] == true;
    Ok(ExitCode::from(u8::from(!is_kept)))
}

fn write(file: &Path, result: &Value) -> Result<()> {
    fs::write(file, format!("{result:#}\n"))
        .with_context(|| format!("cannot write {}", file.display()))
}

/// Returns memory, and threads by name.
fn sample(pid: u32) -> Result<Value> {
    let rss_kib =
        status_kib(pid, "VmRSS:").context("the server has ended: trainer.log says why")?;
    let mut threads = BTreeMap::new();
    for task in fs::read_dir(format!("/proc/{pid}/task"))?.flatten() {
        // One that ends meanwhile is no thread any more.
        if let Ok(name) = fs::read_to_string(task.path().join("comm")) {
            *threads.entry(name.trim().to_owned()).or_insert(0) += 1;
        }
    }
    Ok(json!({"rss_kib": rss_kib, "threads": threads}))
}

/// Tells the server to end; the result is empty when it did so by itself and in time.
async fn stop(pid: u32) -> String {
    if let Err(error) = signal(pid, Signal::TERM) {
        return format!("it was gone before it was told to end: {error:#}");
    }
    // A child that has ended has no memory any more.
    let ended = until(ENDS_WITHIN, async || sample(pid).is_err()).await;
    if ended.is_err() {
        return format!("it had not ended {ENDS_WITHIN:?} after it was told to");
    }
    String::new()
}
