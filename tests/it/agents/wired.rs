//! `metaclaw wire` with the real agents: each asks through the proxy and calls a tool, and its files are as they were
//! byte for byte afterwards.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use metaclaw_test_kit::until_within;
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

fn npm(folder: &Path, program: &str) -> (PathBuf, PathBuf) {
    let program = folder.join("node_modules/.bin").join(program);
    let (_, node) = external::openclaw();
    (program, node)
}

fn pip(folder: &Path, program: &str) -> (PathBuf, PathBuf) {
    let bin = folder.join("bin");
    (bin.join(program), bin)
}

const CLAUDE_CODE: WiredAgent = WiredAgent {
    id: "claude-code",
    program: || Some(npm(&external::claude_code(), "claude")),
    files: &[(
        ".claude/settings.json",
        "{\n  \"env\": {\"ANTHROPIC_BASE_URL\": \"FORMER\", \"ANTHROPIC_AUTH_TOKEN\": \"sk-former\"},\n  \"permissions\": {\"allow\": [\"Bash(cat:*)\"]}\n}\n",
    )],
    added: &[],
    variables: &[
        ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
        ("DISABLE_AUTOUPDATER", "1"),
    ],
    arguments: &["--print"],
    ending: &[],
    call: Some((
        "Bash",
        r#"{"command": "cat notes.txt", "description": "reads"}"#,
    )),
    falls_back: false,
};

