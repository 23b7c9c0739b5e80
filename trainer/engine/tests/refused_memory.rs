//! Tests of memory that runs out where nothing can be made smaller: the call is refused with an error, and the engine
//! continues.
//!
//! The test is a separate process with limited address space, in which malloc's free memory is filled up. The model's
//! MLP is so wide that its tensors are most of a position's memory.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests, which the exception in clippy.toml does not know"
)]

use std::path::Path;

use metaclaw_engine::engine::{Dtype, Engine, EngineConfig};
use metaclaw_engine::generate::{GenerateError, GenerateEvent, GenerateRequest};
use metaclaw_engine::lora::{BaseDims, Lora, LoraSpec, LoraTargets};
use metaclaw_engine::loss::Loss;
use metaclaw_engine::sampler::SamplingParams;
use metaclaw_engine::testing::{tiny_config, write_model};
use metaclaw_engine::train::{SliceSizes, TrainJob, TrainJobError};
use metaclaw_trainer_terms::Datum;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use tch::{Device, Kind, Tensor};

const MB: usize = 1 << 20;
/// Width of the MLP: gate and up of a position take 8 MB in f32.
const WIDE: i64 = 1 << 20;

fn engine(dir: &Path) -> Engine {
    let mut config = tiny_config();
    config["hidden_size"] = json!(4);
    config["intermediate_size"] = json!(WIDE);
    config["num_hidden_layers"] = json!(1);
    config["num_attention_heads"] = json!(2);
    let model = dir.join("wide");
    std::fs::create_dir(&model).unwrap();
    write_model(&model, &config, 7).unwrap();
    let mut config = EngineConfig::new(model, dir.join("cache"), dir.join("kept"));
    config.dtype = Some(Dtype::F32);
    config.threads = 1;
    config.kv_budget = Some(MB);
    Engine::start(config).unwrap()
}

async fn reply(engine: &Engine, n_prompt: u32) -> Result<Vec<u32>, GenerateError> {
    let request = GenerateRequest {
        prompt_ids: (0..n_prompt).map(|i| (i * 37 + 11) % 250).collect(),
        max_tokens: 2,
        sampling: SamplingParams::greedy(),
        ignore_eos: true,
        ..GenerateRequest::default()
    };
    let mut stream = engine.generate(request).await?;
    let mut ids = Vec::new();
    loop {
        match stream.recv().await.unwrap()? {
            GenerateEvent::Token(token) => ids.push(token.id),
            GenerateEvent::Finished(_) => return Ok(ids),
        }
    }
}

/// Returns the loss of a step over 24 positions, for which the budget claims enough memory.
async fn step(engine: &Engine) -> Result<f64, TrainJobError> {
    let ids: Vec<u32> = (0..25).map(|i| i * 31 % 250).collect();
    let datum = Datum::cross_entropy(ids[..24].to_vec(), ids[1..].to_vec(), vec![1.0; 24]);
    let datums = [datum.unwrap()];
    let sizes = SliceSizes {
        memory: Some(1 << 40),
        ..SliceSizes::default()
    };
    let job = move |state: &mut metaclaw_engine::engine::EngineState| {
        let spec = LoraSpec {
            rank: 1,
            targets: LoraTargets::groups(true, false, false),
            ..LoraSpec::default()
        };
        let model = &state.model;
        let lora = Lora::init(spec, BaseDims::of(&model.config), 1, 0).unwrap();
        let loss = Loss::CrossEntropy;
        let out = TrainJob::forward_backward(model, &lora, &datums, loss, sizes)?;
        Ok(out.finish(model)?.loss)
    };
    engine.call(job).await.unwrap()
}

/// Returns the address space that the process uses now.
fn used() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = text.split_whitespace().next().unwrap().parse().unwrap();
    pages * 4096
}

/// Allows so many more megabytes, and no more.
fn bound(megabytes: u64) {
    let limit = Rlimit {
        current: Some(used() + megabytes * (1 << 20)),
        ..getrlimit(Resource::As)
    };
    setrlimit(Resource::As, limit).unwrap();
}

/// Takes malloc's leftovers for this thread, except for pieces that are smaller than a position's tensors.
fn fill() -> Vec<Tensor> {
    let piece = || Tensor::f_zeros([i64::try_from(MB).unwrap()], (Kind::Float, Device::Cpu));
    std::iter::from_fn(|| piece().ok()).collect()
}

#[tokio::test]
async fn what_cannot_be_cut_smaller_is_refused_and_the_engine_goes_on() {
    tch::set_num_threads(1);
    let dir = tempfile::tempdir().unwrap();
    let engine = engine(dir.path());
    let unbounded = getrlimit(Resource::As);

    bound(0);
    let filling = (fill(), engine.call(|_| fill()).await.unwrap());
    bound(3);
    let token = reply(&engine, 1).await.unwrap_err().to_string();
    setrlimit(Resource::As, unbounded).unwrap();
    assert!(token.contains("can't allocate memory"), "{token}");
    drop(filling);

    // Eight positions, the smallest number that is trained at once, take 64 MB for gate and up.
    bound(40);
    let trained = step(&engine).await.unwrap_err();
    setrlimit(Resource::As, unbounded).unwrap();
    assert!(
        matches!(trained, TrainJobError::OutOfMemory { .. }),
        "{trained}"
    );
    let text = trained.to_string();
    let begins = "out of memory in training, with the batch cut as small as it can be: ";
    assert!(
        text.starts_with(begins) && text.ends_with(" leave more"),
        "{text}"
    );
    assert_eq!(text.lines().count(), 1, "{text}");

    // A page of sixteen positions needs 256 MB, and all forty together need 640.
    bound(420);
    let in_parts = reply(&engine, 40).await;
    setrlimit(Resource::As, unbounded).unwrap();
    let in_parts = in_parts.unwrap();

    let (loss, whole) = (step(&engine).await.unwrap(), reply(&engine, 40).await);
    assert!(loss.is_finite() && loss > 0.0);
    assert_eq!(whole.unwrap(), in_parts);
}
