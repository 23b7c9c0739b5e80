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
    instance::LogOpening,
    rollouts::{Imported, RolloutImport},
};
use metaclaw_turns::MAX_IMPORT_BYTES;

use super::{
    super::{
        calling::{call, caller_opening},
        context::Context,
    },
    exported,
};
use crate::out;

/// Stands for standard input.
const STDIN: &str = "-";

/// Reads, checks and imports a file; `-` is standard input.
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
    if exported::is_exported(&first) {
        let whole = io::Cursor::new(first).chain(from);
        return restore(context, &name, BufReader::new(whole), json).await;
    }
    read(from, &mut first).with_context(cannot_read)?;
    let import = RolloutImport::read(&name, &first, now_ms())?;
    let imported = call(context, "turns import", import).await?;
    Ok(out::answer(&imported, json, |it| told(&name, it))?)
}

fn is_stdin(file: &Path) -> bool {
    file == Path::new(STDIN)
}

/// Takes back what was exported.
async fn restore(
    context: &Context,
    name: &str,
    from: impl BufRead,
    json: bool,
) -> anyhow::Result<()> {
    let caller = caller_opening(context, "turns import", LogOpening::OrBegin).await?;
    let restored = exported::import(&caller, name, from).await;
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

/// The first line that is not empty, and what stands before it.
fn first_line(from: &mut impl BufRead) -> anyhow::Result<String> {
    let mut first = String::new();
    while let Some(line) = exported::next_line(from)? {
        first.push_str(&line);
        if !line.trim().is_empty() {
            break;
        }
    }
    Ok(first)
}

/// The rest of a file of rollouts.
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

fn told(name: &str, imported: &Imported) -> String {
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
