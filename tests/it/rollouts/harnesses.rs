//! Harnesses that nobody here wrote, run as they are: OpenAI's Agents SDK, Claude Code, OpenClaw, and an environment of
//! the package verifiers.

use std::{collections::BTreeSet, path::Path};

use metaclaw_tests::{
    external,
    home::Home,
    upstream::{Asked, Play, Upstream},
};
use metaclaw_turns::{Turn, TurnKind};
use serde_json::{Value, json};

use super::{rollouts, written};

const DONE: &str = "It is as it should be.";

/// A program, and how it is told where the model is.
struct Harness {
    name: &'static str,
    /// The keys of the file that name the program.
    program: Value,
    /// A tool that it offers, with arguments.
    call: (&'static str, &'static str),
    /// The API that it speaks to its model, as the upstream sees it.
    streams: bool,
}

fn text(path: &Path) -> String {
    path.to_str().expect("UTF-8").to_owned()
}

/// OpenAI's Agents SDK, in a program that has no word of a proxy: the SDK reads `OPENAI_BASE_URL`.
fn agents_sdk() -> Harness {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/it/rollouts/agents_sdk.py");
    Harness {
        name: "openai-agents",
        program: json!({"command": [external::python(), program], "reward": "exit_code"}),
        call: ("read_note", r#"{"name": "notes.txt"}"#),
        streams: true,
    }
}

fn claude_code(home: &Home) -> Harness {
    let program = external::claude_code().join("node_modules/.bin/claude");
    let (_, node) = external::openclaw();
    let path = format!("{}:/usr/local/bin:/usr/bin:/bin", node.display());
    Harness {
        name: "claude-code",
        program: json!({
            "command": [program, "--print", "--allowedTools", "Bash(cat:*)", "--", "What is in notes.txt?"],
            "env": {"PATH": path, "HOME": home.path(), "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
                "DISABLE_AUTOUPDATER": "1"},
            "reward": "exit_code"}),
        call: (
            "Bash",
            r#"{"command": "cat notes.txt", "description": "reads"}"#,
        ),
        streams: true,
    }
}

/// `OpenClaw`, whose own configuration takes the address and the key from the environment.
fn openclaw(home: &Home) -> Harness {
    let (folder, node) = external::openclaw();
    let program = folder.join("node_modules/.bin/openclaw");
    let path = format!("{}:/usr/local/bin:/usr/bin:/bin", node.display());
    let entry = json!({"id": "scripted", "name": "scripted", "reasoning": false,
        "input": ["text"], "contextWindow": 128_000, "maxTokens": 4096,
        "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0}});
    let provider = json!({"baseUrl": "${OPENAI_BASE_URL}", "apiKey": "${OPENAI_API_KEY}",
        "api": "openai-completions", "models": [entry]});
    let config = json!({
        "models": {"mode": "replace", "providers": {"given": provider}},
        "agents": {"defaults": {"model": {"primary": "given/scripted"}}}});
    let file = home.path().join("openclaw.json");
    std::fs::write(&file, config.to_string()).expect("a writable home");
    Harness {
        name: "openclaw",
        program: json!({
            "command": [program, "agent", "exec", "Run the tool.", "--json", "--timeout", "90", "--config", file],
            "env": {"PATH": path, "HOME": home.path(), "OPENCLAW_STATE_DIR": home.path().join(".openclaw")},
            "reward": "exit_code"}),
        call: ("exec", r#"{"command": "echo hi-from-tool"}"#),
        streams: true,
    }
}

/// An environment of verifiers with a tool, which the test writes.
fn verifiers(home: &Home) -> Harness {
    let environment = include_str!("note_reader.py");
    std::fs::write(home.path().join("note_reader.py"), environment).expect("a writable home");
    Harness {
        name: "verifiers",
        program: json!({"verifiers": "note_reader", "verifiers_args": {"n_tasks": 2},
            "python": external::verifiers().join("bin/python"), "env": {"PYTHONPATH": home.path()}}),
        call: ("read_note", r#"{"name": "notes.txt"}"#),
        streams: false,
    }
}

/// The model calls the tool once in a conversation, and is content with what it returns. OpenClaw puts a message of its
/// own after the result.
fn script(call: (&'static str, &'static str)) -> impl Fn(&Asked<'_>) -> Play {
    let is_result = |item: &Value| {
        item["role"] == "tool"
            || item["type"] == "function_call_output"
            || item["content"].to_string().contains("\"tool_result\"")
    };
    move |asked| {
        let lists = [&asked.body["messages"], &asked.body["input"]];
        let mut items = lists.iter().filter_map(|it| it.as_array()).flatten();
        let (name, arguments) = call;
        if !items.any(is_result) && asked.offers(name) {
            Play::Call { name, arguments }
        } else {
            Play::Text(DONE)
        }
    }
}

/// Runs a harness on two tasks, twice each, and checks that each of its turns is in one of its rollouts.
async fn runs_unchanged(
    harness: impl FnOnce(&Home) -> Harness,
    call: (&'static str, &'static str),
) {
    let upstream = Upstream::scripted(script(call));
    let home = Home::before(&external::bin_dir(), &upstream, "openai", &json!({}));
    let harness = harness(&home);
    assert_eq!(harness.call, call);
    let mut file = harness.program.clone();
    file["agent"] = "worker".into();
    file["at_once"] = 2.into();
    file["timeout"] = "3 min".into();
    // An environment of verifiers has tasks of its own.
    if file["verifiers"].is_null() {
        file["tasks"] = "tasks.jsonl".into();
    }
    let tasks = [json!({"id": "one"}), json!({"id": "two"})];
    // JSON is YAML.
    let file = written(&home, &file.to_string(), &tasks);
    std::fs::write(home.path().join("notes.txt"), "All is well.").expect("a writable home");
    let proxy = home.start().await.unwrap();
    let arguments = [
        "rollout",
        "run",
        &text(&file),
        "--eval",
        "--tries",
        "2",
        "--json",
    ];
    let ran = home.ask(&arguments).await.unwrap();
    let measured = &ran["measurements"][0];
    let counts = (&measured["n_tries"], &measured["n_failed"]);
    assert_eq!(counts, (&json!(4), &json!(0)), "{}: {ran}", harness.name);
    let listed = rollouts(&home).await;
    let scores: Vec<&Value> = listed.iter().map(|it| &it["outcome"]).collect();
    assert_eq!(
        scores,
        [&json!(1.0); 4],
        "{}: {}",
        harness.name,
        printed(&home, &ran)
    );
    let turns = home.turns().await;
    assert_each_turn_has_its_rollout(&harness, &turns, &listed);
    let asked = upstream.received().into_iter();
    let bodies: Vec<Value> = asked
        .filter_map(|it| serde_json::from_slice(&it.body).ok())
        .collect();
    assert_eq!(
        bodies.len(),
        turns.len(),
        "{}: every request is a turn",
        harness.name
    );
    let n_streamed = bodies.iter().filter(|it| it["stream"] == true).count();
    assert_eq!(n_streamed > 0, harness.streams, "{}", harness.name);
    proxy.stop().await.unwrap();
}

/// Returns what the programs of a run have printed.
fn printed(home: &Home, ran: &Value) -> String {
    let run = ran["run"].as_str().expect("a run");
    let folder = home.path().join("rollouts").join(run).join("output");
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let texts = files.filter_map(|file| std::fs::read_to_string(file.path()).ok());
    texts.collect::<Vec<_>>().join("\n")
}

fn assert_each_turn_has_its_rollout(harness: &Harness, turns: &[Turn], listed: &[Value]) {
    let mut calling = BTreeSet::new();
    for turn in turns {
        let mark = turn.served.rollout.as_ref().expect("a rollout's turn");
        assert_eq!(turn.agent.as_str(), "worker");
        assert_eq!(turn.session, mark.id.session());
        let known = listed.iter().find(|it| it["id"] == mark.id.as_str());
        assert_eq!(known.expect("listed")["task"], mark.task.as_str());
        let has_call = turn
            .reply
            .iter()
            .any(|reply| !reply.tool_calls().is_empty());
        if turn.meta.kind == TurnKind::Rollout && has_call {
            calling.insert(mark.id.clone());
        }
    }
    assert_eq!(
        calling.len(),
        listed.len(),
        "{}: each calls the tool",
        harness.name
    );
}

#[tokio::test]
#[ignore = "needs the binaries and the Python packages, cargo xtask test --all runs it"]
async fn the_agents_sdk_of_openai_runs_as_it_is() {
    runs_unchanged(|_| agents_sdk(), ("read_note", r#"{"name": "notes.txt"}"#)).await;
}

#[tokio::test]
#[ignore = "needs the binaries and Claude Code, cargo xtask test --all runs it"]
async fn claude_code_runs_as_it_is() {
    let call = (
        "Bash",
        r#"{"command": "cat notes.txt", "description": "reads"}"#,
    );
    runs_unchanged(claude_code, call).await;
}

#[tokio::test]
#[ignore = "needs the binaries and OpenClaw, cargo xtask test --all runs it"]
async fn openclaw_runs_as_it_is() {
    runs_unchanged(openclaw, ("exec", r#"{"command": "echo hi-from-tool"}"#)).await;
}

#[tokio::test]
#[ignore = "needs the binaries and the package verifiers, cargo xtask test --all runs it"]
async fn an_environment_of_verifiers_runs_as_it_is() {
    runs_unchanged(verifiers, ("read_note", r#"{"name": "notes.txt"}"#)).await;
}
