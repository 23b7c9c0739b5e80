//! `metaclaw migrate` copies settings, keys, skills and adapters from a home of the Python MetaClaw into a home of this
//! program.
//!
//! The old home is only read. Nothing in the new home is overwritten, and a second run copies nothing twice. Each thing
//! in the old home becomes one [`MigrationItem`], which says what happened to it.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use metaclaw_settings::{
    adopt::{self, AdoptedKey},
    auth_profiles::Profiles,
};
use metaclaw_skills::read_text;

use self::old_home::{OldHome, entry_names};
use crate::home::Home;

mod adapters;
mod old_home;
mod report;
mod skills;

pub use self::{
    old_home::MigrationRequest,
    report::{MigratedKind, MigrationItem, MigrationOutcome, MigrationReport},
};

const WITHOUT: [(&str, &str); 1] = [(
    "skills.dir",
    "the skills themselves are copied into the new home",
)];
const HISTORY: &str = "skills/evolution_history.jsonl";
/// Entries of an old home that have a migration of their own.
const TAKEN: [&str; 4] = ["config.yaml", "auth-profiles.json", "skills", "adapters"];
/// Entries of an old home that are left, each with the reason.
const LEFT: &str = include_str!("../data/python_home.txt");
const PROCESS: &str = "it belongs to a process of the old program";
const UNKNOWN: &str = "it is no file of the Python MetaClaw that this program knows";

/// Migrates a home. A first pass reads and checks everything and writes nothing, so a home that cannot be read leaves
/// the new one unchanged. `checkpoints` returns the trainer's folder from the settings of the new home. It is called
/// after the settings are taken, because they may name another folder.
///
/// # Errors
/// Why the folder is no old home, or why a file cannot be read or written.
pub fn migrate(
    request: &MigrationRequest,
    home: &Home,
    checkpoints: &dyn Fn() -> anyhow::Result<PathBuf>,
) -> anyhow::Result<MigrationReport> {
    let old = OldHome::open(request, home)?;
    let pass = |dry_run| -> anyhow::Result<MigrationReport> {
        let mut report = MigrationReport::new(&old.dir, home.dir(), dry_run);
        take_settings(&old, home, &mut report)?;
        take_keys(&old, home, &mut report)?;
        skills::take(&old, home, &mut report)?;
        adapters::take(&old, &checkpoints()?, &mut report)?;
        note_others(&old, &mut report)?;
        Ok(report)
    };
    let report = pass(true)?;
    if request.dry_run {
        return Ok(report);
    }
    home.create()?;
    pass(false)
}

fn take_settings(old: &OldHome, home: &Home, report: &mut MigrationReport) -> anyhow::Result<()> {
    let (from, to) = (old.dir.join("config.yaml"), home.config());
    if !from.exists() {
        return Ok(());
    }
    let adopted = adopt::adopt(&from, &to, &WITHOUT)?;
    if !report.dry_run {
        adopted.write(&to)?;
    }
    for (key, became) in adopted.keys {
        let outcome = match became {
            AdoptedKey::Taken => MigrationOutcome::Taken,
            AdoptedKey::Present => MigrationOutcome::Present,
            AdoptedKey::Kept => {
                let file = to.display();
                MigrationOutcome::Kept(format!("{file} has another value, which stays"))
            }
            AdoptedKey::Left(why) => MigrationOutcome::Left(why),
        };
        report.note(MigratedKind::Setting, key, outcome);
    }
    Ok(())
}

fn take_keys(old: &OldHome, home: &Home, report: &mut MigrationReport) -> anyhow::Result<()> {
    let load = |path: &Path| {
        Profiles::load(path).with_context(|| format!("cannot read {}", path.display()))
    };
    let theirs = load(&old.dir.join("auth-profiles.json"))?;
    let mut ours = load(&home.auth_profiles())?;
    let mut has_new = false;
    for profile in theirs.list() {
        let own = ours.list().into_iter().find(|own| own.id == profile.id);
        let outcome = match own {
            Some(own) if own.secret.expose() == profile.secret.expose() => {
                MigrationOutcome::Present
            }
            Some(_) => MigrationOutcome::Kept("another one of this name is stored".to_owned()),
            None => {
                ours.adopt(&theirs, &profile.id);
                has_new = true;
                MigrationOutcome::Taken
            }
        };
        report.note(MigratedKind::Key, profile.id, outcome);
    }
    if has_new && !report.dry_run {
        ours.save(&home.auth_profiles())?;
    }
    Ok(())
}

fn note_others(old: &OldHome, report: &mut MigrationReport) -> anyhow::Result<()> {
    let mut names =
        entry_names(&old.dir).with_context(|| format!("cannot read {}", old.dir.display()))?;
    if old.dir.join(HISTORY).exists() {
        names.push(HISTORY.to_owned());
    }
    let holds_adapters = |name: &str| {
        let folder = old.dir.join(name);
        old.adapters
            .iter()
            .any(|(_, place)| place.starts_with(&folder))
    };
    for name in names {
        if !TAKEN.contains(&name.as_str()) && !holds_adapters(&name) {
            let why = MigrationOutcome::Left(reason_to_leave(&old.dir, &name));
            report.note(MigratedKind::File, name, why);
        }
    }
    Ok(())
}

fn reason_to_leave(dir: &Path, name: &str) -> String {
    let mut known = LEFT.lines().filter_map(|line| line.split_once(": "));
    let why = known.find_map(|(file, why)| (file == name).then_some(why));
    let why = match (why, Path::new(name).extension()) {
        (Some(why), _) => why,
        (None, Some(extension)) if extension == "pid" => match running(&dir.join(name)) {
            Some(pid) => {
                return format!(
                    "the old proxy still runs (process {pid}): end it before `metaclaw start`, because both want the same port"
                );
            }
            None => PROCESS,
        },
        (None, Some(extension)) if extension == "lock" => PROCESS,
        (None, _) => UNKNOWN,
    };
    why.to_owned()
}

/// Returns the process id in a file, if that process is MetaClaw's.
fn running(file: &Path) -> Option<u32> {
    let pid = read_text(file, 64).ok()?.trim().parse().ok()?;
    let command = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let is_metaclaw = command.windows(8).any(|part| part == b"metaclaw");
    is_metaclaw.then_some(pid)
}

#[cfg(test)]
mod tests;
