//! Loads a model, answers a question and says how fast: `cargo run --release -p metaclaw-engine
//! --example generate -- MODEL [--f32] [--threads N] [--adapter DIR NAME] [PROMPT]`.

use std::path::PathBuf;
use std::time::Instant;

use metaclaw_engine::engine::{Dtype, Engine, EngineConfig};
use metaclaw_engine::generate::{Finished, GenerateError, GenerateEvent, GenerateRequest};
use serde_json::json;

type Failure = Box<dyn std::error::Error>;

struct Options {
    config: EngineConfig,
    adapter: Option<String>,
    prompt: String,
}

fn main() -> Result<(), Failure> {
    let options = options()?;
    let begun = Instant::now();
    let engine = Engine::start(options.config)?;
    let info = engine.info();
    say(&format!(
        "{} ({}, {:?}): {:.1}M weights, context {}, loaded in {:.2} s\n",
        info.name,
        info.family,
        info.dtype,
        info.n_params as f64 / 1e6,
        info.context,
        begun.elapsed().as_secs_f64()
    ));
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    runtime.block_on(async {
        answer(&engine, &options.prompt, options.adapter.as_deref()).await?;
        measure(&engine, options.adapter.as_deref()).await
    })
}

fn options() -> Result<Options, Failure> {
    let mut args = std::env::args().skip(1);
    let model = PathBuf::from(args.next().ok_or("which model? a .gguf file or a folder")?);
    let cache = std::env::temp_dir().join("metaclaw-example");
    let mut config = EngineConfig::new(model, cache.clone(), cache);
    let (mut adapter, mut prompt) = (None, "What is the capital of France?".to_owned());
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--f32" => config.dtype = Dtype::F32,
            "--threads" => config.threads = args.next().ok_or("how many threads?")?.parse()?,
            "--adapter" => {
                config.checkpoint_dir = args.next().ok_or("which checkpoint folder?")?.into();
                adapter = args.next();
            }
            _ => prompt = arg,
        }
    }
    Ok(Options {
        config,
        adapter,
        prompt,
    })
}

async fn answer(engine: &Engine, prompt: &str, adapter: Option<&str>) -> Result<(), Failure> {
    let tokenizer = engine.tokenizer();
    let text = tokenizer.render(&[json!({"role": "user", "content": prompt})], None, true)?;
    let request = GenerateRequest {
        prompt_ids: tokenizer.encode(&text)?,
        temperature: 0.0,
        max_tokens: 64,
        adapter: adapter.map(str::to_owned),
        ..GenerateRequest::default()
    };
    let mut stream = engine.generate(request).await?;
    while let Some(event) = stream.recv().await {
        if let GenerateEvent::Token(token) = event? {
            say(&token.text);
        }
    }
    say("\n");
    Ok(())
}

async fn measure(engine: &Engine, adapter: Option<&str>) -> Result<(), Failure> {
    for (n_prompt, n_reply, temperature) in [
        (1024, 1, 0.0),
        (16, 128, 0.0),
        (1024, 128, 0.0),
        (16, 128, 0.7),
    ] {
        let (finished, first, rest) =
            timed(engine, adapter, n_prompt, n_reply, temperature).await?;
        say(&format!(
            "prompt {n_prompt}: {:.0} tokens/s",
            finished.n_prompt as f64 / first
        ));
        if n_reply > 1 {
            let rate = (finished.n_generated - 1) as f64 / rest;
            say(&format!(
                "; reply {n_reply} at T = {temperature}: {rate:.1} tokens/s"
            ));
        }
        say("\n");
    }
    Ok(())
}

/// Seconds to the first token, and from there to the end. Prompts differ, so that no prefix is kept.
async fn timed(
    engine: &Engine,
    adapter: Option<&str>,
    n_prompt: u32,
    n_reply: usize,
    temperature: f64,
) -> Result<(Finished, f64, f64), GenerateError> {
    let first_id = n_prompt + u32::try_from(n_reply).unwrap_or(0);
    let request = GenerateRequest {
        prompt_ids: (0..n_prompt)
            .map(|i| 1000 + (first_id * 31 + i * 17) % 20_000)
            .collect(),
        max_tokens: n_reply,
        temperature,
        stop_at_end: false,
        seed: Some(1),
        adapter: adapter.map(str::to_owned),
        ..GenerateRequest::default()
    };
    let begun = Instant::now();
    let mut stream = engine.generate(request).await?;
    let mut first = None;
    while let Some(event) = stream.recv().await {
        let at = begun.elapsed().as_secs_f64();
        match event? {
            GenerateEvent::Token(_) => first = first.or(Some(at)),
            GenerateEvent::Finished(finished) => {
                let first = first.unwrap_or(at);
                return Ok((finished, first, at - first));
            }
        }
    }
    Err(GenerateError::Stopped)
}

#[expect(clippy::print_stdout, reason = "an example speaks on stdout")]
fn say(text: &str) {
    use std::io::Write;
    print!("{text}");
    let _ = std::io::stdout().flush();
}
