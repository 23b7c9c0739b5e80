//! `cargo xtask bench episodes` measures whether an agent that does tasks gets better at them.
//!
//! The demo model does tasks of our own through the product (`metaclaw rollout run`) and is trained on their outcomes.
//! Each run, a family of tasks with a seed, is a home with a proxy and a training server of its own. A finished run is a
//! line of runs.jsonl and is not repeated; a stopped one continues with its next episode.

mod draw;
mod family;
mod one_liners;
mod share;
mod smart_home;
mod targets;
mod trained;

use std::{
    fs::{self, OpenOptions},
    io::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Result;
use clap::Parser;
use metaclaw_tests::external;

use self::{
    family::BenchFamily,
    trained::{EpisodeRecord, EpisodeRun},
};

/// The steps of a run.
const STEPS: u64 = 24;
/// The seeds of the tool calls; of the commands, the first alone.
const SEEDS: [u64; 3] = [1, 2, 3];

#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench episodes")]
struct EpisodesFlags {
    /// Where records, the table and the episodes go; runs already there are not run again.
    #[arg(long)]
    out: PathBuf,
    /// One track alone: toolcall or terminal.
    #[arg(long)]
    only: Option<String>,
    /// These seeds of each track.
    #[arg(long, value_delimiter = ',')]
    seeds: Option<Vec<u64>>,
    /// So many steps of each run.
    #[arg(long, default_value_t = STEPS)]
    steps: u64,
    /// The gate tests the adapter of each step, as it does unless it is switched off. This takes most of the time.
    #[arg(long)]
    gate: bool,
    /// Removes what is in --out first.
    #[arg(long)]
    again: bool,
    /// Runs nothing: shows what is in --out.
    #[arg(long)]
    show: bool,
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let flags = EpisodesFlags::parse();
    if flags.again && flags.out.exists() {
        fs::remove_dir_all(&flags.out)?;
    }
    fs::create_dir_all(&flags.out)?;
    let out = flags.out.canonicalize()?;
    if !flags.show {
        for run in flags.runs() {
            let name = run.name();
            if records(&out)?.iter().any(|it| run.is(it)) {
                continue;
            }
            println!("{name}: {} steps", run.steps);
            let record = run.run(&external::bin_dir(), &out).await?;
            append(&out, &record)?;
            fs::remove_dir_all(out.join(name))?;
        }
    }
    let is_kept = report(&out)?;
    Ok(if is_kept {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Prints and writes all results of a folder; returns whether all are as promised.
fn report(out: &Path) -> Result<bool> {
    let records = records(out)?;
    let read: Vec<String> = records.iter().map(targets::episodes).collect();
    let (table, is_kept) = targets::table(&records);
    println!("{}\n{table}", read.join("\n"));
    fs::write(out.join("episodes.txt"), read.join("\n"))?;
    fs::write(out.join("table.txt"), &table)?;
    println!(
        "episodes.txt, table.txt and runs.jsonl are in {}",
        out.display()
    );
    Ok(is_kept)
}

/// Returns the runs that have ended.
fn records(out: &Path) -> Result<Vec<EpisodeRecord>> {
    let text = fs::read_to_string(out.join("runs.jsonl")).unwrap_or_default();
    let lines = text.lines().map(serde_json::from_str);
    Ok(lines.collect::<Result<_, _>>()?)
}

fn append(out: &Path, record: &EpisodeRecord) -> Result<()> {
    let mut file = OpenOptions::new();
    let mut file = file
        .create(true)
        .append(true)
        .open(out.join("runs.jsonl"))?;
    Ok(writeln!(file, "{}", serde_json::to_string(record)?)?)
}

// === impl EpisodesFlags ===

impl EpisodesFlags {
    fn runs(&self) -> Vec<EpisodeRun> {
        let is_wanted = |family: &BenchFamily| match &self.only {
            Some(track) => family.track() == track,
            None => true,
        };
        let mut runs = Vec::new();
        for family in BenchFamily::ALL.into_iter().filter(is_wanted) {
            let all = match family {
                BenchFamily::SmartHome => SEEDS.to_vec(),
                BenchFamily::OneLiners => SEEDS[..1].to_vec(),
            };
            for seed in self.seeds.clone().unwrap_or(all) {
                runs.push(EpisodeRun {
                    family,
                    seed,
                    steps: self.steps,
                    gate: self.gate,
                });
            }
        }
        runs
    }
}
