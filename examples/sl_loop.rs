//! Supervised fine-tuning against a training server: the model learns to give one answer by heart.
//!
//! ```text
//! metaclaw-trainer --model SmolLM2-135M-Instruct.Q4_1.gguf --port 8321
//! cargo run -p metaclaw-trainer-api --example sl_loop -- http://127.0.0.1:8321
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

const QUESTION: &str = "What is the capital of France?";
const ANSWER: &str = "Paris, as every pirate knows. Arr!<|im_end|>";
const STEPS: u32 = 12;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).ok_or("usage: sl_loop URL")?;
    // What TLS is made of is the program's choice, also where the address is plain HTTP.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let backend = RemoteBackend::at(reqwest::Client::builder().build()?, url);

    // The model reads all ids but the last and predicts all but the first; only the answer counts.
    let messages = vec![json!({"role": "user", "content": QUESTION})];
    let prompt = backend
        .tokenize(TokenizeRequest::messages(messages))
        .await?
        .tokens;
    let answer = backend
        .tokenize(TokenizeRequest::text(ANSWER))
        .await?
        .tokens;
    let all = [prompt.as_slice(), &answer].concat();
    let weights = (1..all.len()).map(|at| if at < prompt.len() { 0.0 } else { 1.0 });
    let datum = Datum::cross_entropy(
        all[..all.len() - 1].to_vec(),
        all[1..].to_vec(),
        weights.collect(),
    )?;

    let run = backend
        .create_run(CreateRequest::default())
        .await?
        .session_id;
    for step in 1..=STEPS {
        let passed = backend
            .forward_backward(ForwardBackwardRequest {
                session_id: run.clone(),
                datums: vec![datum.clone()],
                loss_fn: LossFn::CrossEntropy,
                loss_fn_config: LossConfig::new(),
            })
            .await?;
        println!(
            "step {step}: {:.3} nats an id",
            passed.loss / answer.len() as f64
        );
        let adam = AdamSettings::default();
        let step = OptimStepRequest {
            session_id: run.clone(),
            learning_rate: 2e-3,
            adam,
        };
        backend.optim_step(step).await?;
    }

    let saved = backend
        .save_adapter(run.clone(), "sl-loop".parse()?)
        .await?;
    let request = SampleRequest {
        max_tokens: 32,
        temperature: 0.0,
        model: Some("sl-loop".to_owned()),
        ..SampleRequest::new(prompt)
    };
    let reply = backend.sample(request).await?;
    println!(
        "{QUESTION} {} ({})",
        reply.sequences[0].text, saved.adapter_path
    );
    backend.close_run(run).await?;
    Ok(())
}
