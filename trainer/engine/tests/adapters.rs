//! Tests with more adapters in rotation than fit into memory.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests, which the exception in clippy.toml does not know"
)]

use std::path::Path;

use metaclaw_engine::adapter;
use metaclaw_engine::engine::{Dtype, Engine, EngineConfig};
use metaclaw_engine::generate::{FinishedReply, GenerateEvent, GenerateRequest};
use metaclaw_engine::lora::{Lora, LoraSpec};
use metaclaw_engine::sampler::SamplingParams;
use metaclaw_engine::testing::write_tiny_model;
use metaclaw_trainer_terms::AdapterName;

fn config(dir: &Path) -> EngineConfig {
    let model = dir.join("tiny");
    if !model.exists() {
        std::fs::create_dir(&model).unwrap();
        write_tiny_model(&model, 5).unwrap();
    }
    let mut config = EngineConfig::new(model, dir.join("cache"), dir.join("kept"));
    config.dtype = Some(Dtype::F32);
    config.threads = 1;
    config
}

async fn run(
    engine: &Engine,
    adapter: &AdapterName,
    prompt_ids: Vec<u32>,
) -> (Vec<u32>, FinishedReply) {
    let request = GenerateRequest {
        prompt_ids,
        adapter: Some(adapter.clone()),
        max_tokens: 8,
        sampling: SamplingParams::greedy(),
        ignore_eos: true,
        ..GenerateRequest::default()
    };
    let mut stream = engine.generate(request).await.unwrap();
    let mut ids = Vec::new();
    loop {
        match stream.recv().await.unwrap().unwrap() {
            GenerateEvent::Token(token) => ids.push(token.id),
            GenerateEvent::Finished(end) => return (ids, end),
        }
    }
}

/// Row B10 of the tests: with more adapters than fit into memory, each turn read its adapter again under a new key, so
/// its prefix was never found again.
#[tokio::test]
async fn nine_agents_in_rotation_keep_their_prefixes() {
    let dir = tempfile::tempdir().unwrap();
    let base = Engine::start(config(dir.path())).unwrap().base().clone();
    let mut bytes = 0;
    let agents: Vec<AdapterName> = (0..9)
        .map(|n| format!("agent-{n}").parse().unwrap())
        .collect();
    for (seed, name) in agents.iter().enumerate() {
        let spec = LoraSpec {
            rank: 4,
            ..LoraSpec::default()
        };
        let lora = Lora::init(spec, base.dims, base.n_layers, seed as u64).unwrap();
        let lora = lora
            .try_map(|t| (t.f_randn_like()? * 0.1).f_add(t))
            .unwrap();
        bytes = 4 * lora.n_params();
        adapter::save(&dir.path().join("kept"), name, &lora, &base.id, 1).unwrap();
    }
    let engine = Engine::start(EngineConfig {
        adapter_budget: 8 * bytes,
        ..config(dir.path())
    });
    let engine = engine.unwrap();
    let mut talks: Vec<Vec<u32>> = vec![(0..100).map(|i| (i * 37 + 11) % 250).collect(); 9];
    for turn in 0..3 {
        for (name, talk) in agents.iter().zip(&mut talks) {
            let (ids, end) = run(&engine, name, talk.clone()).await;
            let known = if turn == 0 { 0 } else { talk.len() - 4 };
            // Except for a page or two at the end, everything is known from the turn before.
            assert!(
                end.cached + 32 >= known,
                "{name}, turn {turn}: {} of {known}",
                end.cached
            );
            assert_eq!(
                end.cached == 0,
                turn == 0,
                "{name} shares nothing with the others"
            );
            talk.extend(ids);
            talk.extend([1, 2, 3]);
        }
        assert!(engine.adapters().bytes() <= 8 * bytes);
        assert_eq!(engine.adapters().loaded().len(), 8);
    }
}
