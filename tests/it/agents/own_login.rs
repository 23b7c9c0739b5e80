//! `metaclaw wire` is the whole set-up of an agent: in an empty home, one command has the real agent ask its own model
//! at its own provider, with its own key, through the proxy; beside OpenClaw, which asks another model elsewhere.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::Stdio,
    sync::LazyLock,
    time::Duration,
};

use metaclaw_test_kit::{has, until_within};
use metaclaw_tests::{
    agents::{SetUp, WiredAgent},
    background::Processes,
    external,
    home::signal,
    openclaw::{Api, OpenClaw},
    upstream::{Asked, Play, Upstream},
};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Command;

const DONE: &str = "It is as it should be.";
const GREETING: &str = "Hello from the other model.";
const THEIRS: &str = "sk-former";
const NOTED_WITHIN: Duration = Duration::from_secs(20);

static AGENTS: LazyLock<Vec<WiredAgent>> =
    LazyLock::new(|| serde_saphyr::from_str(include_str!("own_login.yaml")).expect("agents"));

/// MetaClaw as the agent's user has it, who has configured nothing.
struct MetaClaw {
    home: TempDir,
    user: PathBuf,
    openclaw: PathBuf,
}

impl MetaClaw {
    fn of(agent: &SetUp, openclaw: &Path) -> Self {
        Self {
            home: tempfile::tempdir().expect("a folder"),
            user: agent.home(),
            openclaw: openclaw.to_owned(),
        }
    }

    /// Runs a command that must work, and shows it as a transcript.
    async fn ask(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(external::bin_dir().join("metaclaw"));
        command
            .args(arguments)
            .env_clear()
            .env("HOME", &self.user)
            .env("METACLAW_HOME", self.home.path())
            .env("METACLAW__PROXY__PORT", "0")
            .env("METACLAW__UI__PORT", "0")
            .env("OPENCLAW_CONFIG_PATH", &self.openclaw)
            .env("PATH", "/usr/bin:/bin")
            .stdin(Stdio::null());
        let output = command.output().await.expect("metaclaw runs");
        let [said, errors] = [&output.stdout, &output.stderr].map(|it| String::from_utf8_lossy(it));
        println!("$ metaclaw {}\n{said}{errors}", arguments.join(" "));
        assert!(output.status.success(), "{arguments:?}: {said}{errors}");
        assert!(!said.contains(THEIRS), "{said}");
        said.into_owned()
    }

    /// Waits until the log has a turn of each of these agents.
    async fn has_heard(&self, agents: &[&str]) {
        let heard = async || self.ask(&["turns", "list", "--json", "-n", "100"]).await;
        let is_there = |turns: &String| {
            let turns: Value = serde_json::from_str(turns).expect("JSON");
            let turns = turns.as_array().expect("turns");
            agents
                .iter()
                .all(|id| turns.iter().any(|turn| turn["agent"] == *id))
        };
        until_within(NOTED_WITHIN, "turns", heard, is_there).await;
    }
}

/// A test that failed leaves nothing in the background.
impl Drop for MetaClaw {
    fn drop(&mut self) {
        if let Ok(Processes { parent, proxy }) = Processes::of(self.home.path()) {
            for pid in [parent, proxy] {
                signal(pid, Signal::KILL).ok();
            }
        }
    }
}

/// The model and the credential of each request for a reply, from the one with this number on.
fn asked(upstream: &Upstream, from: usize) -> BTreeSet<(String, String)> {
    let received = upstream.received().into_iter().skip(from);
    let pair = |request: metaclaw_tests::upstream::Received| {
        let body: Value = serde_json::from_slice(&request.body).ok()?;
        let credential = request.head.lines().find(|line| {
            let name = line.split(':').next().unwrap_or_default();
            ["authorization", "x-api-key"].contains(&&*name.to_ascii_lowercase())
        });
        let credential = credential.unwrap_or_default().to_ascii_lowercase();
        Some((body["model"].as_str()?.to_owned(), credential))
    };
    received.filter_map(pair).collect()
}

