//! Claude Code, in print mode: one process has a conversation, including `/compact` and `/clear`.

use std::{path::PathBuf, process::Stdio};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout},
    time::timeout,
};

use super::room::{ANSWER_WITHIN, Room};
use crate::external;

/// The installed Claude Code.
#[derive(Debug, Clone)]
pub struct ClaudeCode {
    program: PathBuf,
    node: PathBuf,
}

/// A running Claude Code; killed when dropped.
#[derive(Debug)]
pub struct ClaudeCodeTalk {
    pub room: Room,
    _child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

// === impl ClaudeCode ===

impl ClaudeCode {
    /// Returns the one that `cargo xtask test` has installed.
    pub fn installed() -> Self {
        let program = external::claude_code().join("node_modules/.bin/claude");
        let (_, node) = external::openclaw();
        Self { program, node }
    }

    /// Starts one in a fresh home with `base_url`, `http://HOST:PORT`, and with this CLAUDE.md in its working folder.
    pub fn start(&self, base_url: &str, claude_md: &str) -> ClaudeCodeTalk {
        self.start_with(base_url, claude_md, &[])
    }

    /// Starts the same with more arguments.
    pub fn start_with(
        &self,
        base_url: &str,
        claude_md: &str,
        arguments: &[&str],
    ) -> ClaudeCodeTalk {
        let room = Room::new();
        std::fs::write(room.work().join("CLAUDE.md"), claude_md).expect("a writable folder");
        let mut command = room.command(&self.program, &self.node);
        command
            .args(["--print", "--verbose", "--input-format", "stream-json"])
            .args(["--output-format", "stream-json"])
            .args(arguments)
            .env("ANTHROPIC_BASE_URL", base_url)
            .env("ANTHROPIC_API_KEY", "sk-agent")
            .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
            .env("DISABLE_AUTOUPDATER", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().expect("claude runs");
        let input = child.stdin.take().expect("piped");
        let output = BufReader::new(child.stdout.take().expect("piped")).lines();
        ClaudeCodeTalk {
            room,
            _child: child,
            input,
            output,
        }
    }
}

// === impl ClaudeCodeTalk ===

impl ClaudeCodeTalk {
    /// Types this text, a command such as `/clear` or a message, and waits until it is done; returns Claude Code's
    /// answer.
    pub async fn say(&mut self, text: &str) -> String {
        let message = json!({"type": "user", "message": {"role": "user", "content": text}});
        let line = format!("{message}\n");
        let written = self.input.write_all(line.as_bytes()).await;
        written.expect("claude reads");
        let result = timeout(ANSWER_WITHIN, self.result()).await;
        let result = result.expect("it answers in time");
        assert_eq!(result["is_error"], false, "{text}: {result}");
        result["result"].as_str().unwrap_or_default().to_owned()
    }

    async fn result(&mut self) -> Value {
        loop {
            let line = self.output.next_line().await.expect("claude prints");
            let line = line.expect("claude runs");
            let event: Value = serde_json::from_str(&line).expect("events are JSON");
            if event["type"] == "result" {
                return event;
            }
        }
    }
}
