//! Undoes the newest lesson, a wish or a learned skill.

use crate::{
    evolve::{EvolveError, Proposal},
    journal::{Lesson, LessonState},
    learn::LearnError,
    library::Library,
};

/// The undone lesson.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TakenBack {
    /// A wish. The wishes that it had replaced are in force again.
    Wish(Lesson),
    /// A skill. What it had replaced is in force again.
    Skill(Proposal),
}

/// Why nothing was undone.
#[derive(Debug, thiserror::Error)]
pub enum UndoError {
    /// The newest lesson was a wish, and undoing it failed.
    #[error(transparent)]
    Wish(#[from] LearnError),
    #[error(transparent)]
    Skill(#[from] EvolveError),
}

// === impl Library ===

impl Library {
    /// Undoes the lesson that came into force last, of any agent. A skill whose file somebody removed does not count.
    /// It accesses the file system.
    ///
    /// # Errors
    /// Returns [`UndoError`]. Except for what the error says, nothing has changed.
    pub fn undo_newest(&self) -> Result<TakenBack, UndoError> {
        let lessons = self.journal().map_err(LearnError::from)?.into_iter();
        let wish = lessons
            .filter(|it| it.state == LessonState::InForce)
            .max_by_key(|it| (it.in_force_ms(), it.n));
        let skill = self.newest_skill()?.filter(|skill| {
            let is_older = |wish: &Lesson| wish.in_force_ms() < skill.in_force_ms();
            wish.as_ref().is_none_or(is_older)
        });
        if let Some(skill) = skill {
            let agent = Some(&skill.source.agent);
            return Ok(TakenBack::Skill(self.revert_skill(agent, &skill.name)?));
        }
        let wish = wish.ok_or(LearnError::Nothing)?;
        Ok(TakenBack::Wish(self.undo(wish.n)?))
    }
}
