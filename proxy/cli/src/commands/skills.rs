//! `metaclaw skills`: the skills that an agent may be given, and those that a model wrote from what went wrong.

use std::path::PathBuf;

use anyhow::{Context as _, anyhow};
use clap::{Args, Subcommand};
use metaclaw_chat::AgentId;
use metaclaw_control::{
    figures::effect_line,
    instance::LogOpening,
    lessons::{SkillChange, SkillView},
    operations::lessons::{ListProposals, ListSkills},
};
use metaclaw_skills::{
    HistoryEntry, HistorySkill, Proposal, ProposalState, Reason, SharedOrigin, Skill, SkillName,
    read_history,
};
use metaclaw_turns::LessonCounts;

use super::{
    calling::{call, instance},
    context::Context,
};
use crate::out;

const FILE: &str = "evolution_history.jsonl";

#[derive(Debug, Args)]
pub(crate) struct SkillsArgs {
    #[command(subcommand)]
    what: SkillsCommand,
    /// The agent. Without it, the skills that every agent has.
    #[arg(long, global = true)]
    agent: Option<AgentId>,
    /// Print JSON.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum SkillsCommand {
    /// List the skills: name, purpose, how often each was in a prompt, and verdicts with it and without it.
    List,
    /// Show a whole skill.
    Show {
        /// The skill's name.
        name: SkillName,
    },
    /// List the skills that wait for your review, and why.
    Review,
    /// Accept a skill that waits for your review. It is in force from the next session on.
    Accept {
        /// The skill's number or name.
        which: String,
    },
    /// Reject a skill that waits for your review. The same is not proposed again.
    Reject {
        /// The skill's number or name.
        which: String,
    },
    /// Take back an accepted skill. The version that it replaced is in force again.
    Revert {
        /// The skill's name.
        name: SkillName,
    },
    /// List when a model was asked for skills, and the results.
    Log {
        /// How many of the newest entries are listed.
        #[arg(short, long, default_value_t = 10)]
        n: usize,
        /// Also print the skills' texts and the requests that went wrong.
        #[arg(long)]
        full: bool,
        /// The file to read. Without it, evolution_history.jsonl in the folder of skills.
        #[arg(long)]
        file: Option<PathBuf>,
    },
}

// === impl SkillsArgs ===

impl SkillsArgs {
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<()> {
        let (agent, json) = (self.agent, self.json);
        match self.what {
            SkillsCommand::List => list(context, agent, json).await?,
            SkillsCommand::Show { name } => show(context, agent, &name, json).await?,
            SkillsCommand::Review => review(context, agent.as_ref(), json).await?,
            SkillsCommand::Accept { which } => {
                settle(context, SkillChange::Accept { which }).await?;
            }
            SkillsCommand::Reject { which } => {
                settle(context, SkillChange::Reject { which }).await?;
            }
            SkillsCommand::Revert { name } => {
                settle(context, SkillChange::Revert { agent, name }).await?;
            }
            SkillsCommand::Log { n, full, file } => {
                let shown = HistoryOutput { n, full, json };
                show_log(context, shown, file)?;
            }
        }
        Ok(())
    }
}

async fn list(context: &Context, agent: Option<AgentId>, json: bool) -> anyhow::Result<()> {
    let skills = call(context, "lessons", ListSkills(agent)).await?;
    let row = |skill: &SkillView| {
        let [given, effect] = counted(&skill.counts);
        vec![skill.name.clone(), given, effect, skill.description.clone()]
    };
    let head = ["skill", "given", "verdicts", "for"];
    Ok(out::answer_table(&skills, json, &head, row)?)
}

async fn show(
    context: &Context,
    agent: Option<AgentId>,
    name: &SkillName,
    json: bool,
) -> anyhow::Result<()> {
    let skills = call(context, "lessons", ListSkills(agent)).await?;
    let mut skills = skills.into_iter();
    let skill = skills.find(|skill| skill.name == name.as_str());
    let skill = skill.ok_or_else(|| anyhow!("no skill {name}: see `metaclaw skills list`"))?;
    if json {
        return Ok(out::json(&skill)?);
    }
    let [given, effect] = counted(&skill.counts);
    let origin = skill.shared.as_ref();
    let withdrawn = |one: &SharedOrigin| {
        let told = one.is_withdrawn.then_some("; its author has withdrawn one");
        told.unwrap_or_default()
    };
    let origin = origin.map(|origin| format!("(from {origin}{})\n", withdrawn(origin)));
    out::line(format!(
        "# {}\n{}\n(given {given} times; verdicts: {effect})\n{}\n{}",
        skill.name,
        skill.description,
        origin.unwrap_or_default(),
        skill.content
    ))?;
    Ok(())
}

