//! `metaclaw skills log`: the history of what a model was asked for and wrote.

use std::path::PathBuf;

use anyhow::Context as _;
use metaclaw_control::instance::LogOpening;
use metaclaw_skills::{HistoryEntry, HistorySkill, read_history};

use super::super::{calling::instance, context::Context};
use crate::out;

/// The library's own history.
const FILE: &str = "evolution_history.jsonl";

/// How entries are shown.
#[derive(Debug, Clone, Copy)]
pub(super) struct HistoryOutput {
    /// At most so many, the newest.
    pub(super) n: usize,
    /// With the skills' texts and the requests that went wrong.
    pub(super) full: bool,
    pub(super) json: bool,
}

/// Shows the newest entries, the oldest of them first.
pub(super) fn log(
    context: &Context,
    shown: HistoryOutput,
    file: Option<PathBuf>,
) -> anyhow::Result<()> {
    let path = if let Some(path) = file {
        path
    } else {
        let files = instance(context, "lessons", LogOpening::Existing);
        files.library()?.dir().join(FILE)
    };
    let history = read_history(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let newest = &history[history.len().saturating_sub(shown.n)..];
    if shown.json {
        return Ok(out::json(&newest)?);
    }
    if newest.is_empty() {
        out::line(format!("{} has no entries yet", path.display()))?;
    }
    for entry in newest {
        out::line(told(entry, shown.full))?;
    }
    Ok(())
}

fn told(entry: &HistoryEntry, full: bool) -> String {
    let agent = entry.agent.as_ref().map_or("-", |agent| agent.as_str());
    let named = match (entry.skill_names.join(", "), entry.forgotten) {
        (_, true) => "forgotten".to_owned(),
        (names, false) if names.is_empty() => "none".to_owned(),
        (names, false) => names,
    };
    let mut lines = vec![format!(
        "{}  {agent}  {} turns that went wrong -> {} skills: {named}",
        entry.timestamp, entry.num_failures_analyzed, entry.num_skills_generated
    )];
    lines.extend(entry.refused.iter().map(|why| format!("   refused: {why}")));
    if full {
        let prompts = entry.failure_prompts.iter();
        lines.extend(prompts.map(|prompt| format!("   went wrong: {prompt}")));
        entry
            .skills
            .iter()
            .for_each(|skill| lines.push(whole(skill)));
    }
    lines.join("\n")
}

fn whole(skill: &HistorySkill) -> String {
    let HistorySkill {
        name,
        category,
        description,
        content,
    } = skill;
    let content = content.lines().map(|line| format!("   | {line}\n"));
    format!(
        "\n   {name} ({category}): {description}\n\n{}",
        content.collect::<String>()
    )
}