const CODEX: WiredAgent = WiredAgent {
    id: "codex",
    program: || Some(npm(&external::codex(), "codex")),
    // Without `sandbox_mode`, Codex runs commands in bubblewrap where that is installed, and does not find its own helper
    // there: "bwrap: execvp codex-linux-sandbox: No such file or directory".
    files: &[(
        ".codex/config.toml",
        "# mine\nsandbox_mode = \"danger-full-access\"\nmodel = \"gpt-5.5\"\nmodel_provider = \"former\" # paid by work\ncheck_for_update_on_startup = false\n\n[model_providers.former]\nname = \"Former\"\nbase_url = \"FORMER/v1\"\nwire_api = \"responses\"\nexperimental_bearer_token = \"sk-former\"\n",
    )],
    added: &[],
    variables: &[],
    arguments: &["exec", "--skip-git-repo-check"],
    ending: &[],
    call: Some(("exec_command", r#"{"cmd": "cat notes.txt"}"#)),
    falls_back: false,
};

const OPENCODE: WiredAgent = WiredAgent {
    id: "opencode",
    program: || Some(npm(&external::opencode(), "opencode")),
    files: &[(
        ".config/opencode/opencode.jsonc",
        "{\n  // mine\n  \"model\": \"former/scripted\", /* the good one */\n  \"provider\": { \"former\": { \"npm\": \"@ai-sdk/openai-compatible\", \"options\": { \"baseURL\": \"FORMER/v1\", \"apiKey\": \"sk-former\" },\n    \"models\": { \"scripted\": { \"name\": \"scripted\", \"limit\": { \"context\": 64000, \"output\": 8000 } }, }, }, },\n}\n",
    )],
    added: &[],
    variables: &[
        ("OPENCODE_DISABLE_MODELS_FETCH", "1"),
        ("OPENCODE_DISABLE_AUTOUPDATE", "1"),
    ],
    arguments: &["run"],
    ending: &[],
    call: Some((
        "bash",
        r#"{"command": "cat notes.txt", "description": "reads"}"#,
    )),
    falls_back: false,
};

const HERMES: WiredAgent = WiredAgent {
    id: "hermes",
    program: || Some(pip(&external::hermes(), "hermes")),
    files: &[(
        ".hermes/config.yaml",
        "# mine\nmodel:\n  default: scripted   # the good one\n  provider: custom\n  base_url: FORMER/v1\n  api_key: sk-former\n\nagent:\n  api_max_retries: 1\n",
    )],
    added: &[],
    variables: &[],
    arguments: &["chat", "--quiet", "--query"],
    ending: &[],
    call: Some(("terminal", r#"{"command": "cat notes.txt"}"#)),
    falls_back: true,
};

const NANOBOT: WiredAgent = WiredAgent {
    id: "nanobot",
    program: || Some(pip(&external::nanobot(), "nanobot")),
    files: &[(
        ".nanobot/config.json",
        "{\n  \"agents\": {\"defaults\": {\"provider\": \"custom\", \"model\": \"scripted\"}},\n  \"providers\": {\"custom\": {\"apiBase\": \"FORMER/v1\", \"apiKey\": \"sk-former\"}}\n}\n",
    )],
    added: &[],
    variables: &[],
    arguments: &["agent", "--message"],
    ending: &[],
    call: Some(("exec", r#"{"command": "cat notes.txt"}"#)),
    falls_back: true,
};

const COPAW: WiredAgent = WiredAgent {
    id: "copaw",
    program: || external::copaw().map(|folder| pip(&folder, "copaw")),
    files: &[
        (
            ".copaw.secret/providers/custom/former.json",
            "{\"id\": \"former\", \"name\": \"Former\", \"base_url\": \"FORMER/v1\", \"api_key\": \"sk-former\", \"chat_model\": \"OpenAIChatModel\", \"is_custom\": true, \"extra_models\": [{\"id\": \"scripted\", \"name\": \"scripted\"}]}",
        ),
        (
            ".copaw.secret/providers/active_model.json",
            "{\n  \"provider_id\": \"former\",\n  \"model\": \"scripted\"\n}",
        ),
    ],
    added: &[".copaw.secret/providers/custom/metaclaw.json"],
    variables: &[],
    arguments: &["task", "--no-guard", "--instruction"],
    ending: &[],
    call: Some(("execute_shell_command", r#"{"command": "cat ~/notes.txt"}"#)),
    falls_back: false,
};

const QWENPAW: WiredAgent = WiredAgent {
    id: "qwenpaw",
    program: || external::qwenpaw().map(|folder| pip(&folder, "qwenpaw")),
    files: &[
        (
            ".qwenpaw.secret/providers/custom/former.json",
            "{\"id\": \"former\", \"name\": \"Former\", \"base_url\": \"FORMER/v1\", \"api_key\": \"sk-former\", \"chat_model\": \"OpenAIChatModel\", \"is_custom\": true, \"extra_models\": [{\"id\": \"scripted\", \"name\": \"scripted\"}]}",
        ),
        (
            ".qwenpaw.secret/providers/active_model.json",
            "{\n  \"provider_id\": \"former\",\n  \"model\": \"scripted\"\n}",
        ),
    ],
    added: &[".qwenpaw.secret/providers/custom/metaclaw.json"],
    variables: &[],
    arguments: &["task", "--no-guard", "--instruction"],
    ending: &[],
    // Its headless mode offers no tool that reads.
    call: None,
    falls_back: false,
};

const AIDER: WiredAgent = WiredAgent {
    id: "aider",
    program: || external::aider().map(|folder| pip(&folder, "aider")),
    files: &[(
        ".aider.conf.yml",
        "# mine\nmodel: openai/scripted\nopenai-api-base: FORMER/v1   # work\nopenai-api-key: sk-former\n",
    )],
    added: &[".aider.model.settings.yml"],
    variables: &[],
    arguments: &[
        "--no-git",
        "--yes-always",
        "--no-check-update",
        "--no-show-model-warnings",
        "--analytics-disable",
        "--no-pretty",
        "--message",
    ],
    ending: &["notes.txt"],
    call: None,
    falls_back: false,
};

const LLM: WiredAgent = WiredAgent {
    id: "llm",
    program: || external::llm().map(|folder| pip(&folder, "llm")),
    files: &[
        (
            ".config/io.datasette.llm/extra-openai-models.yaml",
            "# mine\n- model_id: former\n  model_name: scripted\n  api_base: FORMER/v1\n  headers: {Authorization: Bearer sk-former}\n  supports_tools: true\n",
        ),
        (".config/io.datasette.llm/default_model.txt", "former"),
    ],
    added: &[],
    variables: &[],
    arguments: &[
        "--functions",
        "def look() -> str:\n    return open('notes.txt').read()\n",
    ],
    ending: &[],
    call: Some(("look", "{}")),
    falls_back: false,
};

/// The model calls the tool once each time that it is told something.
fn script(agent: &WiredAgent, asked: &Asked<'_>) -> Play {
    let newest = asked.newest();
    let is_result = newest["role"] == "tool"
        || newest["type"] == "function_call_output"
        || newest["content"].to_string().contains("\"tool_result\"");
    match agent.call {
        Some((name, arguments)) if !is_result && asked.offers(name) => {
            Play::Call { name, arguments }
        }
        _ => Play::Text(DONE),
    }
}

/// The requests for a reply in which the note stands, or, of an agent without tools, the question.
fn with_note(kind: &WiredAgent, upstream: &Upstream) -> Vec<Value> {
    let needle = kind.call.map_or("notes.txt", |_| NOTE);
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
    assert!(agents.iter().all(|it| it == kind.id), "{agents:?}");
}

async fn is_wired_and_put_back(kind: WiredAgent) {
    let script = move |asked: &Asked<'_>| script(&kind, asked);
    let (former, ours) = (Upstream::scripted(script), Upstream::scripted(script));
    let Some(agent) = kind.set_up(&former.base_url) else {
        return;
    };
    // What it writes at its first start is no work of ours.
    let said = agent.say(QUESTION).await;
    assert!(said.contains(DONE), "before: {said}");
    assert!(
        !with_note(&kind, &former).is_empty(),
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
    assert!(
        listed.contains(&format!("`metaclaw wire {}`", kind.id)),
        "{listed}"
    );
    metaclaw(&home, &["wire", kind.id, "--dry-run"]).await;
    assert_eq!(agent.files(), before, "a look changes nothing");
    metaclaw(&home, &["wire", kind.id]).await;
    assert_ne!(agent.files(), before);

    asks_the_proxy(&kind, &agent, &home, &former, &ours).await;
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
        metaclaw(&home, &["unwire", kind.id]).await;
        assert_eq!(agent.files(), before, "{} while it runs", kind.id);
        again.stop().await.expect("it ends");
    }
    metaclaw(&home, &["unwire", kind.id]).await;
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
    is_wired_and_put_back(CLAUDE_CODE).await;
}

#[tokio::test]
#[ignore = "needs the binaries and Codex, cargo xtask test --all runs it"]
async fn codex_is_wired_and_put_back() {
    is_wired_and_put_back(CODEX).await;
}

#[tokio::test]
#[ignore = "needs the binaries and opencode, cargo xtask test --all runs it"]
async fn opencode_is_wired_and_put_back() {
    is_wired_and_put_back(OPENCODE).await;
}

#[tokio::test]
#[ignore = "needs the binaries and Hermes, cargo xtask test --all runs it"]
async fn hermes_is_wired_falls_back_and_is_put_back() {
    is_wired_and_put_back(HERMES).await;
}

#[tokio::test]
#[ignore = "needs the binaries and nanobot, cargo xtask test --all runs it"]
async fn nanobot_is_wired_falls_back_and_is_put_back() {
    is_wired_and_put_back(NANOBOT).await;
}

#[tokio::test]
#[ignore = "needs the binaries and CoPaw, cargo xtask agents runs it"]
async fn copaw_is_wired_and_put_back() {
    is_wired_and_put_back(COPAW).await;
}

#[tokio::test]
#[ignore = "needs the binaries and QwenPaw, cargo xtask agents runs it"]
async fn qwenpaw_is_wired_and_put_back() {
    is_wired_and_put_back(QWENPAW).await;
}

#[tokio::test]
#[ignore = "needs the binaries and aider, cargo xtask agents runs it"]
async fn aider_is_wired_and_put_back() {
    is_wired_and_put_back(AIDER).await;
}

#[tokio::test]
#[ignore = "needs the binaries and llm, cargo xtask agents runs it"]
async fn llm_is_wired_and_put_back() {
    is_wired_and_put_back(LLM).await;
}
