//! The agents whose files are changed key by key, one file for each. To add an agent, add a file and a line here.

use crate::profile::AgentProfile;

mod aider;
mod claude_code;
mod codex;
mod copaw;
mod hermes;
mod ironclaw;
mod llm;
mod nanobot;
mod nanoclaw;
mod opencode;
mod picoclaw;
mod zeroclaw;

/// All agents of this module, in the order of the documentation.
pub static PROFILES: [&dyn AgentProfile; 13] = [
    &claude_code::ClaudeCode,
    &codex::Codex,
    &opencode::OpenCode,
    &hermes::Hermes,
    &copaw::COPAW,
    &copaw::QWENPAW,
    &nanobot::Nanobot,
    &aider::Aider,
    &llm::Llm,
    &ironclaw::IronClaw,
    &nanoclaw::NanoClaw,
    &picoclaw::PicoClaw,
    &zeroclaw::ZeroClaw,
];

/// Returns the profile whose [`AgentProfile::id`] is `id`.
pub fn profile(id: &str) -> Option<&'static dyn AgentProfile> {
    PROFILES.into_iter().find(|it| it.id() == id)
}
