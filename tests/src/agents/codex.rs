//! Codex, without a terminal: each message is a process that resumes the conversation.

use std::path::PathBuf;

use super::room::{Room, run};
use crate::external;

/// This is lower than the token count that every reply of the scripted upstream reports.
const COMPACTS_AT: &str = "model_auto_compact_token_limit=1000";

/// A conversation with Codex in a home of its own.
#[derive(Debug)]
pub struct Codex {
    program: PathBuf,
    node: PathBuf,
    room: Room,
    has_begun: bool,
}

// === impl Codex ===

impl Codex {
    /// Returns the one that `cargo xtask test` has installed, in a fresh home, with `base_url`, `http://HOST:PORT`, and
    /// this AGENTS.md in its working folder.
    pub fn new(base_url: &str, agents_md: &str) -> Self {
        Self::configured(base_url, agents_md, "model = \"scripted\"")
    }

    /// Creates the same with these lines at the top of its configuration, which name the model.
    pub fn configured(base_url: &str, agents_md: &str, settings: &str) -> Self {
        let program = external::codex().join("node_modules/.bin/codex");
        let (_, node) = external::openclaw();
        let room = Room::new();
        std::fs::write(room.work().join("AGENTS.md"), agents_md).expect("a writable folder");
        let config = format!(
            r#"{settings}
model_provider = "metaclaw"
check_for_update_on_startup = false

[model_providers.metaclaw]
name = "MetaClaw"
base_url = "{base_url}/v1"
env_key = "OPENAI_API_KEY"
wire_api = "responses"
"#
        );
        room.configure(".codex/config.toml", &config);
        Self {
            program,
            node,
            room,
            has_begun: false,
        }
    }

    /// Returns its working folder.
    pub fn work(&self) -> PathBuf {
        self.room.work()
    }

    /// Sends this message; returns Codex's answer.
    pub async fn say(&mut self, text: &str) -> String {
        self.exec(&[], text).await
    }

    /// Does the same if the conversation is too long and is compacted first.
    pub async fn say_after_compaction(&mut self, text: &str) -> String {
        assert!(self.has_begun, "there is nothing to compact");
        self.exec(&["--config", COMPACTS_AT], text).await
    }

    async fn exec(&mut self, options: &[&str], text: &str) -> String {
        let mut command = self.room.command(&self.program, &self.node);
        command
            .env("CODEX_HOME", self.room.home().join(".codex"))
            .env("OPENAI_API_KEY", "sk-agent")
            .args(["exec", "--skip-git-repo-check"])
            .args(options);
        if self.has_begun {
            command.args(["resume", "--last"]);
        }
        self.has_begun = true;
        command.arg(text);
        run(command).await
    }
}
