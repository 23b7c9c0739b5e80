//! Lists what waits for the owner's decision, and the commands that show it.

use std::collections::BTreeMap;

use futures_util::future::BoxFuture;
use metaclaw_skills::{Lesson, LessonState, Library, Proposal};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WaitingReviews {
    /// Skills that a model wrote.
    pub skills: usize,
    /// Skills that other homes share.
    #[serde(skip_serializing_if = "is_zero")]
    pub shared: usize,
    pub wishes: BTreeMap<String, usize>,
}

/// Reads the library's files.
///
/// # Errors
/// Returns an error if a file cannot be read.
pub fn find(library: &Library) -> BoxFuture<'_, anyhow::Result<WaitingReviews>> {
    Box::pin(async move {
        let library = library.clone();
        let read = move || {
            anyhow::Ok(WaitingReviews::new(
                &library.journal()?,
                &library.proposals()?,
            ))
        };
        tokio::task::spawn_blocking(read).await?
    })
}

// === impl WaitingReviews ===

impl WaitingReviews {
    pub fn new(lessons: &[Lesson], proposals: &[Proposal]) -> Self {
        let mut wishes: BTreeMap<String, usize> = BTreeMap::new();
        for lesson in lessons {
            if matches!(lesson.state, LessonState::Review { .. }) {
                *wishes.entry(lesson.origin.agent.to_string()).or_default() += 1;
            }
        }
        let waiting = proposals.iter().filter(|one| one.is_waiting());
        Self {
            skills: waiting.clone().filter(|one| one.shared.is_none()).count(),
            shared: waiting.filter(|waiting| waiting.shared.is_some()).count(),
            wishes,
        }
    }

    /// Returns a line for each kind, with the command.
    pub fn lines(&self) -> Vec<String> {
        let skills = match self.skills {
            0 => None,
            1 => Some("1 skill that a model wrote waits".to_owned()),
            n => Some(format!("{n} skills that a model wrote wait")),
        };
        let skills = skills.map(|skill| format!("{skill} for your look  (metaclaw skills review)"));
        let shared = match self.shared {
            0 => None,
            1 => Some("1 shared skill waits".to_owned()),
            n => Some(format!("{n} shared skills wait")),
        };
        let shared = shared.map(|one| format!("{one} for your look  (metaclaw skills review)"));
        let wishes = self.wishes.iter().map(|(agent, n)| {
            let wait = if *n == 1 { "wish waits" } else { "wishes wait" };
            format!("{n} {wait} for your look  (metaclaw wishes review --agent {agent})")
        });
        skills.into_iter().chain(shared).chain(wishes).collect()
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it")]
fn is_zero(n: &usize) -> bool {
    *n == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_told_with_the_command_that_shows_it() {
        let wishes = [("main".to_owned(), 2), ("work".to_owned(), 1)];
        let waiting = WaitingReviews {
            skills: 1,
            shared: 2,
            wishes: wishes.into(),
        };
        insta::assert_snapshot!(waiting.lines().join("\n"), @r"
        1 skill that a model wrote waits for your look  (metaclaw skills review)
        2 shared skills wait for your look  (metaclaw skills review)
        2 wishes wait for your look  (metaclaw wishes review --agent main)
        1 wish waits for your look  (metaclaw wishes review --agent work)
        ");
        assert!(WaitingReviews::default().lines().is_empty());
    }
}
