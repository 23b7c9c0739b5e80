//! Tests of the routes with a scripted sampler and the tiny tokenizer: each byte is one id.

mod replies;
mod waiting;

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    http::{Request, Response, StatusCode, header, request::Builder},
};
use futures_util::stream;
use http_body_util::BodyExt as _;
use metaclaw_trainer_api::ApiKey;
use metaclaw_trainer_terms::{
    AdapterName, FinishReason, SampleEvent, SampledToken, Sampler, SamplerError, SamplerFuture,
    SamplerRequest, Sampling, SamplingEnd,
};
use metaclaw_trainer_text::{testing::write_tiny_text, tokenizer::ChatTokenizer};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::{Front, Limits, Model, router};

const KEY: &str = "secret";
/// `<|im_end|>` of the tiny tokenizer.
const END: u32 = 258;
const CONTEXT: usize = 400;

type Step = (Duration, Result<SampleEvent, SamplerError>);

/// A sampler's behaviour for one request.
#[derive(Default)]
struct Answer {
    accepts_after: Duration,
    refusal: Option<SamplerError>,
    steps: Vec<Step>,
}

/// A sampler that follows a script.
struct Script {
    answer: Box<dyn Fn(&SamplerRequest) -> Answer + Send + Sync>,
    asked: Mutex<Vec<SamplerRequest>>,
    was_dropped: Arc<AtomicBool>,
}

impl std::fmt::Debug for Script {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Script")
    }
}

/// Reports that a stream was dropped.
struct Guard(Arc<AtomicBool>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl Sampler for Script {
    fn check(&self, request: &SamplerRequest) -> Result<(), SamplerError> {
        request.sampling.check()?;
        Ok(request.sampling.check_common()?)
    }

    fn adapters(&self) -> SamplerFuture<'_, Vec<AdapterName>> {
        Box::pin(async { Ok(vec!["main@3".parse().unwrap()]) })
    }

    fn sample(&self, request: SamplerRequest) -> SamplerFuture<'_, Sampling> {
        let answer = (self.answer)(&request);
        self.asked.lock().unwrap().push(request);
        let guard = Guard(Arc::clone(&self.was_dropped));
        Box::pin(async move {
            tokio::time::sleep(answer.accepts_after).await;
            if let Some(refusal) = answer.refusal {
                return Err(refusal);
            }
            let steps = (answer.steps.into_iter(), guard);
            let events = stream::unfold(steps, |(mut steps, guard)| async move {
                let (after, event) = steps.next()?;
                tokio::time::sleep(after).await;
                Some((event, (steps, guard)))
            });
            let (version, events) = (Some(3), Box::pin(events));
            Ok(Sampling { version, events })
        })
    }
}

/// A front with a scripted sampler.
struct Rig {
    router: Router,
    script: Arc<Script>,
}

/// Returns a tokenizer with a template of the test's, or the tiny one's own.
fn tokenizer(template: Option<&str>) -> ChatTokenizer {
    let dir = tempfile::tempdir().unwrap();
    write_tiny_text(dir.path()).unwrap();
    if let Some(template) = template {
        std::fs::write(dir.path().join("chat_template.jinja"), template).unwrap();
    }
    ChatTokenizer::load(dir.path()).unwrap()
}

/// Returns a tokenizer and a template like Gemma 4's.
fn gemma() -> ChatTokenizer {
    const MARKS: [&str; 9] = [
        "<|turn>",
        "<turn|>",
        "<|channel>",
        "<channel|>",
        "<|tool_call>",
        "<tool_call|>",
        "<|tool_response>",
        "<tool_response|>",
        "<|\"|>",
    ];
    let dir = tempfile::tempdir().unwrap();
    write_tiny_text(dir.path()).unwrap();
    let file = dir.path().join("tokenizer.json");
    let mut json: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let tokens = json["added_tokens"].as_array_mut().unwrap();
    for mark in MARKS {
        let mut token = tokens.last().unwrap().clone();
        token["content"] = json!(mark);
        token["id"] = json!(token["id"].as_u64().unwrap() + 1);
        tokens.push(token);
    }
    std::fs::write(&file, json.to_string()).unwrap();
    let template = include_str!("../../text/src/tokenizer/testdata/gemma4.jinja");
    std::fs::write(dir.path().join("chat_template.jinja"), template).unwrap();
    ChatTokenizer::load(dir.path()).unwrap()
}

