//! Lessons of ours that are left out because the host has them.

use crate::{skill::SkillName, wishes::Wish};

/// The lessons that are left out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeldBack {
    /// Wishes, each with the host's line that says the same.
    pub wishes: Vec<(Wish, String)>,
    /// Skills whose names the host has too.
    pub skills: Vec<SkillName>,
}

// === impl HeldBack ===

impl HeldBack {
    /// Returns whether nothing is left out.
    pub fn is_empty(&self) -> bool {
        self.wishes.is_empty() && self.skills.is_empty()
    }

    /// Keeps only lessons that the host shows in this conversation, as `shows` finds. A line that it showed elsewhere
    /// does not count.
    #[must_use]
    pub fn shown(mut self, shows: impl Fn(&str) -> bool) -> Self {
        self.wishes.retain(|(_, line)| shows(line));
        self.skills.retain(|name| shows(name.as_str()));
        self
    }

    /// Returns the host's line that says the same as this wish.
    pub fn line_for(&self, wish: &Wish) -> Option<&str> {
        let mut held = self.wishes.iter().filter(|(held, _)| held == wish);
        held.next().map(|(_, line)| line.as_str())
    }
}
