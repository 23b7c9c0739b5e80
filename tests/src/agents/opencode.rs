//! opencode, without a terminal: each message is a process that resumes the conversation.

use std::path::PathBuf;

use serde_json::json;

use super::room::{Room, run};
use crate::external;

/// A conversation with opencode in a home of its own.
#[derive(Debug)]
pub struct OpenCode {
    program: PathBuf,
    room: Room,
    has_begun: bool,
}

// === impl OpenCode ===

impl OpenCode {
    /// Returns the one that `cargo xtask test` has installed, in a fresh home with `base_url`, `http://HOST:PORT`, for
    /// chat completions.
    pub fn new(base_url: &str) -> Self {
        let program = external::opencode().join("node_modules/.bin/opencode");
        let room = Room::new();
        let options = json!({"baseURL": format!("{base_url}/v1"), "apiKey": "sk-agent"});
        let model = json!({"name": "scripted", "limit": {"context": 200_000, "output": 32_000}});
        let provider = json!({"npm": "@ai-sdk/openai-compatible", "name": "MetaClaw",
            "options": options, "models": {"scripted": model}});
        let config = json!({"model": "metaclaw/scripted", "provider": {"metaclaw": provider}});
        room.configure(".config/opencode/opencode.json", &config.to_string());
        Self {
            program,
            room,
            has_begun: false,
        }
    }

    /// Sends this message; returns opencode's answer. Each word is an argument of its own, because opencode puts
    /// arguments with blanks in quotation marks.
    pub async fn say(&mut self, text: &str) -> String {
        let words: Vec<&str> = text.split(' ').collect();
        self.run(&words).await
    }

    /// Sends the whole text as one argument, so that it arrives in quotation marks.
    pub async fn say_quoted(&mut self, text: &str) -> String {
        self.run(&[text]).await
    }

    async fn run(&mut self, words: &[&str]) -> String {
        let folder = self.program.parent().expect("a file in a folder");
        let mut command = self.room.command(&self.program, folder);
        command
            .env("OPENCODE_DISABLE_MODELS_FETCH", "1")
            .env("OPENCODE_DISABLE_AUTOUPDATE", "1")
            .arg("run");
        if self.has_begun {
            command.arg("--continue");
        }
        self.has_begun = true;
        command.args(words);
        run(command).await
    }
}
