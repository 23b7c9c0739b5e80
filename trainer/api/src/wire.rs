//! Requests and replies of the REST API: `spec/remote-training.md`, and MetaClaw's extensions.
//!
//! Field names and defaults are those of the community fork's `remote` backend. Fields that only this server sends are
//! optional for a client, so that the fork's replies are understood too.

mod adapters;
mod defaults;
mod runs;
mod state;
#[cfg(test)]
mod tests;
mod text;

pub use self::{adapters::*, runs::*, state::*, text::*};
