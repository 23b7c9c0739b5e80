//! Tests of chats by Tinker's API: packages and OpenClaw get the same answers as from MetaClaw's own training server's
//! chat route.

use std::path::Path;

use metaclaw_tests::{
    external,
    home::{Home, Proxy},
    openclaw::{Api, OpenClaw, Run},
    tinker::{MODEL, Tinker},
    trainer::Trainer,
    upstream::{Asked, Play, Upstream},
};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{KEY, answers_again, home_of, home_without_wishes, says, server, user};
use crate::packages::{program, run};

const GREETING: &str = "Hello from the model.";
const TOOL_SAID: &str = "The tool said hi.";
/// Fields that differ between any two replies, and fields that concern the server's cache and not the reply.
const OWN: [&str; 11] = [
    "id",
    "item_id",
    "call_id",
    "tool_call_id",
    "tool_use_id",
    "created",
    "created_at",
    "completed_at",
    "cached_tokens",
    "cache_read_input_tokens",
    "input_tokens",
];

/// Returns the reply with only the kind of the fields that always differ.
fn shape(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let field = |(name, value): (&String, &Value)| {
                let shown = if OWN.contains(&name.as_str()) {
                    kind(value)
                } else {
                    shape(value)
                };
                (name.clone(), shown)
            };
            Value::Object(fields.iter().map(field).collect())
        }
        Value::Array(all) => all.iter().map(shape).collect(),
        other => other.clone(),
    }
}

fn kind(value: &Value) -> Value {
    json!(match value {
        Value::Null => "null",
        Value::Bool(_) => "a bool",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    })
}

/// The request to the demo model, which makes it think and call a tool, each time in the same way.
fn asked() -> Value {
    let call =
        "<tool_call>\n{\"name\": \"exec\", \"arguments\": {\"command\": \"ls\"}}\n</tool_call>";
    let tool = format!("Repeat exactly, and say nothing else:\n{call}");
    let mut thought = Vec::new();
    for colour in ["red", "blue", "green"] {
        let said = format!("<think>\nThey want me to say {colour}.\n</think>\n\n{colour}");
        thought.extend(user(&format!("Say {colour}.")));
        thought.push(json!({"role": "assistant", "content": said}));
    }
    thought.extend(user("Say black."));
    json!({
        "fields": {"temperature": 0, "max_tokens": 48},
        "responses_fields": {"temperature": 0, "max_output_tokens": 48},
        "tool": user(&tool),
        "thought": thought,
    })
}

/// Makes the home folder of a proxy that relays chats to the chat route of the training server at `url`, and trains
/// nothing.
fn home_of_chat_route(url: &str) -> Home {
    home_without_wishes()
        .with_env("METACLAW__RL__REMOTE_URL", url)
        .with_env("METACLAW__RL__REMOTE_API_KEY", KEY)
}

/// What a program sees through a proxy.
async fn seen(python: &Path, script: &str, proxy: &Proxy, scenes: &[&str]) -> Value {
    let mut command = program(python, script, &proxy.base_url, scenes);
    command.env("METACLAW_TEST_ASKED", asked().to_string());
    shape(&run(command).await)
}

/// One training server, asked by its own chat route and by Tinker's API, without training.
struct Both {
    trainer: Trainer,
    route: Proxy,
    tinker: Proxy,
    _homes: [Home; 2],
    _folder: TempDir,
}

impl Both {
    async fn start() -> Self {
        let (trainer, _, folder) = server().await;
        let homes = [home_of_chat_route(&trainer.url), home_of(&trainer.url)]
            .map(|home| home.with_env("METACLAW__RL__BATCH_SIZE", "100"));
        let [route, tinker] = [homes[0].start().await, homes[1].start().await];
        answers_again(&homes[0]).await;
        answers_again(&homes[1]).await;
        Self {
            trainer,
            route: route.unwrap(),
            tinker: tinker.unwrap(),
            _homes: homes,
            _folder: folder,
        }
    }

    async fn stop(self) {
        self.route.stop().await.unwrap();
        self.tinker.stop().await.unwrap();
        self.trainer.stop().await;
    }
}

