//! The skill with which an agent installs MetaClaw: the real OpenClaw and Claude Code have it, and a scripted model
//! issues the skill's own commands, from the installation of the npm package to its removal.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use metaclaw_tests::{
    background::Processes,
    external,
    home::signal,
    upstream::{Asked, Play, Upstream},
};
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{process::Command, time::timeout};

const SKILL: &str = include_str!("../../addons/packages/skill/install-metaclaw/SKILL.md");
const DONE: &str = "MetaClaw came and went.";
const PACKAGE: &str = "./metaclaw-VERSION.tgz";
const INSTALL: &str = "npm install --global --prefix ~/.local ./metaclaw-VERSION.tgz";
const REMOVE: &str = "npm uninstall --global --prefix ~/.local metaclaw";
const WITHIN: Duration = Duration::from_secs(300);

/// A user's home, in which the agent has the skill, and the built package lies in the working folder.
struct Owner {
    folder: TempDir,
    work: PathBuf,
}

/// What the agent saw: the result of each command, in order.
struct Results(Vec<String>);

impl Owner {
    fn new(skills: &str, work: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let skill = folder.path().join(skills).join("install-metaclaw");
        fs::create_dir_all(&skill).expect("a writable home");
        fs::write(skill.join("SKILL.md"), SKILL).expect("a writable home");
        let work = folder.path().join(work);
        fs::create_dir_all(&work).expect("a writable home");
        Self { folder, work }
    }

    fn home(&self) -> &Path {
        self.folder.path()
    }

    fn metaclaw_home(&self) -> PathBuf {
        self.home().join(".metaclaw")
    }

    /// Packs a program that runs the built one, as `cargo xtask dist` packs that, whose size would cost a minute here.
    async fn pack(&self, node: &Path) {
        let package = self.work.join("package");
        fs::create_dir(&package).expect("a writable home");
        let built = external::bin_dir().join("metaclaw");
        let script = format!("#!/bin/sh\nexec '{}' \"$@\"\n", built.display());
        fs::write(package.join("metaclaw"), script).expect("a writable folder");
        let manifest =
            json!({"name": "metaclaw", "version": "0.0.0", "bin": {"metaclaw": "metaclaw"}});
        fs::write(package.join("package.json"), manifest.to_string()).expect("a writable folder");
        let mut npm = self.command(Path::new("npm"), node);
        npm.args(["pack", "--silent", "./package"]);
        let packed = npm.output().await.expect("npm runs");
        assert!(packed.status.success(), "{packed:?}");
        let archive = self.work.join("metaclaw-0.0.0.tgz");
        fs::rename(archive, self.work.join(PACKAGE)).expect("npm packed it");
    }

    /// A program in this home, without the caller's environment.
    fn command(&self, program: &Path, node: &Path) -> Command {
        let own = self.home().join(".local/bin");
        let path = format!(
            "{}:{}:/usr/local/bin:/usr/bin:/bin",
            own.display(),
            node.display()
        );
        let mut command = Command::new(program);
        command
            .current_dir(&self.work)
            .env_clear()
            .env("PATH", path)
            .env("HOME", self.home())
            .env("NO_COLOR", "1")
            .env("METACLAW__PROXY__PORT", "0")
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    /// Runs the agent, which must end in time with the scripted answer.
    async fn run(&self, mut command: Command) {
        let output = timeout(WITHIN, command.output()).await;
        let output = output.expect("it ends in time").expect("it runs");
        let said = String::from_utf8_lossy(&output.stdout);
        let logs = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(DONE), "{said}\n{logs}");
    }

    fn assert_all_is_gone(&self) {
        assert!(!self.metaclaw_home().exists());
        assert!(!self.home().join(".local/bin/metaclaw").exists());
    }
}

/// A test that failed leaves nothing in the background.
impl Drop for Owner {
    fn drop(&mut self) {
        if let Ok(Processes { parent, proxy }) = Processes::of(&self.metaclaw_home()) {
            for pid in [parent, proxy] {
                signal(pid, Signal::KILL).ok();
            }
        }
    }
}

/// An upstream whose model issues these commands with this tool, one after another, and then answers. Each must stand
/// in the skill; `URL` becomes the upstream's own address, which the agent's settings name.
fn model(tool: &'static str, commands: &'static [&'static str]) -> Upstream {
    for command in commands {
        assert!(SKILL.contains(&format!("\n{command}\n")), "{command}");
    }
    Upstream::scripted(move |asked: &Asked<'_>| {
        if asked.body["tools"].as_array().is_none_or(Vec::is_empty) {
            return Play::Text(DONE);
        }
        let Some(command) = commands.get(results(asked.body).len()) else {
            return Play::Text(DONE);
        };
        let host = asked.request.header("host");
        let url = format!("http://{}", host.expect("every request has one"));
        let command = command.replace("URL", &url);
        let arguments = json!({"command": command, "description": "a step of the skill"});
        Play::Call {
            name: tool,
            // The script outlives the test; a few hundred bytes are never freed.
            arguments: Box::leak(arguments.to_string().into_boxed_str()),
        }
    })
}

