//! `metaclaw turns import`: turns that were had elsewhere, all of a file or none.

use std::{
    fmt::Write as _,
    fs::File,
    io::{self, Read as _},
    path::Path,
    time::Duration,
};

use anyhow::{Context as _, bail, ensure};
use metaclaw_chat::now_ms;
use metaclaw_turns::MAX_IMPORT_BYTES;

use super::super::{context::Context, source::TurnSource};
use crate::{
    out,
    rollouts::{Import, Imported},
};

/// Stands for standard input.
const STDIN: &str = "-";
/// Until it is in the log.
const DEADLINE: Duration = Duration::from_secs(600);

/// Reads, checks and imports a file; `-` is standard input.
pub(super) async fn import(context: &Context, file: &Path, json: bool) -> anyhow::Result<()> {
    let text = read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let name = file.file_name().unwrap_or(file.as_os_str());
    let name = if is_stdin(file) {
        "standard input".into()
    } else {
        name.to_string_lossy()
    };
    let import = Import::read(&name, &text, now_ms())?;
    let n_with_ids = import.n_with_ids();
    let source = TurnSource::open(context, "turns import").await?;
    let imported = match &source {
        TurnSource::Running(client) => client.order("import", &import, DEADLINE).await?,
        TurnSource::Files { .. } if n_with_ids > 0 => bail!(
            "{name} has token ids, which are checked against the policy model: `metaclaw start` first"
        ),
        TurnSource::Files { log, .. } => {
            let outcome = log.import(import.turns(None, now_ms())?).await?;
            Imported::of(outcome, n_with_ids)
        }
    };
    source.close().await?;
    if json {
        return Ok(out::json(&imported)?);
    }
    Ok(out::line(told(&name, &imported))?)
}

fn is_stdin(file: &Path) -> bool {
    file == Path::new(STDIN)
}

fn read(file: &Path) -> anyhow::Result<String> {
    let from: Box<dyn io::Read> = if is_stdin(file) {
        Box::new(io::stdin().lock())
    } else {
        Box::new(File::open(file)?)
    };
    let mut text = String::new();
    from.take(MAX_IMPORT_BYTES as u64 + 1)
        .read_to_string(&mut text)?;
    let max = MAX_IMPORT_BYTES >> 20;
    ensure!(
        text.len() <= MAX_IMPORT_BYTES,
        "it has more than {max} MiB: split it"
    );
    Ok(text)
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
