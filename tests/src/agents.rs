//! Agents besides OpenClaw, as their users run them: unmodified, each in a home of its own.

mod claude_code;
mod codex;
mod hermes;
mod nanobot;
mod opencode;
mod room;
mod wired;

pub use self::{
    claude_code::{ClaudeCode, ClaudeCodeTalk},
    codex::Codex,
    hermes::Hermes,
    nanobot::Nanobot,
    opencode::OpenCode,
    room::Room,
    wired::{NOTE, SetUp, WiredAgent},
};
