//! How many turns of sampled conversations go on with exactly the ids of the turn before, calls of tools among them.
//!
//! A scripted sampler draws ids that no tokenizer would give for the same text, as a model does; a client sends back
//! what an agent keeps of a reply: text, and calls with their arguments as text. Runs when METACLAW_TEST_MODEL names the demo model,
//! whose tokenizer it is; the chat template is Qwen3's, shortened, because the demo model's own shows no tools.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests, which the exception in clippy.toml does not know"
)]

use std::{
    collections::VecDeque,
    path::PathBuf,
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    body::Body,
    http::{Request, header},
};
use futures_util::stream;
use http_body_util::BodyExt as _;
use metaclaw_engine::{rng::SplitMix64, weights::gguf};
use metaclaw_trainer_api::ApiKey;
use metaclaw_trainer_chat::{Front, Limits, Model, router};
use metaclaw_trainer_terms::{
    AdapterName, FinishReason, SampleEvent, SampledToken, Sampler, SamplerError, SamplerFuture,
    SamplerRequest, Sampling, SamplingEnd,
};
use metaclaw_trainer_text::tokenizer::ChatTokenizer;
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};
use tower::ServiceExt as _;

const TEMPLATE: &str = include_str!("../../text/src/tokenizer/testdata/qwen3.jinja");
const CONVERSATIONS: u64 = 20;
const TURNS: usize = 8;
/// Of 100 turns that follow another one.
const AT_LEAST: usize = 95;

/// A sampler that draws what it was told to.
#[derive(Debug, Default)]
struct Script {
    replies: Mutex<VecDeque<Vec<u32>>>,
    prompts: Mutex<Vec<Vec<u32>>>,
}

impl Sampler for Script {
    fn check(&self, request: &SamplerRequest) -> Result<(), SamplerError> {
        Ok(request.sampling.check()?)
    }

    fn adapters(&self) -> SamplerFuture<'_, Vec<AdapterName>> {
        Box::pin(async { Ok(vec![]) })
    }

    fn sample(&self, request: SamplerRequest) -> SamplerFuture<'_, Sampling> {
        self.prompts.lock().unwrap().push(request.prompt_ids);
        let ids = self.replies.lock().unwrap().pop_front().unwrap();
        let tokens = ids.into_iter().map(|id| SampledToken {
            id,
            text: None,
            logprob: -1.0,
            sampling_logprob: -1.0,
            top: vec![],
        });
        let tokens = tokens.map(|token| SampleEvent::Token { choice: 0, token });
        let (reason, n_cached) = (FinishReason::Stop, 0);
        let end = SamplingEnd { reason, n_cached };
        let each = tokens.chain([SampleEvent::End { choice: 0, end }]).map(Ok);
        let events: Vec<_> = each.collect();
        let (version, events) = (None, Box::pin(stream::iter(events)));
        Box::pin(async move { Ok(Sampling { version, events }) })
    }
}

struct Draw<'a> {
    tokenizer: &'a ChatTokenizer,
    rng: SplitMix64,
}

impl Draw<'_> {
    fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.rng.next_u64() % n as u64).unwrap()
    }

    fn one(&mut self, of: &[&'static str]) -> &'static str {
        of[self.below(of.len())]
    }

    /// What a model says: an answer, or up to two calls after a word.
    fn reply(&mut self) -> String {
        const SAID: [&str; 4] = [
            "I look.",
            "Un moment, je regarde…",
            "好的。",
            "Let me *check* `a.rs`:",
        ];
        const PATHS: [&str; 4] = [
            "src/main.rs",
            "naïve café.txt",
            "\"quoted\" \\ path",
            "文件/一",
        ];
        let mut text = self.one(&SAID).to_owned();
        for _ in 0..self.below(3) {
            let arguments = json!({"path": self.one(&PATHS), "lines": [self.below(90), 7], "deep": {"on": true}});
            // Models write JSON as they please.
            let arguments = match self.below(2) {
                0 => python(&arguments),
                _ => arguments.to_string(),
            };
            let call = format!("{{\"name\": \"look\", \"arguments\": {arguments}}}");
            text.extend(["\n<tool_call>\n", &call, "\n</tool_call>"]);
        }
        text
    }

    /// Ids of a text that is cut anywhere before it is tokenised.
    fn ids(&mut self, text: &str) -> Vec<u32> {
        let mut ids = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let n = 1 + self.below(12);
            let cut = rest.char_indices().nth(n).map_or(rest.len(), |(at, _)| at);
            let (piece, after) = rest.split_at(cut);
            ids.extend(self.tokenizer.encode_data(piece).unwrap());
            rest = after;
        }
        ids.extend(self.tokenizer.end_id());
        ids
    }
}

/// As the template's `tojson` writes it.
fn python(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let field = |(key, value)| format!("{}: {}", json!(key), python(value));
            let fields: Vec<String> = map.iter().map(field).collect();
            format!("{{{}}}", fields.join(", "))
        }
        Value::Array(list) => {
            let items: Vec<String> = list.iter().map(python).collect();
            format!("[{}]", items.join(", "))
        }
        other => other.to_string(),
    }
}