fn rig_with(
    template: Option<&str>,
    answer: impl Fn(&SamplerRequest) -> Answer + Send + Sync + 'static,
) -> Rig {
    rig_of(tokenizer(template), answer)
}

fn rig_of(
    tokenizer: ChatTokenizer,
    answer: impl Fn(&SamplerRequest) -> Answer + Send + Sync + 'static,
) -> Rig {
    let script = Arc::new(Script {
        answer: Box::new(answer),
        asked: Mutex::default(),
        was_dropped: Arc::default(),
    });
    let model = Model::new("tiny", CONTEXT, Arc::new(tokenizer)).with_end_ids(vec![END]);
    let front = Front::new(model, Arc::clone(&script) as _, Limits::default());
    let router = router(&front, &ApiKey::new(KEY));
    Rig { router, script }
}

fn rig(answer: impl Fn(&SamplerRequest) -> Answer + Send + Sync + 'static) -> Rig {
    rig_with(None, answer)
}

impl Rig {
    async fn post(&self, path: &str, body: &Value) -> Response<Body> {
        self.post_text(path, body.to_string()).await
    }

    async fn post_text(&self, path: &str, body: String) -> Response<Body> {
        let request = Request::post(path).header(header::CONTENT_TYPE, "application/json");
        self.send(request, Body::from(body)).await
    }

    async fn send(&self, request: Builder, body: Body) -> Response<Body> {
        let key = format!("Bearer {KEY}");
        let request = request.header(header::AUTHORIZATION, key).body(body);
        self.router.clone().oneshot(request.unwrap()).await.unwrap()
    }

    /// Sends a conversation of one message with these fields.
    async fn chat(&self, more: &Value) -> (StatusCode, Value) {
        read(self.begin(more).await).await
    }

    async fn begin(&self, more: &Value) -> Response<Body> {
        self.post("/v1/chat/completions", &hi(more)).await
    }

    async fn stream(&self) -> Response<Body> {
        self.begin(&json!({"stream": true})).await
    }

    async fn tokenize(&self, body: &Value) -> (StatusCode, Value) {
        read(self.post("/tokenize", body).await).await
    }

    async fn get(&self, path: &str) -> (StatusCode, Value) {
        read(self.send(Request::get(path), Body::empty()).await).await
    }

    /// Returns the requests that the sampler got, in order.
    fn asked(&self) -> Vec<SamplerRequest> {
        self.script.asked.lock().unwrap().clone()
    }

    fn was_dropped(&self) -> bool {
        self.script.was_dropped.load(Ordering::SeqCst)
    }
}

async fn read(response: Response<Body>) -> (StatusCode, Value) {
    let status = response.status();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
    (status, body)
}

/// Makes a conversation of one message, with additional fields.
fn hi(more: &Value) -> Value {
    let mut body = json!({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 100});
    let fields = body.as_object_mut().unwrap();
    fields.extend(more.as_object().unwrap().clone());
    body
}

fn token(choice: u32, id: u32) -> SampleEvent {
    let token = SampledToken {
        id,
        text: None,
        logprob: -0.5,
        sampling_logprob: -0.25,
        top: Vec::new(),
    };
    SampleEvent::Token { choice, token }
}

fn end(choice: u32, reason: FinishReason) -> SampleEvent {
    let end = SamplingEnd {
        reason,
        n_cached: 0,
    };
    SampleEvent::End { choice, end }
}

fn at_once(event: SampleEvent) -> Step {
    (Duration::ZERO, Ok(event))
}

/// Makes a complete reply of the bytes of a text, all at once.
fn says(choice: u32, text: &str) -> Vec<Step> {
    let ids = text.bytes().map(u32::from).chain([END]);
    let tokens = ids.map(|id| token(choice, id));
    let events = tokens.chain([end(choice, FinishReason::Stop)]);
    events.map(at_once).collect()
}

/// Makes an answer of these steps.
fn answer(steps: Vec<Step>) -> Answer {
    Answer {
        steps,
        ..Answer::default()
    }
}

fn letters(text: &str) -> Vec<u32> {
    text.bytes().map(u32::from).collect()
}

/// Returns the ids of a complete reply.
fn whole(text: &str) -> Vec<u32> {
    [letters(text), vec![END]].concat()
}
