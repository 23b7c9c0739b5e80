//! `metaclaw wire` with the real agents: each asks through the proxy and calls a tool, and its files are as they were
//! byte for byte afterwards.

use std::{process::Stdio, sync::LazyLock, time::Duration};

use metaclaw_test_kit::{has, until_within};
use metaclaw_tests::{
    agents::{NOTE, SetUp, WiredAgent},
    external,
    home::Home,
    upstream::{Asked, Play, Upstream},
    wait::until,
};
use serde_json::{Value, json};

const DONE: &str = "It is as it should be.";
const QUESTION: &str = "What is in notes.txt?";
/// How long until a turn is in the log.
const NOTED_WITHIN: Duration = Duration::from_secs(20);
/// The key of the proxy's provider, and the one that the agent's user has.
const OURS: &str = "sk-upstream";
const THEIRS: &str = "sk-former";

static AGENTS: LazyLock<Vec<WiredAgent>> =
    LazyLock::new(|| serde_saphyr::from_str(include_str!("wired.yaml")).expect("agents"));

/// The model calls the tool once each time that it is told something.
fn script(agent: &'static WiredAgent, asked: &Asked<'_>) -> Play {
    let newest = asked.newest();
    let is_result = newest["role"] == "tool"
        || newest["type"] == "function_call_output"
        || newest["content"].to_string().contains("\"tool_result\"");
    match &agent.call {
        Some((name, arguments)) if !is_result && asked.offers(name) => {
            Play::Call { name, arguments }
        }
        _ => Play::Text(DONE),
    }
}

/// The requests for a reply in which the note stands, or, of an agent without tools, the question.
fn with_note(kind: &WiredAgent, upstream: &Upstream) -> Vec<Value> {
    let needle = kind.call.as_ref().map_or("notes.txt", |_| NOTE);
    let received = upstream.received().into_iter();
    let bodies = received.map(|it| String::from_utf8_lossy(&it.body).into_owned());
    let noted = bodies.filter(|it| it.contains(needle));
    noted
        .map(|it| serde_json::from_str(&it).expect("JSON"))
        .collect()
}

/// What was sent last in each request, and which tools were offered.
fn tails(upstream: &Upstream) -> Vec<String> {
    let received = upstream.received().into_iter();
    let bodies = received.filter_map(|it| serde_json::from_slice::<Value>(&it.body).ok());
    let tail = |body: Value| {
        let items = [&body["messages"], &body["input"]];
        let last = items.iter().find_map(|it| it.as_array()?.last());
        let tools = body["tools"].as_array().into_iter().flatten();
        let names = tools.map(|it| [&it["name"], &it["function"]["name"]]);
        let names: Vec<&str> = names.flatten().filter_map(Value::as_str).collect();
        format!("{} {names:?}", last.unwrap_or(&Value::Null))
    };
    bodies.map(tail).collect()
}

/// Runs a command that must work, as the agent's user does.
async fn metaclaw(home: &Home, arguments: &[&str]) -> String {
    let mut command = home.command(arguments);
    command.stdin(Stdio::null());
    for variable in [
        "XDG_CONFIG_HOME",
        "XDG_DATA_HOME",
        "CODEX_HOME",
        "HERMES_HOME",
        "CLAUDE_CONFIG_DIR",
    ] {
        command.env_remove(variable);
    }
    let output = command.output().await.expect("metaclaw runs");
    let [said, errors] = [&output.stdout, &output.stderr].map(|it| String::from_utf8_lossy(it));
    println!("$ metaclaw {}\n{said}{errors}", arguments.join(" "));
    assert!(output.status.success(), "{arguments:?}: {said}{errors}");
    assert!(!said.contains(THEIRS) && !said.contains(OURS), "{said}");
    said.into_owned()
}

/// One turn with a tool call goes through the proxy and nowhere else, with the proxy's key, under the agent's name.
async fn asks_the_proxy(
    kind: &WiredAgent,
    agent: &SetUp,
    home: &Home,
    former: &Upstream,
    ours: &Upstream,
) {
    let n_former = former.received().len();
    let said = agent.say(QUESTION).await;
    assert!(said.contains(DONE), "wired: {said}");
    assert_eq!(
        former.received().len(),
        n_former,
        "its own provider is not asked"
    );
    let noted = with_note(kind, ours);
    assert!(!noted.is_empty(), "its tool did not read the note");
    assert!(noted.iter().all(|it| it["model"] == "served"), "{noted:?}");
    for received in ours.received() {
        let headers = received.head;
        assert!(!headers.contains(THEIRS), "{headers}");
    }
    let agents = async || {
        let turns = home.ask(&["turns", "list", "--json", "-n", "100"]).await;
        let turns = turns.expect("metaclaw lists");
        let turns = turns.as_array().expect("turns").iter();
        turns.map(|turn| turn["agent"].clone()).collect::<Vec<_>>()
    };
    // The proxy's own questions to its model name the note as well, and are no turns.
    let agents = until_within(NOTED_WITHIN, "turns", agents, |it| !it.is_empty()).await;
    assert!(agents.iter().all(|it| *it == *kind.id), "{agents:?}");
}

