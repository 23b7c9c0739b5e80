//! What `metaclaw turns export` wrote, read again line by line.

use std::io::{self, BufRead};

use anyhow::{Context as _, ensure};
use metaclaw_control::{caller::ControlCaller, operations::turns::RaiseCounts};
use metaclaw_turns::{ExportedTurn, LogCounts, RestoreOutcome};
use serde::Deserialize;

use super::super::restoring::RestorePieces;

/// The longest line: a turn with all that was said before it.
const MAX_LINE: u64 = 128 << 20;

/// What a line of an export has, and none of rollouts.
#[derive(Deserialize)]
#[expect(dead_code, reason = "that they are there is what is asked")]
struct ExportMark {
    id: String,
    chain: String,
    request: serde::de::IgnoredAny,
}

/// Whether a file that begins with this line is an export.
pub(super) fn is_exported(line: &str) -> bool {
    serde_json::from_str::<ExportMark>(line).is_ok()
}

/// Takes all turns of an export into the log. What was taken before a line that does not read stays; taken again, nothing comes twice.
pub(super) async fn import(
    caller: &ControlCaller,
    name: &str,
    mut from: impl BufRead,
) -> anyhow::Result<RestoreOutcome> {
    let mut pieces = RestorePieces::new(caller);
    let mut counts: Option<LogCounts> = None;
    for number in 1_u64.. {
        let at = || format!("{name}, line {number}");
        let Some(line) = next_line(&mut from).with_context(at)? else {
            break;
        };
        if line.trim().is_empty() {
            continue;
        }
        let exported: ExportedTurn = serde_json::from_str(&line).with_context(|| {
            format!("{name}, line {number} is no turn of an export; those before it are in the log")
        })?;
        counts = exported.log_counts.or(counts);
        pieces
            .add(exported.turn, line.len())
            .await
            .with_context(at)?;
    }
    let outcome = pieces.finish().await?;
    if let Some(counts) = counts {
        caller.call(RaiseCounts(counts)).await?;
    }
    Ok(outcome)
}

/// The next line; none at the end.
pub(super) fn next_line(from: &mut impl BufRead) -> anyhow::Result<Option<String>> {
    let mut line = String::new();
    let n_bytes = io::Read::take(&mut *from, MAX_LINE).read_line(&mut line)?;
    let is_whole = line.ends_with('\n') || (n_bytes as u64) < MAX_LINE;
    ensure!(is_whole, "a line has more than {} MiB", MAX_LINE >> 20);
    Ok((n_bytes > 0).then_some(line))
}
