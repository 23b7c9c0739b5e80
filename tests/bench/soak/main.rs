//! `cargo xtask soak` runs an hour of a training server's typical work, and measures whether its memory grows.
//!
//! The load consists of chats that stream, some of which are dropped; training steps, some of which are cancelled; and
//! a new adapter and a checkpoint every few steps, which the chats then use. Memory, threads and disk are recorded all
//! the time. The server is in a process group of its own, so that an interrupted soak can continue with it, if it still
//! runs.

mod judge;
mod load;
mod server;

use std::{
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use clap::Parser;
use metaclaw_tests::external;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use self::{
    load::{Counts, Load},
    server::{Journal, Server},
};

/// The interval at which memory and threads are read.
const SAMPLE_EVERY: Duration = Duration::from_secs(5);
/// Chats at once.
const CHATS: usize = 3;

#[derive(Debug, Parser)]
struct Flags {
    /// How long.
    #[arg(long, default_value_t = 60.0)]
    minutes: f64,
    /// Where samples, the server's log and result.json go; a soak that was interrupted is gone on with from there.
    #[arg(long)]
    out: PathBuf,
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let flags = Flags::parse();
    std::fs::create_dir_all(&flags.out)?;
    let (server, before) = Server::start_or_join(&flags.out, &external::bin_dir()).await?;
    let journal = Arc::new(Journal::open(&flags.out, before)?);
    let counts = Arc::new(Counts::default());
    let began = Instant::now();
    let left = Duration::from_secs_f64((flags.minutes * 60.0 - before).max(0.0));
    let mut tasks = JoinSet::new();
    for chat in 0..CHATS {
        let load = Load::new(&server, &journal, &counts);
        tasks.spawn(async move { load.chat(chat).await });
    }
    let load = Load::new(&server, &journal, &counts);
    tasks.spawn(async move { load.train().await });
    let mut told = Instant::now();
    while began.elapsed() < left {
        let sample = server.sample()?;
        journal.write("sample", &sample)?;
        if told.elapsed() > Duration::from_secs(60) {
            told = Instant::now();
            println!(
                "{:5.1} min  {sample}  {}",
                journal.seconds() / 60.0,
                counts.shown()
            );
        }
        tokio::select! {
            () = tokio::time::sleep(SAMPLE_EVERY) => {}
            Some(ended) = tasks.join_next() => {
                ended.context("a part of the load panicked")??;
            }
        }
    }
    tasks.shutdown().await;
    journal.write("sample", &server.sample()?)?;
    journal.write("counts", &counts.shown())?;
    let ended = server.stop().await;
    let result = judge::judge(&journal.read(), flags.minutes, &ended);
    finish(&flags, &result)
}

fn finish(flags: &Flags, result: &Value) -> Result<ExitCode> {
    let text = serde_json::to_string_pretty(result)?;
    println!("{text}");
    std::fs::write(flags.out.join("result.json"), text + "\n")?;
    // A finished soak is not continued.
    let state = flags.out.join(server::STATE);
    std::fs::remove_file(&state).with_context(|| format!("cannot remove {}", state.display()))?;
    Ok(if result["is_kept"] == json!(true) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
