//! `metaclaw wishes`, `undo` and `forget`: what was learned from what the owner said.

use std::collections::BTreeSet;

use clap::{Args, Subcommand};
use metaclaw_chat::{AgentId, SenderId};
use metaclaw_control::{
    lessons::{LessonsView, WishChange},
    operations::lessons::{GetJournal, ListWishes},
};
use metaclaw_skills::{Lesson, LessonState};
use metaclaw_turns::LessonCounts;

use super::{
    calling::{agent, call},
    context::Context,
    skills::counted,
};
use crate::out;

#[derive(Debug, Args)]
pub(crate) struct WishesArgs {
    #[command(subcommand)]
    what: WishesCommand,
    /// The agent: `main` for OpenClaw's, `_shared` for all. Without it, the agent that spoke last.
    #[arg(long, global = true)]
    agent: Option<AgentId>,
    /// Print JSON.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum WishesCommand {
    /// List the wishes in force, and where each comes from.
    List,
    /// Add a wish: one line in your words, in force from the next session on.
    Add {
        /// The wish.
        wish: String,
        /// The id of the person who has the wish, as the agent's host gives it. It applies only to this person's
        /// messages.
        #[arg(long, value_name = "ID")]
        sender: Option<SenderId>,
    },
    /// Remove a wish.
    Remove {
        /// The text of the wish, exactly as `metaclaw wishes list` prints it.
        wish: String,
        /// The id of the person who has the wish. Without it, the owner.
        #[arg(long, value_name = "ID")]
        sender: Option<SenderId>,
    },
    /// Replace a wish.
    Edit {
        /// The text of the wish, exactly as `metaclaw wishes list` prints it.
        wish: String,
        /// The new wish.
        to: String,
    },
    /// List the wishes that wait for your review, and why; or accept or dismiss one.
    Review {
        /// The number of a wish to accept. It is in force from the next session on.
        #[arg(long)]
        accept: Option<u64>,
        /// The number of a wish to dismiss. The same is not proposed again.
        #[arg(long, conflicts_with = "accept")]
        dismiss: Option<u64>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct UndoArgs {
    /// The lesson's number. Without it, the newest lesson in force.
    n: Option<u64>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

// === impl WishesArgs ===

impl WishesArgs {
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<()> {
        let agent = agent(context, self.agent.as_ref()).await?;
        // Whose it is, where nobody said so.
        let whose = match &self.agent {
            None => format!("{agent}: "),
            Some(_) => String::new(),
        };
        let change = match self.what {
            WishesCommand::List => {
                list(context, &agent, self.json).await?;
                if self.agent.is_none() && !self.json {
                    tell_of_others(context, &agent).await?;
                }
                return Ok(());
            }
            WishesCommand::Review {
                accept: Some(n), ..
            } => WishChange::Accept { n },
            WishesCommand::Review {
                dismiss: Some(n), ..
            } => WishChange::Dismiss { n },
            WishesCommand::Review { .. } => return review(context, &agent, self.json).await,
            WishesCommand::Add { wish, sender } => WishChange::Add {
                agent,
                sender,
                wish,
            },
            WishesCommand::Remove { wish, sender } => WishChange::Remove {
                agent,
                sender,
                wish,
            },
            WishesCommand::Edit { wish, to } => WishChange::Edit { agent, wish, to },
        };
        let is_numbered = matches!(
            change,
            WishChange::Accept { .. } | WishChange::Dismiss { .. }
        );
        let done = call(context, "lessons", change).await?;
        Ok(out::done(
            &if is_numbered { done } else { whose + &done },
            self.json,
        )?)
    }
}

// === impl UndoArgs ===

impl UndoArgs {
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<()> {
        let done = call(context, "lessons", WishChange::Undo { n: self.n }).await?;
        Ok(out::done(&done, self.json)?)
    }
}

async fn list(context: &Context, agent: &AgentId, json: bool) -> anyhow::Result<()> {
    let view = call(context, "lessons", ListWishes(agent.clone())).await?;
    if json {
        return Ok(out::json(&view)?);
    }
    if view.wishes.is_empty() && view.people.is_empty() {
        out::line(format!(
            "{agent} has no wishes yet: say one (\"please always answer in one sentence\"), or `metaclaw wishes add --agent {agent} \"...\"`. They lie in {}",
            view.file.display()
        ))?;
        return Ok(());
    }
    let wishes = view.wishes.iter().zip(&view.counts);
    let own = wishes.map(|(wish, counts)| row(wish, counts, &view));
    let people = view.people.iter().flat_map(|(sender, wishes)| {
        let rows = wishes.iter();
        rows.map(|wish| row_of_person(sender, wish, &view))
    });
    let rows: Vec<Vec<String>> = own.chain(people).collect();
    let head = ["wish", "learned", "undo", "given", "verdicts"];
    Ok(out::line(out::table(&head, &rows))?)
}

/// Names the other agents that have wishes, so that nobody takes one agent's list for all there are.
async fn tell_of_others(context: &Context, agent: &AgentId) -> anyhow::Result<()> {
    let journal = call(context, "lessons", GetJournal).await?;
    let in_force = journal
        .iter()
        .filter(|lesson| lesson.state == LessonState::InForce);
    let agents: BTreeSet<&AgentId> = in_force.map(|lesson| &lesson.origin.agent).collect();
    for other in agents {
        if other != agent && !other.is_shared() {
            out::line(format!(
                "{other} has wishes too: metaclaw wishes list --agent {other}"
            ))?;
        }
    }
    Ok(())
}

async fn review(context: &Context, agent: &AgentId, json: bool) -> anyhow::Result<()> {
    let view = call(context, "lessons", ListWishes(agent.clone())).await?;
    let waits = |lesson: &&Lesson| matches!(lesson.state, LessonState::Review { .. });
    let waiting: Vec<&Lesson> = view.lessons.iter().filter(waits).collect();
    if json {
        return Ok(out::json(&waiting)?);
    }
    if waiting.is_empty() {
        out::line("nothing waits for your review")?;
    }
    for lesson in waiting {
        let LessonState::Review { why } = &lesson.state else {
            continue;
        };
        out::line(format!("{}  {}", lesson.n, lesson.wish))?;
        for why in why {
            out::line(format!("   it waits because {why}"))?;
        }
        out::line(format!(
            "   accept it: metaclaw wishes review --accept {0}; dismiss it: metaclaw wishes review --dismiss {0}",
            lesson.n
        ))?;
    }
    Ok(())
}

fn in_force<'v>(view: &'v LessonsView, wish: &str, of: Option<&SenderId>) -> Option<&'v Lesson> {
    let mut lessons = view.lessons.iter().rev();
    lessons.find(|lesson| {
        let is_of = lesson.origin.sender.as_ref() == of;
        is_of && lesson.wish == wish && lesson.state == LessonState::InForce
    })
}

/// A wish of another person, whose effect is not counted.
fn row_of_person(sender: &SenderId, wish: &str, view: &LessonsView) -> Vec<String> {
    let lesson = in_force(view, wish, Some(sender));
    let number = lesson.map(|one| one.n.to_string()).unwrap_or_default();
    let place = format!("{sender}'s (--sender)");
    let none = String::new;
    vec![wish.to_owned(), place, number, none(), none()]
}

fn row(wish: &str, counts: &LessonCounts, view: &LessonsView) -> Vec<String> {
    let counted = counted(counts);
    if view.shared.iter().any(|shared| shared == wish) {
        let place = "everyone's (--agent _shared)".to_owned();
        let own = [wish.to_owned(), place, String::new()];
        return own.into_iter().chain(counted).collect();
    }
    let lesson = in_force(view, wish, None);
    let mut learned = match lesson {
        Some(lesson) => format!("{} ago", out::since(lesson.origin.at_ms)),
        None => "written by hand".to_owned(),
    };
    if view.untold.iter().any(|known| known == wish) {
        learned += ", now in the weights";
    }
    let number = lesson.map(|one| one.n.to_string()).unwrap_or_default();
    let own = [wish.to_owned(), learned, number];
    own.into_iter().chain(counted).collect()
}