#[tokio::test]
#[ignore = "needs the binaries, the model and the Python packages, cargo xtask test --all runs it"]
async fn packages_are_answered_as_by_our_own_chat_route() {
    let python = external::python();
    let both = Both::start().await;
    let openai = [
        "chat_whole",
        "chat_streamed",
        "chat_thought",
        "chat_tool",
        "responses_streamed",
        "responses_thought",
        "responses_called",
        "responses_tool",
    ];
    let anthropic = ["whole", "streamed", "thought", "tool"];
    for (script, scenes) in [
        ("openai_turns.py", &openai[..]),
        ("anthropic_turns.py", &anthropic),
        ("../openai_package.py", &[]),
    ] {
        let expected = seen(&python, script, &both.route, scenes).await;
        let found = seen(&python, script, &both.tinker, scenes).await;
        for (scene, expected) in expected.as_object().expect("scenes") {
            assert_eq!(found[scene], *expected, "{script} {scene}");
        }
        eprintln!("{script}: {found}");
        if script == "openai_turns.py" {
            let text = found["chat_thought"].to_string();
            assert!(text.contains("reasoning_content"), "it has thought: {text}");
            assert_eq!(found["chat_tool"]["call"]["function"]["name"], "exec");
        }
    }
    both.stop().await;
}

/// The model's answers in OpenClaw's turns: it thinks, calls the tool, and reports its result.
fn script(prompt: &str) -> String {
    if prompt.contains("hi-from-tool") {
        return TOOL_SAID.to_owned();
    }
    if !prompt.contains("Run the tool.") {
        return GREETING.to_owned();
    }
    let arguments = json!({"command": "echo hi-from-\"\"tool"});
    let call = json!({"name": "exec", "arguments": arguments});
    format!("<think>\nI am to run it.\n</think>\n\n<tool_call>\n{call}\n</tool_call>")
}

/// The same by a provider of chat completions or messages.
fn play(asked: &Asked<'_>) -> Play {
    match asked.model {
        "tool" => Play::Tool {
            command: "echo hi-from-\"\"tool",
            then: TOOL_SAID,
        },
        _ => Play::Text(GREETING),
    }
}

/// Returns OpenClaw's view of a turn; of its counters only the names.
fn outcome(run: &Run) -> Value {
    let mut said = run.said.clone();
    let fields = said.as_object_mut().expect("an object");
    fields.remove("sessionId");
    let usage = fields.remove("usage").unwrap_or_default();
    let counted: Vec<String> = usage
        .as_object()
        .into_iter()
        .flatten()
        .map(|it| it.0.clone())
        .collect();
    json!({"code": run.code, "said": said, "counted": counted})
}

#[tokio::test]
#[ignore = "needs the binaries, the model and OpenClaw, cargo xtask test --all runs it"]
async fn openclaw_is_answered_by_a_sampler_as_by_a_provider_of_chats() {
    let openclaw = OpenClaw::installed();
    let (trainer, ..) = server().await;
    trainer.stop().await;
    let provider = Upstream::scripted(play);
    let service = Tinker::scripted(&external::converted(), script);
    let home = home_of(&service.url)
        .with_env("METACLAW__RL__MODEL", MODEL)
        .with_env("METACLAW__RL__BATCH_SIZE", "100");
    let proxy = home.start().await.unwrap();
    answers_again(&home).await;
    for api in [Api::Completions, Api::Messages] {
        for (model, instruction, said) in [
            ("text", "Say hello.", GREETING),
            ("tool", "Run the tool.", TOOL_SAID),
        ] {
            let (direct, proxied) = tokio::join!(
                openclaw.exec(api, &provider.base_url, model, instruction),
                openclaw.exec(api, &proxy.base_url, model, instruction),
            );
            assert_eq!(proxied.said["final"], said, "{proxied:?}");
            let [direct, proxied] = [&direct, &proxied].map(outcome);
            assert_eq!(proxied, direct, "{api:?} {model}");
            eprintln!("{api:?} {model}: {proxied}");
        }
    }
    says(&home, "turns are kept with their ids", |status| {
        status["funnel"]["with_ids"].as_u64().unwrap_or(0) >= 6
    })
    .await;
    proxy.stop().await.unwrap();
}