/// A call as a model writes it.
#[derive(Deserialize)]
struct Call {
    name: String,
    arguments: Box<RawValue>,
}

/// What an agent keeps of a reply, and what follows it: the results of its calls, or the user's next word.
fn goes_on(content: &str, turn: usize) -> Vec<Value> {
    let mut parts = content.split("\n<tool_call>\n");
    let said = parts.next().unwrap();
    let mut calls = Vec::new();
    for (at, part) in parts.enumerate() {
        let text = part.strip_suffix("\n</tool_call>").unwrap();
        let call: Call = serde_json::from_str(text).unwrap();
        let function = json!({"name": call.name, "arguments": call.arguments.get()});
        let id = format!("call_{turn}_{at}");
        calls.push(json!({"id": id, "type": "function", "function": function}));
    }
    let mut messages = vec![json!({"role": "assistant", "content": said})];
    if calls.is_empty() {
        messages.push(json!({"role": "user", "content": format!("And then, {turn}?")}));
        return messages;
    }
    let result =
        |id: &Value| json!({"role": "tool", "tool_call_id": id, "content": "1: fn main() {}"});
    messages.extend(calls.iter().map(|call| result(&call["id"])));
    messages[0]["tool_calls"] = Value::Array(calls);
    messages
}

async fn ask(router: &Router, messages: &[Value]) -> String {
    let tools = json!([{"type": "function", "function": {"name": "look", "description": "Reads a file",
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}}}}}]);
    let body = json!({"messages": messages, "tools": tools, "max_tokens": 500});
    let request = Request::post("/v1/chat/completions")
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::AUTHORIZATION, "Bearer key")
        .body(Body::from(body.to_string()))
        .unwrap();
    let response = router.clone().oneshot(request).await.unwrap();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let reply: Value = serde_json::from_slice(&bytes).unwrap();
    let content = reply["choices"][0]["message"]["content"].as_str();
    content.unwrap_or_else(|| panic!("{reply}")).to_owned()
}

#[expect(clippy::print_stdout, reason = "a test that did not run says so")]
fn tokenizer() -> Option<ChatTokenizer> {
    let Some(model) = std::env::var_os("METACLAW_TEST_MODEL").map(PathBuf::from) else {
        println!("skipped: METACLAW_TEST_MODEL is not set");
        return None;
    };
    let cache = tempfile::tempdir().unwrap();
    let folder = gguf::directory(&model, cache.path()).unwrap();
    // As Qwen3's own does, which this one left out.
    let template = TEMPLATE.replace(
        "(call.function.arguments | tojson)",
        "(call.function.arguments if call.function.arguments is string else call.function.arguments | tojson)",
    );
    assert_ne!(template, TEMPLATE);
    std::fs::write(folder.join("chat_template.jinja"), template).unwrap();
    Some(ChatTokenizer::load(&folder).unwrap())
}

#[tokio::test]
async fn turns_with_calls_go_on_with_the_ids_of_the_turn_before() {
    let Some(tokenizer) = tokenizer() else { return };
    let tokenizer = Arc::new(tokenizer);
    let script = Arc::new(Script::default());
    let model = Model::new("demo", 8192, Arc::clone(&tokenizer)).with_end_ids(tokenizer.end_ids());
    let front = Front::new(model, Arc::clone(&script) as _, Limits::default());
    let router = router(&front, &ApiKey::new("key"));
    let (mut n_turns, mut n_extended, mut n_calls, mut n_otherwise) = (0, 0, 0, 0);
    for conversation in 0..CONVERSATIONS {
        let mut draw = Draw {
            tokenizer: &tokenizer,
            rng: SplitMix64::stream(30, conversation),
        };
        let question = format!("What is in the files of {conversation}?");
        let mut messages = vec![json!({"role": "user", "content": question})];
        let mut before: Option<Vec<u32>> = None;
        for turn in 0..TURNS {
            let text = draw.reply();
            let ids = draw.ids(&text);
            script.replies.lock().unwrap().push_back(ids.clone());
            let content = ask(&router, &messages).await;
            assert_eq!(content, text);
            let prompt = script.prompts.lock().unwrap().pop().unwrap();
            if let Some(before) = &before {
                n_turns += 1;
                n_extended += usize::from(prompt.starts_with(before));
            }
            n_calls += content.matches("<tool_call>").count();
            let usual = [tokenizer.encode_data(&text).unwrap(), tokenizer.end_ids()].concat();
            n_otherwise += usize::from(ids != usual);
            before = Some([prompt, ids].concat());
            messages.extend(goes_on(&content, turn));
        }
    }
    println!(
        "{n_extended} of {n_turns} turns extend the one before exactly; {n_calls} calls, {n_otherwise} replies of ids that their text does not give"
    );
    assert!(n_calls > 50 && n_otherwise > 100);
    let share = n_extended * 100 / n_turns;
    assert!(share >= AT_LEAST, "{n_extended} of {n_turns}");
}
