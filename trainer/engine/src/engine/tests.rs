use std::path::Path;
use std::time::Duration;

use tch::{Kind, Tensor};
use tempfile::TempDir;
use tokio::sync::oneshot;

use super::core::{Command, Core};
use super::*;

use crate::adapter::{self, BaseId};
use crate::device::Devices;
use crate::generate::{FinishReason, FinishedReply, GenerateEvent, Token};
use crate::lora::{BaseDims, Lora, LoraSpec, LoraTargets};
use crate::model::Model;
use crate::sampler::SamplingParams;
use crate::testing::write_tiny_model;

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
        Model::load(&self.config().model, Kind::Float, &Devices::cpu()).unwrap()
    }

    fn engine(&self) -> Engine {
        Engine::start(self.config()).unwrap()
    }

    /// Makes an adapter with an effect: B is not zero.
    fn adapter(&self, name: &str, seed: u64) -> Lora {
        let (model, info) = (self.model(), self.engine().info().clone());
        let dims = BaseDims::of(&model.config);
        let spec = LoraSpec {
            rank: 4,
            targets: LoraTargets::groups(true, true, true),
            ..LoraSpec::default()
        };
        let lora = Lora::init(spec, dims, model.config.n_layers, seed).unwrap();
        tch::manual_seed(i64::try_from(seed).unwrap());
        let lora = lora
            .try_map(|t| (t.f_randn_like()? * 0.3).f_add(t))
            .unwrap();
        let base = BaseId {
            name: info.name,
            fingerprint: info.sha,
        };
        adapter::save(
            &self.config().checkpoint_dir,
            &self::name(name),
            &lora,
            &base,
            1,
        )
        .unwrap();
        lora
    }
}