/// Returns how often a lesson was given, and what the verdicts say of it.
pub(super) fn counted(counts: &LessonCounts) -> [String; 2] {
    [counts.injected.to_string(), effect_line(counts)]
}

async fn settle(context: &Context, change: SkillChange) -> anyhow::Result<()> {
    Ok(out::line(call(context, "lessons", change).await?)?)
}

#[derive(Debug, Clone, Copy)]
struct HistoryOutput {
    n: usize,
    full: bool,
    json: bool,
}

fn show_log(context: &Context, shown: HistoryOutput, file: Option<PathBuf>) -> anyhow::Result<()> {
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
        out::line(entry_text(entry, shown.full))?;
    }
    Ok(())
}

fn entry_text(entry: &HistoryEntry, full: bool) -> String {
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
        lines.extend(entry.skills.iter().map(whole));
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

async fn review(context: &Context, agent: Option<&AgentId>, json: bool) -> anyhow::Result<()> {
    let mut proposals = call(context, "lessons", ListProposals).await?;
    proposals.retain(|one| agent.is_none_or(|agent| *agent == one.source.agent));
    let (waiting, others): (Vec<_>, Vec<_>) = proposals.into_iter().partition(Proposal::is_waiting);
    if json {
        return Ok(out::json(&waiting)?);
    }
    if waiting.is_empty() {
        out::line("no skill waits for your review")?;
    }
    for proposal in &waiting {
        out::line(proposal_text(proposal))?;
    }
    let declined = others
        .iter()
        .filter(|one| matches!(one.state, ProposalState::Declined | ProposalState::AgedOut));
    for proposal in declined {
        out::line(declined_line(proposal))?;
    }
    Ok(())
}

fn declined_line(proposal: &Proposal) -> String {
    let Proposal { n, name, why, .. } = proposal;
    let is_figures =
        |why: &&Reason| matches!(why, Reason::Tried { .. } | Reason::TriedAgain { .. });
    let figures = why.iter().rfind(is_figures).map(ToString::to_string);
    format!(
        "{n}  {name}  not in force, because {}; accept it all the same: metaclaw skills accept {n}",
        figures.unwrap_or_default()
    )
}

fn proposal_text(proposal: &Proposal) -> String {
    let Proposal {
        n, name, source, ..
    } = proposal;
    let mut lines = vec![format!(
        "{n}  {name}  for {}, {} ago, from {}",
        source.agent,
        out::since(source.at_ms),
        origin(proposal)
    )];
    if let Ok(Skill {
        description,
        content,
        keywords,
        ..
    }) = Skill::parse(&proposal.text)
    {
        lines.push(format!("   {description}\n"));
        if !keywords.is_empty() {
            lines.push(format!("   keywords: {}\n", keywords.join(", ")));
        }
        lines.extend(content.lines().map(|line| format!("   | {line}")));
        lines.push(String::new());
    }
    let why = proposal.why.iter();
    lines.extend(why.map(|why| match why {
        Reason::Tried { .. } | Reason::TriedAgain { .. } => format!("   {why}"),
        why => format!("   it waits because {why}"),
    }));
    lines.push(format!(
        "   accept it: metaclaw skills accept {n}; reject it: metaclaw skills reject {n}\n"
    ));
    lines.join("\n")
}

fn origin(proposal: &Proposal) -> String {
    let source = &proposal.source;
    let Some(shared) = &proposal.shared else {
        let sessions: Vec<&str> = source.sessions.iter().map(AsRef::as_ref).collect();
        return format!(
            "{} turns that went wrong (sessions {})",
            source.turns.len(),
            sessions.join(", ")
        );
    };
    let turns: Vec<String> = shared.turns.iter().map(ToString::to_string).collect();
    match turns.as_slice() {
        [] => format!("{shared}, written by hand there"),
        turns => format!("{shared}, written from its turns {}", turns.join(", ")),
    }
}
