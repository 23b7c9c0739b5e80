//! What of ours is not given beside what the host gives itself.

use crate::{skill::SkillName, wishes::Wish};

/// What of ours is held back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeldBack {
    /// Wishes, each with the host's line that says the same.
    pub wishes: Vec<(Wish, String)>,
    /// Skills of whose name the host has one.
    pub skills: Vec<SkillName>,
}

// === impl HeldBack ===

impl HeldBack {
    /// Whether all of ours is given.
    pub fn is_empty(&self) -> bool {
        self.wishes.is_empty() && self.skills.is_empty()
    }

    /// What stays held back in a conversation in which the host shows what `shows` finds: what it has said elsewhere
    /// says nothing here.
    #[must_use]
    pub fn shown(mut self, shows: impl Fn(&str) -> bool) -> Self {
        self.wishes.retain(|(_, line)| shows(line));
        self.skills.retain(|name| shows(name.as_str()));
        self
    }

    /// The line of the host that says what this wish says.
    pub fn line_for(&self, wish: &Wish) -> Option<&str> {
        let mut held = self.wishes.iter().filter(|(held, _)| held == wish);
        held.next().map(|(_, line)| line.as_str())
    }
}