/// Says something to the agent; its own provider gets the same model and key as without MetaClaw.
async fn asks_as_before(agent: &SetUp, own: &Upstream, before: &BTreeSet<(String, String)>) {
    let n_before = own.received().len();
    let said = agent.say("Say that it is done.").await;
    assert!(said.contains(DONE), "{said}");
    let now = asked(own, n_before);
    assert!(
        !now.is_empty() && now.is_subset(before),
        "{now:?}: {before:?}"
    );
    assert!(
        now.iter()
            .all(|(_, credential)| credential.ends_with(THEIRS)),
        "{now:?}"
    );
}

async fn keeps_its_model_and_key(id: &str, model: &str) {
    let kind = AGENTS.iter().find(|it| it.id == id).expect("an agent");
    let own = Upstream::scripted(|_: &Asked<'_>| Play::Text(DONE));
    let Some(agent) = kind.set_up(&own.base_url) else {
        return;
    };
    // What it writes at its first start is no work of ours.
    agent.say("Say that it is done.").await;
    let direct = asked(&own, 0);
    assert!(direct.iter().any(|(asked, _)| asked == model), "{direct:?}");
    let before = agent.files();

    let alone = MetaClaw::of(&agent, Path::new("/nonexistent"));
    let host = own.base_url.trim_start_matches("http://");
    let told = alone.ask(&["wire", id]).await;
    let asks = format!("asks {model} at {host} today, and goes on asking it");
    has(&told, [asks.as_str(), "base URL"]);
    assert_ne!(agent.files(), before);
    asks_as_before(&agent, &own, &direct).await;
    alone.has_heard(&[id]).await;
    alone.ask(&["unwire", id]).await;
    assert_eq!(agent.files(), before);
    alone.ask(&["stop"]).await;

    // OpenClaw is there first, with another model, which would answer.
    let others = Upstream::scripted(|_: &Asked<'_>| Play::Text(GREETING));
    let openclaw = OpenClaw::installed();
    let gateway = openclaw
        .gateway(Api::Completions, &others.base_url, "text")
        .await;
    let openclaws = std::fs::read_to_string(gateway.config()).expect("a file");
    let beside = MetaClaw::of(&agent, &gateway.config());
    beside.ask(&["start", "--yes", "-d"]).await;
    let told = beside.ask(&["wire", id]).await;
    has(&told, ["Here text at", "It keeps its own model"]);
    asks_as_before(&agent, &own, &direct).await;
    let greeting = gateway.say("Say hello.").await;
    assert_eq!(greeting.said["result"]["payloads"][0]["text"], GREETING);
    beside.has_heard(&[id, "main"]).await;
    let of_openclaw = asked(&others, 0);
    assert!(
        of_openclaw.iter().all(|(model, _)| model == "text"),
        "{of_openclaw:?}"
    );
    for request in others.received() {
        assert!(!request.head.contains(THEIRS), "{}", request.head);
    }
    beside.ask(&["stop"]).await;
    assert_eq!(agent.files(), before, "the end of the proxy puts them back");
    beside.ask(&["unwire"]).await;
    let openclaw_now = std::fs::read_to_string(gateway.config()).expect("a file");
    assert_eq!((agent.files(), openclaw_now), (before, openclaws));
}

#[tokio::test]
#[ignore = "needs the binaries, OpenClaw and Claude Code, cargo xtask test --all runs it"]
async fn claude_code_keeps_its_model_and_key_beside_openclaw() {
    keeps_its_model_and_key("claude-code", "claude-opus-5-5").await;
}

#[tokio::test]
#[ignore = "needs the binaries, OpenClaw and Codex, cargo xtask test --all runs it"]
async fn codex_keeps_its_model_and_key_beside_openclaw() {
    keeps_its_model_and_key("codex", "gpt-5.5").await;
}