fn name(text: &str) -> AdapterName {
    text.parse().unwrap()
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

fn at_temperature(temperature: f64) -> SamplingParams {
    SamplingParams {
        temperature,
        ..SamplingParams::default()
    }
}

fn prompt(n: u32) -> Vec<u32> {
    (0..n).map(|i| (i * 37 + 11) % 250).collect()
}

async fn collect(
    stream: &mut GenerationStream,
) -> Result<(Vec<Token>, FinishedReply), GenerateError> {
    let mut tokens = Vec::new();
    while let Some(event) = stream.recv().await {
        match event? {
            GenerateEvent::Token(token) => tokens.push(token),
            GenerateEvent::Finished(finished) => return Ok((tokens, finished)),
        }
    }
    panic!("the stream ended without an end");
}

async fn run(
    engine: &Engine,
    request: GenerateRequest,
) -> Result<(Vec<Token>, FinishedReply), GenerateError> {
    collect(&mut engine.generate(request).await?).await
}

fn ids(tokens: &[Token]) -> Vec<u32> {
    tokens.iter().map(|token| token.id).collect()
}

/// Decodes greedily without a cache, and returns the log-probability of each choice.
fn reference(model: &Model, lora: Option<&Lora>, prompt: &[u32], n: usize) -> Vec<(u32, f64)> {
    let mut ids: Vec<i64> = prompt.iter().copied().map(i64::from).collect();
    let mut chosen = Vec::new();
    for _ in 0..n {
        let hidden = model
            .forward(&Tensor::from_slice(&ids).unsqueeze(0), lora)
            .unwrap();
        let logits = model
            .logits(&hidden.select(1, -1), lora)
            .unwrap()
            .squeeze_dim(0);
        let id = logits.argmax(-1, false).int64_value(&[]);
        let logprob = logits.log_softmax(-1, Kind::Float).double_value(&[id]);
        chosen.push((u32::try_from(id).unwrap(), logprob));
        ids.push(id);
    }
    chosen
}

#[tokio::test]
async fn a_reply_is_that_of_the_plain_forward_pass() {
    let place = Place::new();
    let engine = place.engine();
    // It is longer than one portion of a prompt.
    let prompt = prompt(300);
    let (tokens, finished) = run(&engine, request(&prompt, 12)).await.unwrap();
    let want = reference(&place.model(), None, &prompt, 12);
    assert_eq!(
        ids(&tokens),
        want.iter().map(|(id, _)| *id).collect::<Vec<_>>()
    );
    for (token, (_, logprob)) in tokens.iter().zip(want) {
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
    assert_eq!(
        finished.cached, 64,
        "four full pages of 79: the last token was never run"
    );
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
        let request = GenerateRequest {
            seed,
            sampling: at_temperature(1.0),
            ..request(&prompt(9), 30)
        };
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
    let (tokens, _) = run(&engine, request(&prompt(40), 24)).await.unwrap();
    let whole: String = tokens.iter().map(|t| t.text.as_str()).collect();
    let chars: Vec<char> = whole.chars().collect();
    let stop: String = chars[5..8].iter().collect();
    let stopped = GenerateRequest {
        stop: vec![stop.clone()],
        ..request(&prompt(40), 24)
    };
    let (tokens, finished) = run(&engine, stopped).await.unwrap();
    let text: String = tokens.iter().map(|t| t.text.as_str()).collect();
    assert_eq!(text, whole[..whole.find(&stop).unwrap()]);
    assert_eq!(finished.reason, FinishReason::Stop);

    let third = tokens[2].id;
    let stopped = GenerateRequest {
        stop_token_ids: vec![third],
        ..request(&prompt(40), 24)
    };
    let (tokens, finished) = run(&engine, stopped).await.unwrap();
    let text: String = tokens.iter().map(|t| t.text.as_str()).collect();
    let before = &ids(&tokens)[..tokens.len() - 1];
    assert_eq!(text, engine.tokenizer().decode(before), "it has no text");
    assert_eq!(
        tokens.last().unwrap().id,
        third,
        "the ending id is given, it is trained on too"
    );
    assert_eq!(
        (finished.reason, finished.n_generated),
        (FinishReason::Stop, tokens.len())
    );
}

#[tokio::test]
async fn what_cannot_be_served_is_said_with_its_numbers() {
    let place = Place::new();
    let engine = place.engine();
    let message = async |request| run(&engine, request).await.unwrap_err().to_string();
    assert_eq!(
        message(request(&prompt(512), 1)).await,
        "the prompt has 512 tokens, this model's context is 512: shorten the conversation"
    );
    assert_eq!(
        message(request(&[], 1)).await,
        "the prompt is empty: at least one token is needed"
    );
    assert_eq!(
        message(request(&[1, 259], 1)).await,
        "prompt id 259 at position 1 is not below the vocabulary of 259"
    );
    assert_eq!(
        message(request(&[1], 0)).await,
        "max_tokens is 0, allowed: 1 or more"
    );
    let hot = GenerateRequest {
        sampling: at_temperature(-2.0),
        ..request(&[1], 1)
    };
    assert_eq!(
        message(hot).await,
        "temperature is -2, allowed: 0, or 0.001 to 100"
    );
    let unknown = GenerateRequest {
        adapter: Some(name("nobody")),
        ..request(&[1], 1)
    };
    let error = run(&engine, unknown).await.unwrap_err();
    assert!(
        matches!(error, GenerateError::Adapter { missing: true, .. }),
        "{error}"
    );
}

#[tokio::test]
async fn a_reply_ends_on_the_adapter_that_it_began_with() {
    let place = Place::new();
    let (one, prompt) = (place.adapter("a", 1), prompt(50));
    let engine = place.engine();
    let with = GenerateRequest {
        adapter: Some(name("a")),
        ..request(&prompt, 40)
    };
    let model = place.model();
    let want = |lora| {
        reference(&model, lora, &prompt, 40)
            .iter()
            .map(|(id, _)| *id)
            .collect()
    };
    let (of_one, of_base): (Vec<u32>, Vec<u32>) = (want(Some(&one)), want(None));
    assert_ne!(of_one, of_base);
    let mut running = engine.generate(with.clone()).await.unwrap();
    let two = place.adapter("a", 2);
    let (later, _) = run(&engine, with).await.unwrap();
    assert_eq!(
        ids(&later),
        want(Some(&two)),
        "replaced on disk: read again, no prefix of the old one used"
    );
    assert_eq!(ids(&collect(&mut running).await.unwrap().0), of_one);
    assert_eq!(
        ids(&run(&engine, request(&prompt, 40)).await.unwrap().0),
        of_base
    );
    assert!(engine.adapters().unload(&name("a")));
    assert!(!engine.adapters().unload(&name("a")));
}

/// A job that counts its slices and panics at the third.
struct Clumsy {
    slices: u32,
    _reply: oneshot::Sender<()>,
}

impl SlicedJob for Clumsy {
    fn advance(&mut self, _: &mut EngineState, _: Duration) -> JobProgress {
        self.slices += 1;
        assert!(self.slices < 3, "clumsy");
        JobProgress::More
    }
}

#[tokio::test]
async fn a_panic_ends_a_job_and_not_the_engine() {
    let place = Place::new();
    let engine = place.engine();
    let (reply, answer) = oneshot::channel();
    engine
        .submit(Box::new(Clumsy {
            slices: 0,
            _reply: reply,
        }))
        .unwrap();
    assert!(answer.await.is_err());
    assert_eq!(
        engine.call(|_| panic!("at the disco")).await,
        Err::<(), _>(EngineError::Failed)
    );
    let grads = engine.call(|_| {
        Tensor::zeros([1], (Kind::Float, tch::Device::Cpu))
            .set_requires_grad(true)
            .requires_grad()
    });
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
    assert!(matches!(
        last,
        Some(Err(GenerateError::Stopped) | Ok(GenerateEvent::Finished(_)))
    ));
}

#[test]
fn a_missing_or_damaged_model_is_named() {
    let place = Place::new();
    let message = |model: &Path| {
        let config = EngineConfig {
            model: model.to_owned(),
            ..place.config()
        };
        let message = Engine::start(config).unwrap_err().to_string();
        message.replace(&place.dir.path().display().to_string(), "DIR")
    };
    assert!(
        message(&place.dir.path().join("none.gguf"))
            .starts_with("DIR/none.gguf is no model: expected a .gguf file")
    );
    let file = place.dir.path().join("bad.gguf");
    std::fs::write(&file, "GGUF").unwrap();
    assert!(message(&file).starts_with("DIR/bad.gguf is damaged or no model file"));
    let config = EngineConfig {
        threads: 5000,
        ..place.config()
    };
    assert_eq!(
        Engine::start(config).unwrap_err().to_string(),
        "threads is 5000, allowed: 0 (one a core) to 1024"
    );
}

// Runs the loop itself, round by round, without its thread.

fn begin(
    core: &mut Core,
    request: GenerateRequest,
) -> oneshot::Receiver<Result<GenerationStream, GenerateError>> {
    if let Some(name) = &request.adapter {
        core.state().adapters.load(name).unwrap();
    }
    let (reply, answer) = oneshot::channel();
    core.handle(Command::Generate(Waiting { request, reply }));
    answer
}

fn stream(
    answer: &mut oneshot::Receiver<Result<GenerationStream, GenerateError>>,
) -> GenerationStream {
    answer.try_recv().unwrap().unwrap()
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

mod prompt;
mod serving;
