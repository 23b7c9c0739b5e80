use std::time::Duration;

use tch::Kind;
use tempfile::TempDir;
use tokio::sync::oneshot;

use super::core::{Command, Core};
use super::*;

use crate::adapter;
use crate::generate::{FinishReason, FinishedReply, GenerateEvent, Token};
use crate::lora::Lora;
use crate::matrix::Quantization;
use crate::model::Model;
use crate::sampler::SamplingParams;
use crate::testing::write_tiny_model;
use crate::tests::{
    all_targets, forward, fresh_lora, load_model, lora_spec, parsed, parsed as name, with_noise,
    zeros,
};

type Answer = oneshot::Receiver<Result<GenerationStream, GenerateError>>;

/// A tiny model on disk, and its settings.
struct Place {
    dir: TempDir,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let model = dir.path().join("tiny");
        std::fs::create_dir(&model).unwrap();
        write_tiny_model(&model, 5).unwrap();
        Self { dir }
    }

    fn config(&self) -> EngineConfig {
        let path = |name: &str| self.dir.path().join(name);
        let mut config = EngineConfig::new(path("tiny"), path("cache"), path("ckpt"));
        config.dtype = Some(Dtype::F32);
        // Tests run in parallel, so more threads for each would only wait for one another.
        config.threads = 1;
        config
    }

    fn model(&self) -> Model {
        load_model(&self.config().model)
    }

    fn with_kv_budget(&self, bytes: usize) -> EngineConfig {
        EngineConfig {
            kv_budget: Some(bytes),
            ..self.config()
        }
    }

    fn engine(&self) -> Engine {
        Engine::start(self.config()).unwrap()
    }

    /// Makes an adapter with an effect: B is not zero.
    fn adapter(&self, name: &str, seed: u64) -> Lora {
        let spec = lora_spec(4, 32, all_targets());
        let lora = with_noise(&fresh_lora(&self.model(), spec, seed), seed);
        let (dir, base) = (
            self.config().checkpoint_dir,
            self.engine().base().id.clone(),
        );
        adapter::save(&dir, &self::name(name), &lora, &base, 1).unwrap();
        lora
    }
}

fn request(prompt_ids: &[u32], max_tokens: usize) -> GenerateRequest {
    GenerateRequest {
        prompt_ids: prompt_ids.to_vec(),
        max_tokens,
        sampling: SamplingParams::greedy(),
        ignore_eos: true,
        ..GenerateRequest::default()
    }
}

fn under(adapter: &str, request: GenerateRequest) -> GenerateRequest {
    let adapter = Some(name(adapter));
    GenerateRequest { adapter, ..request }
}

fn sampled(temperature: f64, seed: Option<u64>, request: GenerateRequest) -> GenerateRequest {
    let sampling = SamplingParams {
        temperature,
        ..SamplingParams::default()
    };
    GenerateRequest {
        sampling,
        seed,
        ..request
    }
}

fn ending_with(id: u32, request: GenerateRequest) -> GenerateRequest {
    GenerateRequest {
        stop_token_ids: vec![id],
        ..request
    }
}

fn prompt(n: u32) -> Vec<u32> {
    (0..n).map(|i| (i * 37 + 11) % 250).collect()
}

type Reply = (Vec<Token>, FinishedReply);

async fn collect(stream: &mut GenerationStream) -> Result<Reply, GenerateError> {
    let mut tokens = Vec::new();
    while let Some(event) = stream.recv().await {
        match event? {
            GenerateEvent::Token(token) => tokens.push(token),
            GenerateEvent::Finished(finished) => return Ok((tokens, finished)),
        }
    }
    panic!("the stream ended without an end");
}

async fn run(engine: &Engine, request: GenerateRequest) -> Result<Reply, GenerateError> {
    collect(&mut engine.generate(request).await?).await
}

async fn refusal(engine: &Engine, request: GenerateRequest) -> String {
    run(engine, request).await.unwrap_err().to_string()
}

fn ids(tokens: &[Token]) -> Vec<u32> {
    tokens.iter().map(|token| token.id).collect()
}

fn text(tokens: &[Token]) -> String {
    tokens.iter().map(|token| token.text.as_str()).collect()
}

/// Decodes greedily without a cache, and returns the log-probability of each choice.
fn reference(model: &Model, lora: Option<&Lora>, prompt: &[u32], n: usize) -> (Vec<u32>, Vec<f64>) {
    let (mut ids, mut logprobs) = (prompt.to_vec(), Vec::new());
    for _ in 0..n {
        let logits = forward(model, &ids, lora).get(-1);
        let id = logits.argmax(-1, false).int64_value(&[]);
        logprobs.push(logits.log_softmax(-1, Kind::Float).double_value(&[id]));
        ids.push(u32::try_from(id).unwrap());
    }
    (ids.split_off(prompt.len()), logprobs)
}

