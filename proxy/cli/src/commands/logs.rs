//! `metaclaw logs`: what the proxy in the background says of itself.

use std::{
    fs::File,
    io::{self, Read as _, Seek as _, SeekFrom},
    path::Path,
    time::Duration,
};

use clap::Args;
use metaclaw_chat::if_there;
use tokio::time::{MissedTickBehavior, interval};
use tracing::Level;

use super::context::Context;
use crate::{logging, out, signals::Signals};

const EVERY: Duration = Duration::from_millis(300);

#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    /// Also print new lines as they come, until Ctrl-C.
    #[arg(short, long)]
    follow: bool,
    /// How many of the last lines are printed.
    #[arg(short = 'n', long = "lines", value_name = "N", default_value_t = 50)]
    n: usize,
    /// The lowest level that is printed.
    #[arg(long, default_value = "trace", value_parser = ["error", "warn", "info", "debug", "trace"])]
    level: String,
}

// === impl LogsArgs ===

impl LogsArgs {
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<()> {
        let path = context.home.log_file();
        anyhow::ensure!(
            path.exists(),
            "there is no {}: `metaclaw start -d` writes one; a proxy in the foreground writes to its own terminal, a service to the journal (`journalctl --user -u metaclaw`)",
            path.display()
        );
        let mut filter = Filter::new(&self.level)?;
        let mut tail = Tail::default();
        let lines = last(&path, &mut tail, &mut filter, self.n)?;
        if out::lines_are_read(&lines)? && self.follow {
            follow(&path, tail, filter).await?;
        }
        Ok(())
    }
}

/// Returns the last lines that pass, from the file and, if it was rotated lately, from the one before.
fn last(path: &Path, tail: &mut Tail, filter: &mut Filter, n: usize) -> io::Result<Vec<String>> {
    let older = whole(&logging::older(path))?;
    let all = older.into_iter().chain(tail.new_lines(path)?);
    let mut lines: Vec<String> = all.filter(|line| filter.passes(line)).collect();
    Ok(lines.split_off(lines.len().saturating_sub(n)))
}

async fn follow(path: &Path, mut tail: Tail, mut filter: Filter) -> anyhow::Result<()> {
    let mut signals = Signals::new()?;
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = signals.next() => return Ok(()),
            _ = ticks.tick() => {
                let mut lines = tail.new_lines(path)?;
                lines.retain(|line| filter.passes(line));
                if !out::lines_are_read(&lines)? {
                    return Ok(());
                }
            }
        }
    }
}

/// Passes lines of a level or worse; a line without a level belongs to the one before it.
#[derive(Debug)]
struct Filter {
    least: Level,
    passed: bool,
}

// === impl Filter ===

impl Filter {
    /// # Errors
    /// Returns an error if there is no such level.
    fn new(level: &str) -> anyhow::Result<Self> {
        Ok(Self {
            least: level.parse()?,
            passed: true,
        })
    }

    fn passes(&mut self, line: &str) -> bool {
        if let Some(level) = level(line) {
            // A worse level is the lower value.
            self.passed = level <= self.least;
        }
        self.passed
    }
}

/// Returns the level of a line, which comes after its time: `2026-11-22T15:00:00.000000Z  WARN ..`.
fn level(line: &str) -> Option<Level> {
    let mut words = line.split_whitespace();
    let time = words.next()?;
    let is_time = time.starts_with(|c: char| c.is_ascii_digit()) && time.contains('T');
    words.next().filter(|_| is_time)?.parse().ok()
}

#[derive(Debug, Default)]
struct Tail {
    at: u64,
    open: Vec<u8>,
}

// === impl Tail ===

impl Tail {
    /// Returns complete lines that were added since the last call. Lines from before a rotation are in the older file.
    fn new_lines(&mut self, path: &Path) -> io::Result<Vec<String>> {
        let mut file = File::open(path)?;
        if file.metadata()?.len() < self.at {
            if let Ok(mut older) = File::open(logging::older(path)) {
                self.read_on(&mut older)?;
            }
            self.at = 0;
        }
        self.read_on(&mut file)?;
        let Some(end) = self.open.iter().rposition(|byte| *byte == b'\n') else {
            return Ok(Vec::new());
        };
        let whole: Vec<u8> = self.open.drain(..=end).collect();
        Ok(lines_of(&whole))
    }

    fn read_on(&mut self, file: &mut File) -> io::Result<()> {
        file.seek(SeekFrom::Start(self.at))?;
        self.at += file.read_to_end(&mut self.open)? as u64;
        Ok(())
    }
}

fn whole(path: &Path) -> io::Result<Vec<String>> {
    let bytes = if_there(std::fs::read(path))?;
    Ok(bytes.map(|it| lines_of(&it)).unwrap_or_default())
}

fn lines_of(bytes: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes);
    text.lines().map(str::to_owned).collect()
}

#[cfg(test)]
mod entries_tests {
    use super::*;

    #[test]
    fn a_line_without_a_level_goes_with_the_one_before() {
        let mut filter = Filter::new("warn").unwrap();
        let lines = [
            ("2026-11-22T15:00:00.1Z  INFO metaclaw: starts", false),
            ("  of it", false),
            ("2026-11-22T15:00:00.1Z  WARN metaclaw: slow", true),
            ("panicked at ERROR", true),
            ("2026-11-22T15:00:00.1Z ERROR metaclaw: gone", true),
            ("2026-11-22T15:00:00.1Z DEBUG metaclaw: x", false),
        ];
        for (line, passes) in lines {
            assert_eq!(filter.passes(line), passes, "{line}");
        }
    }
}

#[cfg(test)]
mod tail_tests {
    use std::{fs, io::Write as _};

    use super::*;

    #[test]
    fn nothing_is_lost_when_the_file_begins_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metaclaw.log");
        fs::write(&path, "one\ntwo\nhal").unwrap();
        let mut tail = Tail::default();
        assert_eq!(tail.new_lines(&path).unwrap(), ["one", "two"]);
        let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"f\nthree\n").unwrap();
        // This rotates the file as the log does.
        fs::copy(&path, logging::older(&path)).unwrap();
        file.set_len(0).unwrap();
        file.write_all(b"four\n").unwrap();
        assert_eq!(tail.new_lines(&path).unwrap(), ["half", "three", "four"]);
        assert_eq!(tail.new_lines(&path).unwrap(), Vec::<String>::new());
    }
}
