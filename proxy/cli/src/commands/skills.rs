//! `metaclaw skills`: the lessons that an agent may be given.

use std::process::ExitCode;

use anyhow::anyhow;
use clap::{Args, Subcommand};
use metaclaw_chat::AgentId;
use metaclaw_skills::{Library, SkillName};

use super::{context::Context, source::running};
use crate::{app, assemble, control::SkillView, out};

/// Arguments of `skills`.
#[derive(Debug, Args)]
pub(crate) struct SkillsArgs {
    #[command(subcommand)]
    what: What,
    /// The agent; without one, what every agent has.
    #[arg(long, global = true)]
    agent: Option<AgentId>,
    /// As JSON.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Name and purpose of each.
    List,
    /// One, whole.
    Show {
        /// Its name.
        name: SkillName,
    },
}

// === impl SkillsArgs ===

impl SkillsArgs {
    /// Does it.
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<ExitCode> {
        match &self.what {
            What::List => {
                let skills = self.list(context).await?;
                if self.json {
                    out::json(&skills)?;
                } else {
                    let row = |it: &SkillView| vec![it.name.clone(), it.description.clone()];
                    let rows: Vec<Vec<String>> = skills.iter().map(row).collect();
                    out::line(out::table(&["skill", "for"], &rows))?;
                }
            }
            What::Show { name } => {
                let skill = self.one(context, name).await?;
                let skill = skill.ok_or_else(|| anyhow!("there is no skill {name}"))?;
                if self.json {
                    out::json(&skill)?;
                } else {
                    out::line(format!(
                        "# {}\n{}\n\n{}",
                        skill.name, skill.description, skill.content
                    ))?;
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    async fn list(&self, context: &Context) -> anyhow::Result<Vec<SkillView>> {
        if let Some(client) = running(&context.home).await? {
            return Ok(client.ask("skills", &self.agent).await?);
        }
        Ok(app::skills(&files(context)?, self.agent.as_ref()))
    }

    async fn one(&self, context: &Context, name: &SkillName) -> anyhow::Result<Option<SkillView>> {
        let skills = self.list(context).await?;
        Ok(skills.into_iter().find(|it| it.name == name.as_str()))
    }
}

/// The library itself, where nothing runs.
pub(super) fn files(context: &Context) -> anyhow::Result<Library> {
    let loaded = context.settings(None, Vec::new())?;
    let (library, warnings) = assemble::library(&loaded, &context.home)?;
    for warning in warnings {
        out::aside(format!("warning: {warning}"));
    }
    Ok(library)
}