#[test]
fn eight_bits_are_refused_for_replies_on_a_gpu() {
    let mut config = Place::new().config();
    config.quantization = Some(Quantization::Int8);
    config.inference = parsed("0");
    let error = Engine::start(config).unwrap_err().to_string();
    let starts = "quantization is int8 with replies on cuda:0, allowed: none, because a GPU";
    assert!(error.starts_with(starts), "{error}");
}

#[tokio::test]
async fn a_reply_is_that_of_the_plain_forward_pass() {
    let place = Place::new();
    let engine = place.engine();
    // It is longer than one portion of a prompt.
    let prompt = prompt(300);
    let (tokens, finished) = run(&engine, request(&prompt, 12)).await.unwrap();
    let (want, logprobs) = reference(&place.model(), None, &prompt, 12);
    assert_eq!(ids(&tokens), want);
    for (token, logprob) in tokens.iter().zip(logprobs) {
        assert!((f64::from(token.logprob) - logprob).abs() < 1e-3);
    }
    let wanted = FinishedReply {
        reason: FinishReason::Length,
        n_prompt: 300,
        n_generated: 12,
        cached: 0,
    };
    assert_eq!(finished, wanted);
}

#[tokio::test]
async fn the_next_turn_reuses_its_prefix_and_says_the_same() {
    let place = Place::new();
    let engine = place.engine();
    let (first, _) = run(&engine, request(&prompt(60), 20)).await.unwrap();
    let mut next = prompt(60);
    next.extend(ids(&first));
    next.extend([1, 2, 3]);
    let (warm, finished) = run(&engine, request(&next, 20)).await.unwrap();
    // Four full pages of 79: the last token was never run.
    assert_eq!(finished.cached, 64);
    let (cold, fresh) = run(&place.engine(), request(&next, 20)).await.unwrap();
    assert_eq!(fresh.cached, 0);
    assert_eq!(ids(&warm), ids(&cold));
    for (a, b) in warm.iter().zip(&cold) {
        assert!((a.logprob - b.logprob).abs() < 1e-4);
    }
}

#[tokio::test]
async fn seeds_repeat_and_no_seed_does_not() {
    let place = Place::new();
    let engine = place.engine();
    let draw = async |seed| {
        let request = sampled(1.0, seed, request(&prompt(9), 30));
        ids(&run(&engine, request).await.unwrap().0)
    };
    assert_eq!(draw(Some(3)).await, draw(Some(3)).await);
    assert_ne!(draw(Some(3)).await, draw(Some(4)).await);
    assert_ne!(draw(None).await, draw(None).await);
}

#[tokio::test]
async fn stop_texts_and_ids_end_a_reply() {
    let place = Place::new();
    let engine = place.engine();
    let plain = request(&prompt(40), 24);
    let (tokens, _) = run(&engine, plain.clone()).await.unwrap();
    let whole = text(&tokens);
    let stop: String = whole.chars().skip(5).take(3).collect();
    let before = whole[..whole.find(&stop).unwrap()].to_owned();
    let stopped = GenerateRequest {
        stop: vec![stop],
        ..plain.clone()
    };
    let (tokens, finished) = run(&engine, stopped).await.unwrap();
    assert_eq!(text(&tokens), before);
    assert_eq!(finished.reason, FinishReason::Stop);

    let third = tokens[2].id;
    let (tokens, finished) = run(&engine, ending_with(third, plain)).await.unwrap();
    let before = &ids(&tokens)[..tokens.len() - 1];
    assert_eq!(text(&tokens), engine.tokenizer().decode(before));
    // The ending id is returned without a text, because it is trained on too.
    assert_eq!(tokens.last().unwrap().id, third);
    assert_eq!(finished.n_generated, tokens.len());
    assert_eq!(finished.reason, FinishReason::Stop);
}

#[tokio::test]
async fn what_cannot_be_served_is_said_with_its_numbers() {
    let place = Place::new();
    let engine = place.engine();
    let hot = sampled(-2.0, None, request(&[1], 1));
    for (request, wanted) in [
        (
            request(&prompt(512), 1),
            "the prompt has 512 tokens, this model's context is 512: shorten the conversation",
        ),
        (
            request(&[], 1),
            "the prompt is empty: at least one token is needed",
        ),
        (
            request(&[1, 259], 1),
            "prompt id 259 at position 1 is not below the vocabulary of 259",
        ),
        (request(&[1], 0), "max_tokens is 0, allowed: 1 or more"),
        (hot, "temperature is -2, allowed: 0, or 0.001 to 100"),
    ] {
        assert_eq!(refusal(&engine, request).await, wanted);
    }
    let error = run(&engine, under("nobody", request(&[1], 1)))
        .await
        .unwrap_err();
    let is_missing = matches!(error, GenerateError::Adapter { missing: true, .. });
    assert!(is_missing, "{error}");
}

