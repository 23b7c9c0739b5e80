//! Hermes, one question at a time: each message is a process that resumes the conversation.

use serde_json::json;

use super::room::{Room, run};
use crate::external;

/// A conversation with Hermes in a home of its own.
#[derive(Debug)]
pub struct Hermes {
    room: Room,
    has_begun: bool,
}

// === impl Hermes ===

impl Hermes {
    /// Returns the one that `cargo xtask test` has installed, in a fresh home with `base_url`, `http://HOST:PORT`.
    pub fn new(base_url: &str) -> Self {
        let room = Room::new();
        let model = json!({"default": "scripted", "provider": "custom", "api_key": "sk-agent",
            "base_url": format!("{base_url}/v1")});
        // JSON is valid YAML.
        room.configure(".hermes/config.yaml", &json!({"model": model}).to_string());
        Self {
            room,
            has_begun: false,
        }
    }

    /// Sends this message; returns Hermes's answer.
    pub async fn say(&mut self, text: &str) -> String {
        let bin = external::hermes().join("bin");
        let mut command = self.room.command(&bin.join("hermes"), &bin);
        command.env("HERMES_HOME", self.room.home().join(".hermes"));
        command.args(["chat", "--quiet", "--query", text]);
        if self.has_begun {
            command.arg("--continue");
        }
        self.has_begun = true;
        run(command).await
    }
}
