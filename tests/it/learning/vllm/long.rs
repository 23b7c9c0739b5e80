//! Sends an OpenClaw request of 15,000 tokens and its next turn to a model of Qwen3-4B's shape, with MetaClaw's engine
//! and with vLLM.
//!
//! It takes minutes and 5 GB of memory, so it is run by hand: `METACLAW_TEST_LAYERS=2` sets how many of the 36 layers
//! the model has. Its weights are random.

use std::{fs, path::Path, process::Command, time::Duration};

use metaclaw_tests::{
    external,
    home::{Home, Proxy},
    openclaw::{Api as OpenClawApi, OpenClaw},
    trainer::{Start, Trainer},
    upstream::{Play, Upstream},
    vllm,
};
use serde_json::{Value, json};

use super::{api::Api, ready};
use crate::learning::home_without_wishes;

const SCRIPT: &str = include_str!("random_model.py");
/// The number of tokens of the request.
const TOKENS: u64 = 15_000;
/// Blocks of vLLM's prefix cache on a CPU have 128 tokens, and the last one is never full.
const NOT_CACHED: u64 = 256;

/// A turn as its agent and the log saw it.
#[derive(Debug)]
struct Measured {
    prompt: u64,
    cached: u64,
    first_token: Duration,
}

/// The model, with the demo model's tokenizer.
fn model(python: &Path, folder: &Path, n_layers: usize) {
    fs::create_dir(folder).unwrap();
    let script = folder.join("random_model.py");
    fs::write(&script, SCRIPT).unwrap();
    let mut command = Command::new(python);
    command.arg(script).arg(folder).arg(n_layers.to_string());
    assert!(command.status().unwrap().success());
    for file in ["tokenizer.json", "tokenizer_config.json"] {
        let from = external::converted().join(file);
        std::os::unix::fs::symlink(from, folder.join(file)).unwrap();
    }
}

/// OpenClaw's messages and tools.
async fn request() -> (Vec<Value>, Value) {
    let provider = Upstream::start(Play::Text("Hello."));
    let run = OpenClaw::installed()
        .exec(
            OpenClawApi::Completions,
            &provider.base_url,
            "m",
            "Which invoices are open?",
        )
        .await;
    assert_eq!(run.said["final"], "Hello.", "{run:?}");
    let received = provider.received();
    let bodies = received
        .iter()
        .map(|it| serde_json::from_slice::<Value>(&it.body).unwrap_or_default());
    let body = bodies.max_by_key(|it| it["tools"].to_string().len());
    let body = body.expect("a request");
    let messages = body["messages"].as_array().expect("messages").clone();
    (messages, body["tools"].clone())
}

/// Lengthens the system text, as more files in a workspace would, until the request has enough tokens.
async fn lengthen(api: &Api, messages: &mut [Value], tools: &Value) {
    let system = messages[0]["content"]
        .as_str()
        .expect("a system text")
        .to_owned();
    let mut more = String::new();
    for at in 0.. {
        messages[0]["content"] = json!(format!("{system}{more}"));
        let body = json!({"messages": messages, "tools": tools, "add_generation_prompt": true});
        let said = api.beside("/tokenize", body).await;
        let count = said["count"].as_u64().expect("a count");
        if count >= TOKENS {
            return;
        }
        for line in 0..(TOKENS - count).div_ceil(16) {
            let line = format!("Invoice {at}-{line} was sent to the printer's shop and is open.\n");
            more += &line;
        }
    }
}

async fn turn(proxy: &Proxy, home: &Home, messages: &[Value], tools: &Value) -> (Measured, Value) {
    let n_before = home.turns().await.len();
    let usage = json!({"include_usage": true});
    let asked = json!({"tools": tools, "max_tokens": 8, "temperature": 0, "stream_options": usage});
    let reply = proxy.client().stream(messages, &asked).await.unwrap();
    let mut turns = home.turns().await;
    assert_eq!(turns.len(), n_before + 1);
    turns.sort_by_key(|turn| turn.meta.started_ms);
    let turn = turns.pop().expect("a turn");
    let usage = turn.meta.usage.expect("the usage");
    let measured = Measured {
        prompt: usage.prompt_tokens,
        cached: usage.cached_tokens,
        first_token: reply.first_token,
    };
    (
        measured,
        json!({"role": "assistant", "content": reply.text}),
    )
}

/// Runs both turns with a training server that is started like this.
async fn two_turns(start: &Start, log: &Path) -> [Measured; 2] {
    let trainer = Trainer::start(start).await;
    let api = Api::of(&trainer);
    if start.flags.iter().any(|flag| flag.contains("vllm")) {
        ready(&trainer, || fs::read_to_string(log).unwrap_or_default()).await;
    }
    let home = home_without_wishes().with_env("METACLAW__RL__REMOTE_URL", &trainer.url);
    let proxy = home.start().await.unwrap();
    // The first request of all is not measured.
    api.chat("base", "Hello?", 2).await.unwrap();
    let (mut messages, tools) = request().await;
    lengthen(&api, &mut messages, &tools).await;
    let (cold, said) = turn(&proxy, &home, &messages, &tools).await;
    messages.push(said);
    messages.push(json!({"role": "user", "content": "And the one of the printer?"}));
    let (next, _) = turn(&proxy, &home, &messages, &tools).await;
    proxy.stop().await.unwrap();
    trainer.stop().await;
    [cold, next]
}

#[tokio::test]
#[ignore = "needs the binaries, the model, vLLM and OpenClaw, and METACLAW_TEST_LAYERS"]
async fn a_request_of_15000_tokens_and_its_next_turn_from_the_cache() {
    let (Some(python), Some(n_layers)) = (external::vllm(), external::layers()) else {
        println!("skipped: METACLAW_TEST_VLLM and METACLAW_TEST_LAYERS are not both set");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let (folder, model_folder) = (folder.path(), folder.path().join("model"));
    model(&python, &model_folder, n_layers);
    let builtin = Start {
        model: Some(model_folder),
        checkpoints: Some(folder.join("trainer")),
        flags: vec!["--dtype=bf16".to_owned()],
        ..Start::default()
    };
    let vllm = Start {
        flags: vec![
            "--dtype=bf16".to_owned(),
            "--inference-backend=vllm".to_owned(),
            format!("--inference-python={}", python.display()),
            "--inference-args=--max-model-len 20480 --enforce-eager".to_owned(),
        ],
        env: vllm::environment(folder),
        ..builtin.clone()
    };
    for (name, start) in [("our engine", builtin), ("vLLM", vllm)] {
        let [cold, next] = two_turns(&start, &folder.join("trainer/vllm.log")).await;
        eprintln!("{name}, {n_layers} layers: {cold:?}, then {next:?}");
        assert!(cold.prompt >= TOKENS && cold.cached == 0, "{cold:?}");
        assert!(next.cached + NOT_CACHED >= cold.prompt, "{next:?}");
        assert!(next.first_token * 4 < cold.first_token, "{cold:?} {next:?}");
    }
}
