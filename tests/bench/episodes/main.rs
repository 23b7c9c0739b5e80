//! `cargo xtask bench episodes` measures whether an agent that does tasks gets better at them.
//!
//! The demo model does tasks of our own through the product (`metaclaw rollout run`) and is trained on their outcomes.
//! Each run, a family of tasks with a seed, is a home with a proxy and a training server of its own. A finished run is a
//! line of runs.jsonl and is not repeated; a stopped one continues with its next episode.

mod tasks;
mod trained;

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Result;
use clap::Parser;
use metaclaw_tests::{
    bench::{append, records},
    external,
};

use self::{
    tasks::BenchFamily,
    trained::{EpisodeRecord, EpisodeRun},
};

/// The steps of a run.
const STEPS: u64 = 24;
/// The seeds of the tool calls; of the commands, the first alone.
const SEEDS: [u64; 3] = [1, 2, 3];
/// Where the base model has to be with calls of tools, so that the tasks are neither too hard nor known already.
const BASE: std::ops::RangeInclusive<f64> = 0.1..=0.4;
/// What calls of tools have to reach.
const REACHED: f64 = 0.8;
/// By how much one-line commands have to succeed more often.
const FACTOR: f64 = 2.0;
/// The probes that may be lost.
const MOST_LOST: u64 = 2;
/// The characters of a reply that are shown.
const LINE: usize = 160;

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
    let there: Vec<EpisodeRecord> = records(&out);
    for run in flags.runs() {
        if flags.show || there.iter().any(|record| run.is(record)) {
            continue;
        }
        let name = run.name();
        println!("{name}: {} steps", run.steps);
        let record = run.run(&external::bin_dir(), &out).await?;
        append(&out, &record)?;
        fs::remove_dir_all(out.join(name))?;
    }
    let is_kept = report(&out)?;
    Ok(ExitCode::from(u8::from(!is_kept)))
}

/// Prints and writes all results of a folder; returns whether all are as promised.
fn report(out: &Path) -> Result<bool> {
    let records: Vec<EpisodeRecord> = records(out);
    let read: Vec<String> = records.iter().map(episodes).collect();
    let table = table(&records);
    println!("{}\n{table}", read.join("\n"));
    fs::write(out.join("episodes.txt"), read.join("\n"))?;
    fs::write(out.join("table.txt"), &table)?;
    println!(
        "episodes.txt, table.txt and runs.jsonl are in {}",
        out.display()
    );
    Ok(!table.contains("MISSED"))
}

/// Returns the table, with what was missed.
fn table(records: &[EpisodeRecord]) -> String {
    let mut text = format!(
        "{:<9} {:>4} {:>4} {:>5} {:<28} {:>7} {:>8} {:>7}\n",
        "track",
        "seed",
        "gate",
        "steps",
        "pass@1 on held-out tasks",
        "probes",
        "episodes",
        "minutes"
    );
    for record in records {
        let curve: Vec<String> = record
            .curve
            .iter()
            .map(|(_, rate)| format!("{rate:.2}"))
            .collect();
        let _ = writeln!(
            text,
            "{:<9} {:>4} {:>4} {:>5} {:<28} {:>7} {:>8} {:>7.1}",
            record.track,
            record.seed,
            if record.gate { "on" } else { "off" },
            record.steps,
            curve.join(" "),
            format!("{}, {}", record.probes_before, record.probes_after),
            record.n_episodes,
            record.minutes
        );
        for miss in missed(record) {
            let _ = writeln!(text, "  MISSED  {miss}");
        }
    }
    text
}

/// Returns what a run has missed, in words.
fn missed(record: &EpisodeRecord) -> Vec<String> {
    let rate = |measured: Option<&(String, f64)>| measured.map_or(0.0, |(_, rate)| *rate);
    let (before, after) = (rate(record.curve.first()), rate(record.curve.last()));
    let mut missed = Vec::new();
    if record.track == BenchFamily::SmartHome.track() {
        if !BASE.contains(&before) {
            missed.push(format!(
                "before: {before:.2}, {} to {}",
                BASE.start(),
                BASE.end()
            ));
        }
        if after < REACHED {
            missed.push(format!("after: {after:.2}, at least {REACHED}"));
        }
    } else if after < FACTOR * before || after <= before {
        missed.push(format!(
            "after: {after:.2}, at least {FACTOR} times {before:.2}"
        ));
    }
    let lost = record.probes_before.saturating_sub(record.probes_after);
    if lost > MOST_LOST {
        missed.push(format!("probes lost: {lost}, at most {MOST_LOST}"));
    }
    missed
}

/// Returns episodes before and after training, to be read, each reply in one line.
fn episodes(record: &EpisodeRecord) -> String {
    let mut text = format!("{}, seed {}\n", record.track, record.seed);
    for (before, after) in record.before.iter().zip(&record.after) {
        let _ = writeln!(text, "\n{}", before.asked);
        for (when, episode) in [("before", before), ("after", after)] {
            let line: String = episode
                .replied
                .replace('\n', "\\n")
                .chars()
                .take(LINE)
                .collect();
            let _ = writeln!(text, "  {when:<7} {} {line}", episode.score);
        }
    }
    text
}

// === impl EpisodesFlags ===

impl EpisodesFlags {
    fn runs(&self) -> Vec<EpisodeRun> {
        let mut runs = Vec::new();
        for family in BenchFamily::ALL {
            if self
                .only
                .as_ref()
                .is_some_and(|track| track != family.track())
            {
                continue;
            }
            let all = match family {
                BenchFamily::SmartHome => &SEEDS[..],
                BenchFamily::OneLiners => &SEEDS[..1],
            };
            let (steps, gate) = (self.steps, self.gate);
            for seed in self.seeds.as_deref().unwrap_or(all).iter().copied() {
                runs.push(EpisodeRun {
                    family,
                    seed,
                    steps,
                    gate,
                });
            }
        }
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missed_is_said() {
        for (track, before, after, probes_after, is_missed) in [
            ("toolcall", 0.2, 0.8, 56, false),
            ("terminal", 0.1, 0.2, 58, false),
            ("toolcall", 0.05, 0.9, 58, true),
            ("toolcall", 0.2, 0.79, 58, true),
            ("toolcall", 0.2, 0.9, 55, true),
            ("terminal", 0.1, 0.19, 58, true),
            ("terminal", 0.0, 0.0, 58, true),
        ] {
            let record = EpisodeRecord {
                track: track.to_owned(),
                curve: vec![("0".to_owned(), before), ("4".to_owned(), after)],
                probes_before: 58,
                probes_after,
                ..EpisodeRecord::default()
            };
            let text = table(&[record]);
            assert_eq!(text.contains("MISSED"), is_missed, "{text}");
        }
    }
}
