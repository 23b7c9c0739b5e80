//! `metaclaw memory`: facts that the owner told.

use clap::{Args, Subcommand};
use metaclaw_chat::AgentId;
use metaclaw_control::operations::memory::{ListMemories, MemoryChange};
use metaclaw_skills::{Memory, MemoryKind, MemoryScope, MemoryState};

use super::{
    calling::{agent, call},
    context::Context,
};
use crate::out;

#[derive(Debug, Args)]
pub(crate) struct MemoryArgs {
    #[command(subcommand)]
    what: MemoryCommand,
    /// The agent: `main` for OpenClaw's, `_shared` for all. Without it, `list` and `search` show memories of all
    /// agents.
    #[arg(long, global = true)]
    agent: Option<AgentId>,
    /// The scope. Without it, all scopes, and for `add` memory.scope.
    #[arg(long, global = true)]
    scope: Option<String>,
    /// Print JSON.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum MemoryCommand {
    /// List all memories, oldest first, and those that wait for your review.
    List,
    /// List the memories that share words with a text, best first.
    Search {
        /// The text.
        text: String,
        /// The most memories that are listed.
        #[arg(short = 'n', long, default_value_t = 20)]
        limit: usize,
    },
    /// Add a memory: one line in your words. To accept one that waits for your review, add its text.
    Add {
        /// The fact.
        text: String,
        /// Its kind: preference, project_state, procedural_observation, semantic or episodic.
        #[arg(long, default_value = "semantic")]
        kind: MemoryKind,
        /// Give it to every session, whatever the session is about.
        #[arg(long)]
        pin: bool,
    },
    /// Delete a memory, and those that it had replaced.
    Forget {
        /// The memory's id, as `list` shows it.
        id: String,
    },
}

// === impl MemoryArgs ===

impl MemoryArgs {
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<()> {
        let scope = self.scope.as_deref().map(MemoryScope::new);
        let mut wanted = ListMemories {
            agent: self.agent.clone(),
            scope: scope.clone(),
            ..ListMemories::default()
        };
        let change = match self.what {
            MemoryCommand::List => return show(context, wanted, self.json).await,
            MemoryCommand::Search { text, limit } => {
                (wanted.query, wanted.limit) = (Some(text), Some(limit));
                return show(context, wanted, self.json).await;
            }
            MemoryCommand::Add { text, kind, pin } => MemoryChange::Add {
                agent: agent(context, self.agent.as_ref()).await?,
                scope,
                kind,
                content: text,
                is_pinned: pin,
            },
            MemoryCommand::Forget { id } => MemoryChange::Forget { id },
        };
        let done = call(context, "memory", change).await?;
        Ok(out::done(&done, self.json)?)
    }
}

async fn show(context: &Context, wanted: ListMemories, json: bool) -> anyhow::Result<()> {
    let is_search = wanted.query.is_some();
    let view = call(context, "memory", wanted).await?;
    if json {
        return Ok(out::json(&view.memories)?);
    }
    if !view.is_enabled {
        out::line("memory is off (memory.enabled is false): no session gets any")?;
    }
    if view.memories.is_empty() {
        out::line(if is_search {
            "no memory shares a word with that"
        } else {
            "there are no memories: `metaclaw memory add \"..\"` stores one"
        })?;
        return Ok(());
    }
    let rows: Vec<Vec<String>> = view.memories.iter().map(row).collect();
    out::line(out::table(
        &["memory", "about", "agent", "scope", "id"],
        &rows,
    ))?;
    for memory in &view.memories {
        let MemoryState::Review { why } = &memory.state else {
            continue;
        };
        let id = &memory.memory_id;
        let reasons: Vec<String> = why.iter().map(ToString::to_string).collect();
        out::line(format!("{id} waits because {}", reasons.join(", ")))?;
        out::line(format!(
            "   accept it: metaclaw memory add --agent {} --scope {} {}; delete it: metaclaw memory forget {id}",
            memory.origin.agent,
            shell_quoted(memory.scope_id.as_str()),
            shell_quoted(&memory.content)
        ))?;
    }
    Ok(())
}

/// Returns a text as one word of a shell. A memory that waits for review may contain `$(..)`, which a shell would run.
fn shell_quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

fn row(memory: &Memory) -> Vec<String> {
    let state = match (&memory.state, memory.is_pinned()) {
        (MemoryState::Active, false) => String::new(),
        (MemoryState::Active, true) => ", pinned".to_owned(),
        (MemoryState::Superseded { superseded_by }, _) => format!(", replaced by {superseded_by}"),
        (MemoryState::Review { .. }, _) => ", waits for your review".to_owned(),
    };
    vec![
        memory.content.clone(),
        format!("{}{state}", memory.kind),
        memory.origin.agent.to_string(),
        memory.scope_id.to_string(),
        memory.memory_id.clone(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_takes_a_quoted_text_as_one_word() {
        assert_eq!(shell_quoted("it's $(x)"), r"'it'\''s $(x)'");
    }
}
