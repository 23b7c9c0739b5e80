//! The built-in skills, and their installation into a library: once, and without changing anything that people edited.

use std::{collections::BTreeMap, path::Path};

use serde::{Deserialize, Serialize};

use crate::{
    file::{JournalError, MAX_FILE, failed, read_json, read_text, write_json, write_text},
    skill::Skill,
};

/// Record of what was installed, so that a skill that its owner changed or removed stays as it is.
const MANIFEST: &str = ".bank.json";
const FOLDER: &str = "_shared";

macro_rules! bank {
    ($($name:literal),* $(,)?) => {
        &[$((
            $name,
            include_str!(concat!("../bank/", $name, "/SKILL.md")),
            include_str!(concat!("../bank/", $name, "/requests.txt")),
        )),*]
    };
}

/// Sentences that need no skill of the bank, one per line: small talk and continuations, tasks of other kinds,
/// programming, questions of knowledge with essays and roles to play, instructions to the assistant, and remarks that
/// mention a skill's subject in passing.
pub(crate) const BACKGROUND: [&str; 6] = [
    include_str!("../bank/background/talk.txt"),
    include_str!("../bank/background/tasks.txt"),
    include_str!("../bank/background/code.txt"),
    include_str!("../bank/background/knowledge.txt"),
    include_str!("../bank/background/instructions.txt"),
    include_str!("../bank/background/mentions.txt"),
];

/// Name and text of each, and sample requests for it, one per line. None of the samples is among the requests with
/// which retrieval is measured.
const BANK: &[(&str, &str, &str)] = bank![
    "auth-patterns",
    "break-down-goal",
    "chart-selection",
    "ci-pipelines",
    "clarify-ambiguous-requests",
    "code-review",
    "codebase-navigation",
    "compare-options",
    "context-handoff",
    "data-cleaning",
    "debug-systematically",
    "delegate-to-subagents",
    "difficult-messages",
    "email-drafting",
    "explain-to-a-beginner",
    "git-workflow",
    "input-validation",
    "literature-research",
    "meeting-notes",
    "metaclaw",
    "performance-profiling",
    "plan-multi-step-work",
    "prioritise-tasks",
    "refactor-safely",
    "scheduled-jobs",
    "secrets-management",
    "shell-script-safety",
    "source-evaluation",
    "spreadsheet-formulas",
    "sql-queries",
    "statistics-in-plain-words",
    "step-by-step-reasoning",
    "summarise-document",
    "suspicious-message-check",
    "technical-writing",
    "tool-failure-recovery",
    "translation-and-tone",
    "travel-and-event-planning",
    "verify-before-irreversible-action",
    "web-scraping",
    "write-tests",
];

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
struct InstalledHashes(BTreeMap<String, String>);

/// Installs the skills of the bank that this library does not have yet, and those that are newer here and were not
/// edited there. Returns the number of files written.
///
/// # Errors
/// Returns [`JournalError`]. Files that were written before it are recorded.
pub fn install(dir: &Path) -> Result<usize, JournalError> {
    let manifest_path = dir.join(MANIFEST);
    let mut manifest = InstalledHashes::read(dir);
    let mut n_written = 0;
    for (name, text, _) in BANK {
        let path = dir.join(FOLDER).join(name).join("SKILL.md");
        let there = read_text(&path, MAX_FILE).ok();
        let is_wanted = match (manifest.0.get(*name), &there) {
            (None, None) => !dir.join(name).exists(),
            (Some(installed), Some(there)) => *installed == hash(there) && *installed != hash(text),
            // The owner changed or removed it, or it is the owner's own.
            (Some(_), None) | (None, Some(_)) => false,
        };
        if is_wanted {
            write_text(&path, text).map_err(failed(path))?;
            n_written += 1;
            manifest.0.insert((*name).to_owned(), hash(text));
        }
        manifest.0.entry((*name).to_owned()).or_default();
    }
    if n_written > 0 {
        write_json(&manifest_path, &manifest, write_text)?;
    }
    Ok(n_written)
}

// === impl InstalledHashes ===

impl InstalledHashes {
    /// An unreadable record counts as none.
    fn read(dir: &Path) -> Self {
        read_json(&dir.join(MANIFEST)).unwrap_or_default()
    }
}

pub(crate) fn is_unchanged(dir: &Path, name: &str, text: &str) -> bool {
    let installed = InstalledHashes::read(dir).0.remove(name);
    installed.is_some_and(|installed| installed == hash(text))
}

pub(crate) fn requests() -> impl Iterator<Item = &'static str> {
    BANK.iter().map(|(.., requests)| *requests)
}

/// Returns a skill's index in [`requests`], or `None` for somebody else's skill of the same name.
pub(crate) fn place(skill: &Skill) -> Option<usize> {
    let has_same_purpose = |(name, text, _): &(&str, &str, &str)| {
        skill.name.as_str() == *name && text.contains(&skill.description)
    };
    BANK.iter().position(has_same_purpose)
}

fn hash(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex()[..32].to_owned()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn every_skill_of_the_bank_is_one_and_is_small() {
        assert_eq!(BANK.len(), 41);
        for (name, text, _) in BANK {
            let skill = Skill::parse(text).unwrap();
            assert_eq!(skill.name.as_str(), *name);
            assert!(skill.keywords.len() >= 10, "{name}");
            let cost = crate::render::cost(&skill);
            assert!(cost <= 400, "{name} costs {cost}");
        }
    }

    #[test]
    fn what_people_changed_or_removed_stays_so() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(install(dir.path()).unwrap(), BANK.len());
        assert_eq!(install(dir.path()).unwrap(), 0);
        let (changed, removed) = (BANK[0].0, BANK[1].0);
        let path = |name: &str| dir.path().join(FOLDER).join(name).join("SKILL.md");
        fs::write(path(changed), "mine").unwrap();
        fs::remove_dir_all(path(removed).parent().unwrap()).unwrap();
        assert_eq!(install(dir.path()).unwrap(), 0);
        assert_eq!(fs::read_to_string(path(changed)).unwrap(), "mine");
        assert!(!path(removed).exists());
    }

    #[test]
    fn a_newer_one_takes_the_place_of_what_was_installed() {
        let dir = tempfile::tempdir().unwrap();
        install(dir.path()).unwrap();
        let (name, text, _) = BANK[0];
        let path = dir.path().join(FOLDER).join(name).join("SKILL.md");
        fs::write(&path, "older").unwrap();
        let manifest = format!("{{\"{name}\": \"{}\"}}", hash("older"));
        fs::write(dir.path().join(MANIFEST), manifest).unwrap();
        assert_eq!(install(dir.path()).unwrap(), 1);
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
}