/// The results of tools in a request, in both APIs.
fn results(body: &Value) -> Vec<String> {
    let mut results = Vec::new();
    for message in body["messages"].as_array().into_iter().flatten() {
        if message["role"] == "tool" {
            results.push(message["content"].to_string());
        }
        let parts = message["content"].as_array().into_iter().flatten();
        let parts = parts.filter(|part| part["type"] == "tool_result");
        results.extend(parts.map(|part| part["content"].to_string()));
    }
    results
}

impl Results {
    /// Of the last request that the upstream got; the skill was in the first.
    fn of(upstream: &Upstream) -> Self {
        let received = upstream.received();
        let is_there = |body: &[u8]| String::from_utf8_lossy(body).contains("install-metaclaw");
        assert!(received.iter().any(|it| is_there(&it.body)), "no skill");
        let bodies = received
            .iter()
            .filter_map(|it| serde_json::from_slice(&it.body).ok());
        let most = bodies
            .map(|body: Value| results(&body))
            .max_by_key(Vec::len);
        Self(most.unwrap_or_default())
    }

    /// Each command's result has these words.
    fn assert_say(&self, words: &[&str]) {
        assert_eq!(self.0.len(), words.len(), "{:#?}", self.0);
        for (result, words) in self.0.iter().zip(words) {
            assert!(result.contains(words), "{words}: {result}");
        }
    }
}

#[tokio::test]
#[ignore = "needs the binaries and OpenClaw, cargo xtask test --all runs it"]
async fn openclaw_installs_metaclaw_by_the_skill_and_removes_it() {
    let (folder, node) = external::openclaw();
    let upstream = model(
        "exec",
        &[
            INSTALL,
            "metaclaw --version",
            "metaclaw wire",
            "metaclaw start -d --yes",
            "metaclaw doctor",
            "metaclaw uninstall --yes",
            REMOVE,
        ],
    );
    let owner = Owner::new(".openclaw/skills", ".openclaw/workspace");
    owner.pack(&node).await;
    let config = owner.home().join("openclaw.json");
    let before = format!(
        r#"{{
  // mine
  models: {{ mode: "replace", providers: {{ proxied: {{ baseUrl: "{}/v1", apiKey: "sk-agent",
    api: "openai-completions", models: [{{ id: "text", name: "text", contextWindow: 128000, maxTokens: 4096 }}] }} }} }},
  agents: {{ defaults: {{ model: {{ primary: "proxied/text" }} }} }},
}}
"#,
        upstream.base_url
    );
    fs::write(&config, &before).expect("a writable home");
    let mut command = owner.command(&folder.join("node_modules/.bin/openclaw"), &node);
    command
        .env("OPENCLAW_STATE_DIR", owner.home().join(".openclaw"))
        .env("OPENCLAW_CONFIG_PATH", &config)
        .args(["agent", "--local", "--agent", "main", "--json"])
        .args(["--timeout", "240", "-m"])
        .arg("Install MetaClaw with the skill install-metaclaw. Yes, you may. Then remove it.");
    owner.run(command).await;

    Results::of(&upstream).assert_say(&[
        "added 1 package",
        "metaclaw ",
        "openclaw",
        "in the background",
        "OpenClaw asks",
        "is gone",
        "removed 1 package",
    ]);
    assert_eq!(fs::read_to_string(&config).expect("a file"), before);
    owner.assert_all_is_gone();
}

#[tokio::test]
#[ignore = "needs the binaries and Claude Code, cargo xtask test --all runs it"]
async fn claude_code_installs_metaclaw_by_the_skill_and_removes_it() {
    let node = external::node();
    let upstream = model(
        "Bash",
        &[
            INSTALL,
            "metaclaw --version",
            "metaclaw wire",
            "metaclaw wire claude-code --dry-run",
            "metaclaw wire claude-code",
            "metaclaw doctor",
            "metaclaw uninstall --yes",
            REMOVE,
        ],
    );
    let owner = Owner::new(".claude/skills", "work");
    owner.pack(&node).await;
    let settings = owner.home().join(".claude/settings.json");
    let before = format!(
        "{{\n  \"env\": {{\"ANTHROPIC_BASE_URL\": \"{}\", \"ANTHROPIC_AUTH_TOKEN\": \"sk-former\"}},\n  \
         \"permissions\": {{\"allow\": [\"Bash(metaclaw:*)\", \"Bash(npm:*)\"]}}\n}}\n",
        upstream.base_url
    );
    fs::write(&settings, &before).expect("a writable home");
    let claude = external::claude_code().join("node_modules/.bin/claude");
    let mut command = owner.command(&claude, &node);
    command
        .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
        .env("DISABLE_AUTOUPDATER", "1")
        .arg("--print")
        .arg("/install-metaclaw Install MetaClaw. Yes, you may. Then remove it.");
    owner.run(command).await;

    Results::of(&upstream).assert_say(&[
        "added 1 package",
        "metaclaw ",
        "claude-code",
        "X-Agent-Id: claude-code",
        "in the background",
        "Claude Code asks MetaClaw",
        "is gone",
        "removed 1 package",
    ]);
    assert_eq!(fs::read_to_string(&settings).expect("a file"), before);
    owner.assert_all_is_gone();
}
