//! Claude Code: variables of its environment, which its settings set.

use std::path::PathBuf;

use crate::{
    agent::Surroundings,
    format::Format,
    keys::KeyToSet,
    outcome::WiringError,
    profile::{AgentProfile, BY_HEADER, Facts, NEXT_START, NONE, Settings, read, with_header},
    target::Target,
};

/// By `settings.json` of the user.
#[derive(Debug)]
pub(super) struct ClaudeCode;

const HEADERS: &str = "ANTHROPIC_CUSTOM_HEADERS";

// === impl ClaudeCode ===

impl AgentProfile for ClaudeCode {
    fn id(&self) -> &'static str {
        "claude-code"
    }

    fn name(&self) -> &'static str {
        "Claude Code"
    }

    fn programs(&self) -> &'static [&'static str] {
        &["claude"]
    }

    fn traces(&self, surroundings: &Surroundings) -> Vec<PathBuf> {
        vec![folder(surroundings), surroundings.home.join(".claude.json")]
    }

    fn settings(
        &self,
        surroundings: &Surroundings,
        target: &Target,
    ) -> Result<Settings, WiringError> {
        let path = folder(surroundings).join("settings.json");
        let env = &read(&path, Format::Json)?["env"];
        let own = format!("X-Agent-Id: {}", self.id());
        // One header a line.
        let headers = with_header(env[HEADERS].as_str(), "\n", &own);
        let mut keys_to_set = vec![
            KeyToSet::is(&["env", "ANTHROPIC_BASE_URL"], target.origin.as_str()),
            KeyToSet::is(&["env", HEADERS], headers),
        ];
        let mut notes = Vec::new();
        if target.key.is_some() || target.has_provider_key {
            // In place of a login, which then stays on this machine.
            keys_to_set.push(KeyToSet::is(
                &["env", "ANTHROPIC_AUTH_TOKEN"],
                target.shown_key(),
            ));
        } else {
            notes.push(passed_on(target));
        }
        let mut settings = Settings::of(path, Format::Json, keys_to_set);
        settings.notes = notes;
        Ok(settings)
    }

    fn facts(&self) -> Facts {
        Facts {
            fallback: NONE,
            session: BY_HEADER,
            side_calls: "sub-agents, titles, compaction",
            takes_effect: NEXT_START,
            tested: Some("@anthropic-ai/claude-code@2.1.331"),
        }
    }
}

fn folder(surroundings: &Surroundings) -> PathBuf {
    surroundings.folder("CLAUDE_CONFIG_DIR", ".claude")
}

fn passed_on(target: &Target) -> String {
    let upstream = target.upstream.as_deref().unwrap_or("its upstream");
    format!("MetaClaw has no key of its own: it passes Claude Code's key or login on to {upstream}")
}
