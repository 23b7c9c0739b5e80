//! Files of an old home that have no place in the new one, each with the reason.

use std::{fs, path::Path};

use anyhow::Context as _;
use metaclaw_skills::read_text;

use super::{
    item::{MigratedKind, MigrationOutcome},
    work::Migration,
};

/// Entries that the other parts of a migration have dealt with.
const DONE: [&str; 5] = [
    "config.yaml",
    "auth-profiles.json",
    "skills",
    "adapters",
    "conversation_skills.json",
];
/// The report on a file that is not known.
const UNKNOWN: &str = "it is no file of the Python MetaClaw that this program knows";
/// Files of records that have been dealt with.
const DONE_RECORDS: [&str; 2] = ["conversations.jsonl", "prm_scores.jsonl"];

/// Notes every file that no other part of the migration has dealt with.
pub(super) fn note(migration: &mut Migration<'_>) -> anyhow::Result<()> {
    let dir = migration.old.dir.clone();
    for name in names(&dir)? {
        if name == "records" {
            note_records(migration, &dir.join(name))?;
        } else if !DONE.contains(&name.as_str()) && !holds_adapters(migration, &dir.join(&name)) {
            let why = reason(&dir, &name);
            migration.note(MigratedKind::File, name, MigrationOutcome::Left(why));
        }
    }
    Ok(())
}

fn note_records(migration: &mut Migration<'_>, records: &Path) -> anyhow::Result<()> {
    for name in names(records)? {
        if !DONE_RECORDS.contains(&name.as_str()) {
            let why = if name.starts_with("system_prompt_cache") {
                "system prompts are relayed as they are, never replaced".to_owned()
            } else {
                UNKNOWN.to_owned()
            };
            let name = format!("records/{name}");
            migration.note(MigratedKind::File, name, MigrationOutcome::Left(why));
        }
    }
    Ok(())
}

/// Returns whether a folder was searched for adapters.
fn holds_adapters(migration: &Migration<'_>, folder: &Path) -> bool {
    let mut searched = migration.old.adapters.iter();
    searched.any(|(_, place)| place.starts_with(folder))
}

fn names(dir: &Path) -> anyhow::Result<Vec<String>> {
    let read = fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))?;
    let names = read.flatten();
    let mut names: Vec<String> = names
        .map(|it| it.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    Ok(names)
}

/// Why a file stays behind.
fn reason(dir: &Path, name: &str) -> String {
    let extension = Path::new(name).extension().and_then(|it| it.to_str());
    let why = match name {
        "memory" => {
            "its database is not read, because most of it was made of prompts (`metaclaw memory add \"..\"` takes what should hold)"
        }
        "memory_data" => "only its file of skills is read",
        "cli-sessions.json" => {
            "no provider's command-line program is run, so there are no sessions of one"
        }
        "calendar_token.json" => {
            "sign in again (`metaclaw auth login --provider google-calendar`), or copy it, as it has the same form"
        }
        "scheduler_state.json" => "it was the state of a moment",
        "daemon_start.lock" => "it belongs to a process of the old program",
        "metaclaw.log" => "it is the log of the old program",
        "checkpoints" => {
            "adapters are read from the folder `adapters`; an optimiser's state is PyTorch's pickle, which is not read"
        }
        _ if extension == Some("pid") => return of_process(&dir.join(name)),
        _ => UNKNOWN,
    };
    why.to_owned()
}

/// The report on a file with a process id.
fn of_process(path: &Path) -> String {
    let pid = read_text(path, 64).unwrap_or_default();
    let pid = pid.trim();
    let is_number = !pid.is_empty() && pid.bytes().all(|b| b.is_ascii_digit());
    let command = fs::read(Path::new("/proc").join(pid).join("cmdline")).unwrap_or_default();
    let runs = is_number && command.windows(8).any(|part| part == b"metaclaw");
    if runs {
        format!(
            "the old proxy still runs (process {pid}): end it before `metaclaw start`, because both want the same port"
        )
    } else {
        "it belongs to a process of the old program".to_owned()
    }
}
