//! Runs one target under libFuzzer and reads its output.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use metaclaw_fetch::writing;
use sha2::{Digest, Sha256};

use super::report::{FuzzOutcome, FuzzReport};

/// A longer input reaches nothing that a shorter one does not.
const MAX_LEN: &str = "-max_len=4096";
/// The limits of an input: one that takes more seconds or MiB is a finding.
const LIMITS: [&str; 2] = ["-timeout=10", "-rss_limit_mb=2048"];
/// The number of a panic's lines that are shown.
const COMPLAINT: usize = 12;
/// The interval at which the report on disk is written.
const NOTE_EVERY: Duration = Duration::from_secs(5);

/// A target to run.
#[derive(Debug)]
pub(super) struct FuzzJob<'a> {
    pub(super) target: &'a str,
    pub(super) binary: &'a Path,
    /// The inputs that are part of the checkout.
    pub(super) seeds: &'a Path,
    /// The folder of found inputs, crashing inputs and the report.
    pub(super) folder: &'a Path,
    /// How long it has to run, including the time that it has run already.
    pub(super) seconds: u64,
}

/// A line of libFuzzer's output.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    /// `#1024 NEW cov: 310 ft: 411 corp: 12/340b lim: 4096 exec/s: 512 rss: 40Mb …`
    Progress {
        executions: u64,
        edges: u64,
        corpus: u64,
    },
    /// `stat::number_of_executed_units: 1024`, at the end.
    Executed(u64),
    /// `artifact_prefix='…'; Test unit written to PATH`
    Finding(String),
    Other,
}

// === impl Job ===

impl FuzzJob<'_> {
    /// Runs the target for the rest of its time, and records the outcome.
    pub(super) fn run(&self, report: &mut FuzzReport) -> Result<()> {
        let binary = fs::read(self.binary)
            .with_context(|| format!("cannot read {}", self.binary.display()))?;
        let binary = hex(&Sha256::digest(binary));
        let before = report
            .of(self.target, &binary)
            .unwrap_or_else(|| FuzzOutcome {
                binary,
                ..FuzzOutcome::default()
            });
        // A finding is tried again, because its input is among the first that are run.
        let before = FuzzOutcome {
            findings: Vec::new(),
            ..before
        };
        let left = self.seconds.saturating_sub(before.seconds);
        if left == 0 {
            println!(
                "{}: has run its {} s on this code",
                self.target, self.seconds
            );
            return Ok(());
        }
        println!("{}: {left} s", self.target);
        let outcome = self.fuzz(&before, left, report)?;
        report.put(self.target, &outcome)
    }

    fn fuzz(
        &self,
        before: &FuzzOutcome,
        left: u64,
        report: &mut FuzzReport,
    ) -> Result<FuzzOutcome> {
        let began = Instant::now();
        let mut child = self
            .command(left)?
            .spawn()
            .with_context(|| format!("cannot start {}", self.binary.display()))?;
        let mut outcome = before.clone();
        let mut complaint: Vec<String> = Vec::new();
        let mut noted = Instant::now();
        let lines = child.stderr.take().map(BufReader::new);
        for line in lines.into_iter().flat_map(SplitLines::split_lines) {
            match Said::parse(&line) {
                Said::Progress {
                    executions,
                    edges,
                    corpus,
                } => {
                    outcome.executions = before.executions + executions;
                    (outcome.edges, outcome.corpus) = (edges, corpus);
                }
                Said::Executed(executions) => outcome.executions = before.executions + executions,
                Said::Finding(file) => outcome.findings.push(file),
                // These lines are the panic and its backtrace. libFuzzer's own lines are not shown.
                Said::Other => {
                    if complaint.len() < COMPLAINT
                        && (!complaint.is_empty() || line.contains("panicked at"))
                    {
                        complaint.push(line);
                    }
                }
            }
            outcome.seconds = before.seconds + began.elapsed().as_secs();
            if noted.elapsed() > NOTE_EVERY {
                noted = Instant::now();
                report.put(self.target, &outcome)?;
            }
        }
        let status = child.wait().context("cannot wait for the target")?;
        outcome.seconds = before.seconds + began.elapsed().as_secs();
        if !status.success() {
            println!("{}", complaint.join("\n"));
            if outcome.findings.is_empty() {
                outcome.findings.push(format!("ended with {status}"));
            }
        }
        Ok(outcome)
    }

    fn command(&self, left: u64) -> Result<Command> {
        let corpus = self.folder.join("corpus").join(self.target);
        let artifacts = self.folder.join("artifacts").join(self.target);
        for folder in [&corpus, &artifacts] {
            writing(fs::create_dir_all(folder), folder)?;
        }
        let mut command = Command::new(self.binary);
        command
            // New inputs go to the first folder. The others are only read.
            .args([&corpus, self.seeds, &artifacts])
            .arg(format!("-max_total_time={left}"))
            .arg(format!("-artifact_prefix={}/", artifacts.display()))
            .args([MAX_LEN, "-print_final_stats=1", "-reload=0"])
            .args(LIMITS)
            .stdin(Stdio::null())
            .stderr(Stdio::piped());
        Ok(command)
    }
}

/// Reads lines that may not be UTF-8, because libFuzzer shows bytes of the inputs.
trait SplitLines: BufRead + Sized {
    fn split_lines(self) -> impl Iterator<Item = String> {
        self.split(b'\n')
            .map_while(Result::ok)
            .map(|line| String::from_utf8_lossy(&line).into_owned())
    }
}

impl<R: BufRead> SplitLines for R {}

// === impl Said ===

impl Said {
    fn parse(line: &str) -> Self {
        if let Some((_, file)) = line.split_once("Test unit written to ") {
            return Self::Finding(file.trim().to_owned());
        }
        if let Some(n) = line.strip_prefix("stat::number_of_executed_units:") {
            return n.trim().parse().map_or(Self::Other, Self::Executed);
        }
        Self::progress(line).unwrap_or(Self::Other)
    }

    fn progress(line: &str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let executions = words.next()?.strip_prefix('#')?.parse().ok()?;
        let words: Vec<&str> = words.collect();
        let after = |name: &str| {
            let at = words.iter().position(|word| *word == name)?;
            words.get(at + 1).copied()
        };
        Some(Self::Progress {
            executions,
            edges: after("cov:")?.parse().ok()?,
            corpus: after("corp:")?.split('/').next()?.parse().ok()?,
        })
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_libfuzzer_prints() {
        let pulse =
            "#4194304\tpulse  cov: 1310 ft: 4411 corp: 812/34Kb lim: 4096 exec/s: 52428 rss: 140Mb";
        let progress = Said::Progress {
            executions: 4_194_304,
            edges: 1310,
            corpus: 812,
        };
        assert_eq!(Said::parse(pulse), progress);
        assert_eq!(
            Said::parse("stat::number_of_executed_units: 99"),
            Said::Executed(99)
        );
        assert_eq!(
            Said::parse("artifact_prefix='a/'; Test unit written to a/crash-0f"),
            Said::Finding("a/crash-0f".to_owned())
        );
        assert_eq!(Said::parse("#2\tINITED"), Said::Other);
        assert_eq!(Said::parse("INFO: Seed: 1"), Said::Other);
    }
}
