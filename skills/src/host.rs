//! Reads what an agent's host has learned by itself: OpenClaw's skills and `USER.md`, Claude Code's `CLAUDE.md`,
//! Hermes' memory.
//!
//! It is in the host's own part of each request. `reader` reads it, `store` keeps the state of each agent's last turn,
//! and `gist` and `held_back` compare it with our lessons: what the host says already is not said a second time.

mod gist;
mod held_back;
mod lessons;
mod part;
mod reader;
mod section;
mod store;

pub(crate) use self::{
    gist::is_alike,
    store::{HostStore, IndexedReading},
};
pub use self::{
    held_back::HeldBack,
    lessons::{HostLessons, HostNote, HostSkill},
    part::host_part,
    store::HostReading,
};

#[cfg(test)]
mod tests;
