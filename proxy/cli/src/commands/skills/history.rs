//! `metaclaw skills log`: the history of what a model was asked for and wrote.

use std::path::PathBuf;

use anyhow::Context as _;
use metaclaw_skills::{HistoryEntry, HistorySkill, read_history};

use super::super::{context::Context, library::files};
use crate::out;

/// The library's own history.
const FILE: &str = "evolution_history.jsonl";

/// Shows the newest entries, the oldest of them first.
pub(super) fn log(
    context: &Context,
    (n, full, json): (usize, bool, bool),
    file: Option<PathBuf>,
) -> anyhow::Result<()> {
    let path = match file {
        Some(path) => path,
        None => files(context)?.dir().join(FILE),
    };
    let history = read_history(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let newest = &history[history.len().saturating_sub(n)..];
    if json {
        return Ok(out::json(&newest)?);
    }
    if newest.is_empty() {
        out::line(format!("{} has no entries yet", path.display()))?;
    }
    for entry in newest {
        out::line(told(entry, full))?;
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
