//! nanobot, one message at a time: each is a process that continues the conversation.

use serde_json::json;

use super::room::{Room, run};
use crate::external;

/// A conversation with nanobot in a home of its own.
#[derive(Debug)]
pub struct Nanobot {
    room: Room,
}

// === impl Nanobot ===

impl Nanobot {
    /// Returns the one that `cargo xtask test` has installed, in a fresh home with `base_url`, `http://HOST:PORT`.
    pub fn new(base_url: &str) -> Self {
        let room = Room::new();
        let provider = json!({"apiKey": "sk-agent", "apiBase": format!("{base_url}/v1")});
        let config = json!({"providers": {"custom": provider},
            "agents": {"defaults": {"provider": "custom", "model": "scripted"}}});
        room.configure(".nanobot/config.json", &config.to_string());
        Self { room }
    }

    /// Sends this message; returns nanobot's answer.
    pub async fn say(&self, text: &str) -> String {
        let bin = external::nanobot().join("bin");
        let mut command = self.room.command(&bin.join("nanobot"), &bin);
        command.args(["agent", "--message", text]);
        run(command).await
    }
}
