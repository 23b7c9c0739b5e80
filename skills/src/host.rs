//! Reads what an agent's host has learned by itself: OpenClaw's skills and `USER.md`, Claude Code's `CLAUDE.md`,
//! Hermes' memory.
//!
//! It is in the host's own part of each request. `reader` reads it, `store` keeps the state of each agent's last turn,
//! and `gist` and `held_back` compare it with our lessons: what the host says already is not said a second time.

mod gist;
mod reader;
mod store;

pub(crate) use self::{
    gist::is_alike,
    store::{HostStore, IndexedReading},
};
pub use self::{
    reader::{HostLessons, HostNote, HostSkill, host_part},
    store::{HeldBack, HostReading},
};

#[cfg(test)]
mod tests;