async fn is_wired_and_put_back(id: &str) {
    let kind = AGENTS.iter().find(|it| it.id == id).expect("an agent");
    let script = move |asked: &Asked<'_>| script(kind, asked);
    let (former, ours) = (Upstream::scripted(script), Upstream::scripted(script));
    let Some(agent) = kind.set_up(&former.base_url) else {
        return;
    };
    // What it writes at its first start is no work of ours.
    let said = agent.say(QUESTION).await;
    assert!(said.contains(DONE), "before: {said}");
    assert!(
        !with_note(kind, &former).is_empty(),
        "its tool does not read the note: {:?}",
        tails(&former)
    );
    let before = agent.files();

    let api_base = format!("{}/v1", ours.base_url);
    let llm = json!({"api_base": api_base, "model_id": "served", "api_key": OURS});
    let config = json!({"mode": "skills_only", "llm": llm});
    let home = Home::new(&external::bin_dir(), &config.to_string());
    // Also of the proxy itself, which points agents at itself when it starts.
    let home = home.with_env("HOME", agent.home().to_string_lossy());
    let proxy = home.start().await.expect("the proxy starts");
    let listed = metaclaw(&home, &["wire"]).await;
    has(&listed, [&format!("`metaclaw wire {}`", kind.id)]);
    metaclaw(&home, &["wire", &kind.id, "--dry-run", "--replace-model"]).await;
    assert_eq!(agent.files(), before, "a look changes nothing");
    metaclaw(&home, &["wire", &kind.id, "--replace-model"]).await;
    assert_ne!(agent.files(), before);

    asks_the_proxy(kind, &agent, &home, &former, &ours).await;
    metaclaw(&home, &["wire"]).await;

    if kind.falls_back {
        let n_former = former.received().len();
        drop(proxy);
        let said = agent.say(QUESTION).await;
        assert!(said.contains(DONE), "without the proxy: {said}");
        assert!(
            former.received().len() > n_former,
            "its own provider is asked"
        );
    } else {
        proxy.stop().await.expect("it ends");
        assert_eq!(agent.files(), before, "the end of the proxy puts them back");
        let again = home.start().await.expect("the proxy starts");
        let wired = until(NOTED_WITHIN, async || agent.files() != before).await;
        wired.expect("the next start points it at the proxy again");
        metaclaw(&home, &["unwire", &kind.id]).await;
        assert_eq!(agent.files(), before, "{} while it runs", kind.id);
        again.stop().await.expect("it ends");
    }
    metaclaw(&home, &["unwire", &kind.id]).await;
    assert_eq!(agent.files(), before);
    let n_former = former.received().len();
    let said = agent.say(QUESTION).await;
    assert!(said.contains(DONE), "after: {said}");
    assert!(former.received().len() > n_former);
    assert_eq!(agent.files(), before);
}

#[tokio::test]
#[ignore = "needs the binaries and Claude Code, cargo xtask test --all runs it"]
async fn claude_code_is_wired_and_put_back() {
    is_wired_and_put_back("claude-code").await;
}

#[tokio::test]
#[ignore = "needs the binaries and Codex, cargo xtask test --all runs it"]
async fn codex_is_wired_and_put_back() {
    is_wired_and_put_back("codex").await;
}

#[tokio::test]
#[ignore = "needs the binaries and opencode, cargo xtask test --all runs it"]
async fn opencode_is_wired_and_put_back() {
    is_wired_and_put_back("opencode").await;
}

#[tokio::test]
#[ignore = "needs the binaries and Hermes, cargo xtask test --all runs it"]
async fn hermes_is_wired_falls_back_and_is_put_back() {
    is_wired_and_put_back("hermes").await;
}

#[tokio::test]
#[ignore = "needs the binaries and nanobot, cargo xtask test --all runs it"]
async fn nanobot_is_wired_falls_back_and_is_put_back() {
    is_wired_and_put_back("nanobot").await;
}

#[tokio::test]
#[ignore = "needs the binaries and CoPaw, cargo xtask agents runs it"]
async fn copaw_is_wired_and_put_back() {
    is_wired_and_put_back("copaw").await;
}

#[tokio::test]
#[ignore = "needs the binaries and QwenPaw, cargo xtask agents runs it"]
async fn qwenpaw_is_wired_and_put_back() {
    is_wired_and_put_back("qwenpaw").await;
}

#[tokio::test]
#[ignore = "needs the binaries and aider, cargo xtask agents runs it"]
async fn aider_is_wired_and_put_back() {
    is_wired_and_put_back("aider").await;
}

#[tokio::test]
#[ignore = "needs the binaries and llm, cargo xtask agents runs it"]
async fn llm_is_wired_and_put_back() {
    is_wired_and_put_back("llm").await;
}
