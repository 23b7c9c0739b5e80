//! Reinforcement learning against a training server: replies are sampled, a reward function scores them, and the policy is
//! pushed towards those that are better than their group. The reward here is for short answers.
//!
//! ```text
//! metaclaw-trainer --model SmolLM2-135M-Instruct.Q4_1.gguf --port 8321
//! cargo run -p metaclaw-trainer-api --example rl_loop -- http://127.0.0.1:8321
//! ```
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use metaclaw_trainer_api::{
    Datum, LossConfig, LossFn, RemoteBackend, TrainingBackend,
    wire::{
        AdamSettings, CreateRequest, ForwardBackwardRequest, OptimStepRequest, SampleRequest,
        TokenizeRequest,
    },
};
use serde_json::json;

const QUESTION: &str = "Say hello.";
const SEED: u64 = 1;
const ROUNDS: u32 = 5;
const GROUP: u32 = 8;
const MAX_TOKENS: u32 = 32;

/// 1 for an answer that ends by itself, less the part of its length that it uses.
fn reward(n_ids: usize) -> f32 {
    1.0 - n_ids as f32 / MAX_TOKENS as f32
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).ok_or("usage: rl_loop URL")?;
    // What TLS is made of is the program's choice, also where the address is plain HTTP.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let backend = RemoteBackend::at(reqwest::Client::builder().build()?, url);
    let messages = vec![json!({"role": "user", "content": QUESTION})];
    let prompt = backend
        .tokenize(TokenizeRequest::messages(messages))
        .await?
        .tokens;
    let run = backend
        .create_run(CreateRequest {
            seed: Some(SEED),
            ..CreateRequest::default()
        })
        .await?
        .session_id;
    for round in 1..=ROUNDS {
        // Sampled with the weights of this round: each round saves an adapter of its own name.
        let name = format!("rl-loop-{round}");
        backend.save_adapter(run.clone(), name.parse()?).await?;
        let request = SampleRequest {
            num_samples: GROUP,
            max_tokens: MAX_TOKENS,
            model: Some(name),
            // Each further reply of the group adds 1.
            seed: Some(SEED + u64::from(round * GROUP)),
            ..SampleRequest::new(prompt.clone())
        };
        let replies = backend.sample(request).await?.sequences;
        let rewards: Vec<f32> = replies.iter().map(|it| reward(it.tokens.len())).collect();
        let mean = rewards.iter().sum::<f32>() / rewards.len() as f32;
        println!("round {round}: reward {mean:.3}");

        // On the prompt nothing counts; each id of a reply has the advantage of the whole reply.
        let datums = replies.iter().zip(&rewards).map(|(reply, reward)| {
            let all = [prompt.as_slice(), &reply.tokens].concat();
            let before = vec![0.0; prompt.len() - 1];
            let logprobs = [before.as_slice(), &reply.logprobs].concat();
            let advantages = [before, vec![reward - mean; reply.tokens.len()]].concat();
            Datum::policy(
                all[..all.len() - 1].to_vec(),
                all[1..].to_vec(),
                logprobs,
                advantages,
            )
        });
        backend
            .forward_backward(ForwardBackwardRequest {
                session_id: run.clone(),
                datums: datums.collect::<Result<_, _>>()?,
                loss_fn: LossFn::ImportanceSampling,
                loss_fn_config: LossConfig::new(),
            })
            .await?;
        let adam = AdamSettings {
            grad_clip_norm: Some(1.0),
            ..AdamSettings::default()
        };
        let step = OptimStepRequest {
            session_id: run.clone(),
            learning_rate: 1e-3,
            adam,
        };
        backend.optim_step(step).await?;
    }
    backend.close_run(run).await?;
    Ok(())
}
