//! `metaclaw turns import`: what `metaclaw turns export` wrote; or turns that were had elsewhere, all of a file or none.

use std::{
    fmt::Write as _,
    fs::File,
    io::{self, BufRead, BufReader, Read as _},
    path::Path,
};

use anyhow::{Context as _, ensure};
use metaclaw_chat::{now_ms, regular};
use metaclaw_control::{
    caller::ControlCaller,
    instance::LogOpening,
    operations::turns::RaiseCounts,
    rollouts::{Imported, RolloutImport},
};
use metaclaw_turns::{ExportedTurn, ImportOutcome, LogCounts, MAX_IMPORT_BYTES};
use serde::Deserialize;

use super::super::{
    calling::{call, caller_opening},
    context::Context,
    restoring::RestorePieces,
};
use crate::out;

const STDIN: &str = "-";
/// The longest line: a turn with all that was said before it.
const MAX_LINE: u64 = 128 << 20;

pub(super) async fn import(context: &Context, file: &Path, json: bool) -> anyhow::Result<()> {
    let cannot_read = || format!("cannot read {}", file.display());
    let name = file.file_name().unwrap_or(file.as_os_str());
    let name = if is_stdin(file) {
        "standard input".into()
    } else {
        name.to_string_lossy()
    };
    let mut from = open(file).with_context(cannot_read)?;
    let mut first = first_line(&mut from).with_context(cannot_read)?;
    if is_exported(&first) {
        let whole = io::Cursor::new(first).chain(from);
        return restore(context, &name, BufReader::new(whole), json).await;
    }
    read(from, &mut first).with_context(cannot_read)?;
    let import = RolloutImport::read(&name, &first, now_ms())?;
    let imported = call(context, "turns import", import).await?;
    Ok(out::answer(&imported, json, |it| imported_text(&name, it))?)
}

fn is_stdin(file: &Path) -> bool {
    file == Path::new(STDIN)
}

async fn restore(
    context: &Context,
    name: &str,
    from: impl BufRead,
    json: bool,
) -> anyhow::Result<()> {
    let caller = caller_opening(context, "turns import", LogOpening::OrBegin).await?;
    let restored = import_exported(&caller, name, from).await;
    caller.close().await;
    let outcome = restored?;
    if json {
        return Ok(out::json(&outcome)?);
    }
    let mut told = format!(
        "{} of {name} imported",
        out::count(outcome.n_new as u64, "turn")
    );
    if outcome.n_known > 0 {
        let _ = write!(told, "; the log had {} already", outcome.n_known);
    }
    Ok(out::line(told)?)
}

fn open(file: &Path) -> io::Result<Box<dyn BufRead>> {
    Ok(if is_stdin(file) {
        Box::new(BufReader::new(io::stdin()))
    } else {
        Box::new(BufReader::new(File::open(regular(file)?)?))
    })
}

fn first_line(from: &mut impl BufRead) -> anyhow::Result<String> {
    let mut first = String::new();
    while let Some(line) = next_line(from)? {
        first.push_str(&line);
        if !line.trim().is_empty() {
            break;
        }
    }
    Ok(first)
}

fn read(from: impl io::Read, text: &mut String) -> anyhow::Result<()> {
    from.take(MAX_IMPORT_BYTES as u64 + 1)
        .read_to_string(text)?;
    let max = MAX_IMPORT_BYTES >> 20;
    ensure!(
        text.len() <= MAX_IMPORT_BYTES,
        "it has more than {max} MiB: split it"
    );
    Ok(())
}

fn imported_text(name: &str, imported: &Imported) -> String {
    let Imported {
        n_new,
        n_known,
        n_with_ids,
    } = imported;
    let mut told = format!("{} of {name} imported", out::count(*n_new as u64, "turn"));
    if *n_known > 0 {
        let _ = write!(told, "; the log had {n_known} already");
    }
    let _ = write!(told, "; {n_with_ids} have token ids, which steps can use");
    told
}

/// The fields by which a line of an export is recognised. A line of rollouts has none of them.
#[derive(Deserialize)]
#[expect(dead_code, reason = "only their presence is checked")]
struct ExportMark {
    id: String,
    chain: String,
    request: serde::de::IgnoredAny,
}

fn is_exported(line: &str) -> bool {
    serde_json::from_str::<ExportMark>(line).is_ok()
}

/// Takes all turns of an export into the log. What was taken before a line that does not read stays; taken again, nothing comes twice.
async fn import_exported(
    caller: &ControlCaller,
    name: &str,
    mut from: impl BufRead,
) -> anyhow::Result<ImportOutcome> {
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

fn next_line(from: &mut impl BufRead) -> anyhow::Result<Option<String>> {
    let mut line = String::new();
    let n_bytes = io::Read::take(&mut *from, MAX_LINE).read_line(&mut line)?;
    let is_whole = line.ends_with('\n') || (n_bytes as u64) < MAX_LINE;
    ensure!(is_whole, "a line has more than {} MiB", MAX_LINE >> 20);
    Ok((n_bytes > 0).then_some(line))
}
