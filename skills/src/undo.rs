//! Takes back the newest lesson, be it a wish or a skill that was learned.

use crate::{
    evolve::{EvolveError, Proposal},
    journal::{Lesson, LessonState},
    learn::LearnError,
    library::Library,
};

/// What was taken back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TakenBack {
    /// A wish; those that it replaced stand again.
    Wish(Lesson),
    /// A skill; what it took the place of stands again.
    Skill(Proposal),
}

/// Why nothing was taken back.
#[derive(Debug, thiserror::Error)]
pub enum UndoError {
    /// A wish was the newest.
    #[error(transparent)]
    Wish(#[from] LearnError),
    #[error(transparent)]
    Skill(#[from] EvolveError),
}

// === impl Library ===

impl Library {
    /// Takes back the lesson that came into force last, of any agent. A skill whose file somebody removed is none. Touches
    /// the file system.
    ///
    /// # Errors
    /// [`UndoError`]; nothing has changed then but what it says.
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