#[tokio::test]
async fn a_reply_ends_on_the_adapter_that_it_began_with() {
    let place = Place::new();
    let (one, prompt) = (place.adapter("a", 1), prompt(50));
    let engine = place.engine();
    let with = under("a", request(&prompt, 40));
    let model = place.model();
    let want = |lora| reference(&model, lora, &prompt, 40).0;
    let (of_one, of_base) = (want(Some(&one)), want(None));
    assert_ne!(of_one, of_base);
    let mut running = engine.generate(with.clone()).await.unwrap();
    let two = place.adapter("a", 2);
    let (later, _) = run(&engine, with).await.unwrap();
    // It was replaced on disk, so it is read again, and no prefix of the old one is used.
    assert_eq!(ids(&later), want(Some(&two)));
    assert_eq!(ids(&collect(&mut running).await.unwrap().0), of_one);
    let (plain, _) = run(&engine, request(&prompt, 40)).await.unwrap();
    assert_eq!(ids(&plain), of_base);
    assert!(engine.adapters().unload(&name("a")));
    assert!(!engine.adapters().unload(&name("a")));
}

/// A job that counts its slices and panics at the third.
struct Clumsy(
    u32,
    #[expect(dead_code, reason = "it is dropped with the job")] oneshot::Sender<()>,
);

impl SlicedJob for Clumsy {
    fn advance(&mut self, _: &mut EngineState, _: Duration) -> JobProgress {
        self.0 += 1;
        assert!(self.0 < 3, "clumsy");
        JobProgress::More
    }
}

#[tokio::test]
async fn a_panic_ends_a_job_and_not_the_engine() {
    let place = Place::new();
    let engine = place.engine();
    let (reply, answer) = oneshot::channel();
    engine.submit(Box::new(Clumsy(0, reply))).unwrap();
    assert!(answer.await.is_err());
    let panicked = engine.call(|_| panic!("at the disco")).await;
    assert_eq!(panicked, Err::<(), _>(EngineError::Failed));
    let grads = engine.call(|_| zeros([1]).set_requires_grad(true).requires_grad());
    assert_eq!(grads.await, Ok(true));
    assert_eq!(run(&engine, request(&[1, 2], 3)).await.unwrap().0.len(), 3);
}

#[tokio::test]
async fn a_stream_outlives_no_engine() {
    let place = Place::new();
    let engine = place.engine();
    let mut stream = engine.generate(request(&prompt(100), 400)).await.unwrap();
    drop(engine);
    let mut last = None;
    while let Some(event) = stream.recv().await {
        last = Some(event);
    }
    let last = last.unwrap();
    assert!(matches!(
        last,
        Err(GenerateError::Stopped) | Ok(GenerateEvent::Finished(_))
    ));
}

#[test]
fn a_missing_or_damaged_model_is_named() {
    let place = Place::new();
    let message = |name: &str| {
        let started = Engine::start(EngineConfig {
            model: place.dir.path().join(name),
            ..place.config()
        });
        let message = started.unwrap_err().to_string();
        message.replace(&place.dir.path().display().to_string(), "DIR")
    };
    let none = "DIR/none.gguf is no model: expected a .gguf file";
    assert!(message("none.gguf").starts_with(none));
    std::fs::write(place.dir.path().join("bad.gguf"), "GGUF").unwrap();
    assert!(message("bad.gguf").starts_with("DIR/bad.gguf is damaged or no model file"));
    let threads = 5000;
    let started = Engine::start(EngineConfig {
        threads,
        ..place.config()
    });
    let wanted = "threads is 5000, allowed: 0 (one a core) to 1024";
    assert_eq!(started.unwrap_err().to_string(), wanted);
}

// Runs the loop itself, round by round, without its thread.

fn begin(core: &mut Core, request: GenerateRequest) -> Answer {
    if let Some(name) = &request.adapter {
        core.state().adapters.load(name).unwrap();
    }
    let (reply, answer) = oneshot::channel();
    core.handle(Command::Generate(Waiting { request, reply }));
    answer
}

fn stream(answer: &mut Answer) -> GenerationStream {
    answer.try_recv().unwrap().unwrap()
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.unwrap().block_on(future)
}

struct Slices(u32);

impl SlicedJob for Slices {
    fn advance(&mut self, _: &mut EngineState, slice: Duration) -> JobProgress {
        let end = std::time::Instant::now() + slice / 10;
        while std::time::Instant::now() < end {}
        self.0 -= 1;
        if self.0 == 0 {
            JobProgress::Done
        } else {
            JobProgress::More
        }
    }
}

#[test]
fn a_job_and_a_reply_share_the_thread() {
    let (mut core, _) = Core::load(&Place::new().config()).unwrap();
    let mut answer = begin(&mut core, request(&prompt(10), 500));
    core.handle(Command::Job(Box::new(Slices(5))));
    let mut rounds = 0;
    while core.n_jobs() > 0 {
        core.round();
        rounds += 1;
        assert!(rounds < 490, "the job starves");
    }
    let ready = stream(&mut answer).n_ready();
    assert_eq!(ready, rounds, "a token a round, whatever the job does");
}

mod nets;
mod prompt;
mod serving;
