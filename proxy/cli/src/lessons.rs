//! What subcommands do with lessons, in the running process or on the files where nothing runs.

use metaclaw_chat::{AgentId, now_ms};
use metaclaw_skills::{LearnError, Library};

use crate::control::{LessonsView, WishChange};

/// The wishes of an agent, and where each comes from.
pub(crate) fn view(library: &Library, agent: &AgentId) -> anyhow::Result<LessonsView> {
    let mut lessons = library.journal()?;
    lessons.retain(|lesson| lesson.origin.agent == *agent);
    let wishes = library.wishes(agent).into_iter().map(|wish| wish.text);
    Ok(LessonsView {
        wishes: wishes.collect(),
        lessons,
        file: library.wishes_file(agent),
    })
}

/// Changes what is in force; what was done, in words.
pub(crate) fn apply(library: &Library, change: WishChange) -> anyhow::Result<String> {
    Ok(match change {
        WishChange::Add { agent, wish } => added(library, &agent, &wish)?,
        WishChange::Remove { agent, wish } => removed(library, &agent, &wish)?,
        WishChange::Edit { agent, wish, to } => {
            removed(library, &agent, &wish)?;
            added(library, &agent, &to)?
        }
        WishChange::Undo { n } => format!("undone: {}", library.undo(n)?.wish),
        WishChange::Accept { n } => {
            format!(
                "in force from the next session on: {}",
                library.accept(n)?.wish
            )
        }
    })
}

fn added(library: &Library, agent: &AgentId, wish: &str) -> Result<String, LearnError> {
    Ok(match library.write_down(agent, wish, now_ms())? {
        Some(lesson) => format!(
            "in force from the next session on: {}  (metaclaw undo {})",
            lesson.wish, lesson.n
        ),
        None => format!("it stands already: {wish}"),
    })
}

fn removed(library: &Library, agent: &AgentId, wish: &str) -> anyhow::Result<String> {
    anyhow::ensure!(
        library.remove_wish(agent, wish)?,
        "{agent} has no such wish: `metaclaw wishes list --agent {agent}` shows those there are"
    );
    Ok(format!("taken out: {wish}"))
}
