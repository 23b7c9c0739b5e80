//! `metaclaw skills`: the skills that an agent may be given, and those that a model wrote from what went wrong.

use std::path::PathBuf;

use anyhow::anyhow;
use clap::{Args, Subcommand};
use metaclaw_chat::AgentId;
use metaclaw_control::{
    lessons::{SkillChange, SkillView},
    operations::lessons::ListSkills,
};
use metaclaw_skills::{SharedOrigin, SkillName};
use metaclaw_turns::LessonCounts;

use super::{calling::call, context::Context};
use crate::out;

mod history;
mod review;

/// Arguments of `skills`.
#[derive(Debug, Args)]
pub(crate) struct SkillsArgs {
    #[command(subcommand)]
    what: SkillsCommand,
    /// The agent; without one, what every agent has.
    #[arg(long, global = true)]
    agent: Option<AgentId>,
    /// As JSON.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum SkillsCommand {
    /// Name and purpose of each, how often it was in a prompt, and how turns were judged with it and without.
    List,
    /// One, whole.
    Show {
        /// Its name.
        name: SkillName,
    },
    /// What a model wrote that waits for your look, and why.
    Review,
    /// Lets one stand that waits: in force from the next session on.
    Accept {
        /// Its number or its name.
        which: String,
    },
    /// Refuses one that waits; what says the same is not proposed again.
    Reject {
        /// Its number or its name.
        which: String,
    },
    /// Takes back one that was accepted: what it took the place of stands again.
    Revert {
        /// Its name.
        name: SkillName,
    },
    /// When a model was asked for skills, and what came of it.
    Log {
        /// At most so many, the newest.
        #[arg(short, long, default_value_t = 10)]
        n: usize,
        /// With the skills' texts and the requests that went wrong.
        #[arg(long)]
        full: bool,
        /// Another file than the library's evolution_history.jsonl.
        #[arg(long)]
        file: Option<PathBuf>,
    },
}

// === impl SkillsArgs ===

impl SkillsArgs {
    /// Does it.
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<()> {
        let (agent, json) = (self.agent, self.json);
        match self.what {
            SkillsCommand::List => list(context, agent, json).await?,
            SkillsCommand::Show { name } => show(context, agent, &name, json).await?,
            SkillsCommand::Review => review::review(context, agent.as_ref(), json).await?,
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
                let shown = history::HistoryOutput { n, full, json };
                history::log(context, shown, file)?;
            }
        }
        Ok(())
    }
}

async fn list(context: &Context, agent: Option<AgentId>, json: bool) -> anyhow::Result<()> {
    let skills = call(context, "lessons", ListSkills(agent)).await?;
    let row = |it: &SkillView| {
        let [served, with, without] = counted(&it.counts);
        vec![
            it.name.clone(),
            served,
            with,
            without,
            it.description.clone(),
        ]
    };
    let head = ["skill", "given", "with", "without", "for"];
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
    let skill = skills.find(|it| it.name == name.as_str());
    let skill = skill.ok_or_else(|| anyhow!("there is no skill {name}"))?;
    if json {
        return Ok(out::json(&skill)?);
    }
    let [given, with, without] = counted(&skill.counts);
    let origin = skill.shared.as_ref();
    let withdrawn = |it: &SharedOrigin| {
        let told = it.is_withdrawn.then_some("; its author has withdrawn it");
        told.unwrap_or_default()
    };
    let origin = origin.map(|it| format!("(from {it}{})\n", withdrawn(it)));
    out::line(format!(
        "# {}\n{}\n(given {given} times; turns with it {with}, without {without})\n{}\n{}",
        skill.name,
        skill.description,
        origin.unwrap_or_default(),
        skill.content
    ))?;
    Ok(())
}

/// How often a lesson was given, and how turns were judged with it and without: good and bad ones.
pub(super) fn counted(counts: &LessonCounts) -> [String; 3] {
    [
        counts.injected.to_string(),
        format!("+{} -{}", counts.good, counts.bad),
        format!("+{} -{}", counts.good_without, counts.bad_without),
    ]
}

async fn settle(context: &Context, change: SkillChange) -> anyhow::Result<()> {
    Ok(out::line(call(context, "lessons", change).await?)?)
}
