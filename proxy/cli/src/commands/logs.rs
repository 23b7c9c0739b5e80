//! `metaclaw logs`: what the proxy in the background says of itself.

use std::{io, path::Path, time::Duration};

use clap::Args;
use tokio::time::{MissedTickBehavior, interval};

use self::{entries::Filter, tail::Tail};
use super::context::Context;
use crate::{logging, out, signals::Signals};

mod entries;
mod tail;

const EVERY: Duration = Duration::from_millis(300);

/// Arguments of `logs`.
#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    /// Go on with what comes, until Ctrl-C.
    #[arg(short, long)]
    follow: bool,
    /// So many of the last lines.
    #[arg(short = 'n', long = "lines", value_name = "N", default_value_t = 50)]
    n: usize,
    /// Only lines of this level or worse.
    #[arg(long, default_value = "trace", value_parser = ["error", "warn", "info", "debug", "trace"])]
    level: String,
}

// === impl LogsArgs ===

impl LogsArgs {
    /// Does it.
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
    let older = tail::whole(&logging::older(path))?;
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
