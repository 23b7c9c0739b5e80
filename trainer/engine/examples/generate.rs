//! Loads a model, answers a question and prints the speed:
//!
//! ```text
//! cargo run --release -p metaclaw-engine --example generate -- \
//!     MODEL [--f32] [--threads N] [--adapter DIR NAME] [PROMPT]
//! ```

use std::path::PathBuf;
use std::time::Instant;

use metaclaw_engine::engine::{Dtype, Engine, EngineConfig};
use metaclaw_engine::generate::{
    FinishedReply, GenerateError, GenerateEvent, GenerateRequest, PromptLogprobs,
};
use metaclaw_engine::sampler::SamplingParams;
use metaclaw_trainer_terms::AdapterName;
use serde_json::json;

type Failure = Box<dyn std::error::Error>;

struct GenerateOptions {
    config: EngineConfig,
    adapter: Option<AdapterName>,
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
        answer(&engine, &options.prompt, options.adapter.as_ref()).await?;
        measure(&engine, options.adapter.as_ref()).await
    })
}

fn options() -> Result<GenerateOptions, Failure> {
    let mut args = std::env::args().skip(1);
    let model = PathBuf::from(args.next().ok_or("which model? a .gguf file or a folder")?);
    let cache = std::env::temp_dir().join("metaclaw-example");
    let mut config = EngineConfig::new(model, cache.clone(), cache);
    let (mut adapter, mut prompt) = (None, "What is the capital of France?".to_owned());
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--f32" => config.dtype = Some(Dtype::F32),
            "--bf16" => config.dtype = Some(Dtype::Bf16),
            "--threads" => config.threads = args.next().ok_or("how many threads?")?.parse()?,
            "--adapter" => {
                config.checkpoint_dir = args.next().ok_or("which checkpoint folder?")?.into();
                adapter = args.next().map(|name| name.parse()).transpose()?;
            }
            _ => prompt = arg,
        }
    }
    Ok(GenerateOptions {
        config,
        adapter,
        prompt,
    })
}

async fn answer(
    engine: &Engine,
    prompt: &str,
    adapter: Option<&AdapterName>,
) -> Result<(), Failure> {
    let tokenizer = engine.tokenizer();
    let text = tokenizer.render(&[json!({"role": "user", "content": prompt})], None, true)?;
    let request = GenerateRequest {
        prompt_ids: tokenizer.encode_rendered(&text)?,
        sampling: SamplingParams::greedy(),
        max_tokens: 64,
        adapter: adapter.cloned(),
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

async fn measure(engine: &Engine, adapter: Option<&AdapterName>) -> Result<(), Failure> {
    say("(in brackets: processor time, which a busy machine does not change much)\n");
    for (n_prompt, n_reply, temperature) in [
        (1024, 1, 0.0),
        (16, 128, 0.0),
        (1024, 128, 0.0),
        (16, 128, 0.7),
    ] {
        let timed = timed(engine, adapter, n_prompt, n_reply, temperature).await?;
        say(&format!(
            "prompt {n_prompt}: {}",
            rate(timed.finished.n_prompt, &timed.first)
        ));
        if n_reply > 1 {
            let rate = rate(timed.finished.n_generated - 1, &timed.rest);
            say(&format!("; reply {n_reply} at T = {temperature}: {rate}"));
        }
        say("\n");
    }
    told(engine, adapter).await?;
    for n in [1, 8] {
        together(engine, adapter, n).await?;
    }
    next_turn(engine, adapter).await
}

/// Prints the log-probabilities of a prompt's own tokens, with the five most likely ones at each position.
async fn told(engine: &Engine, adapter: Option<&AdapterName>) -> Result<(), Failure> {
    const N_PROMPT: u32 = 1024;
    let ids = (0..N_PROMPT).map(|i| 1000 + i * 23 % 20_000).collect();
    let request = GenerateRequest {
        prompt_logprobs: Some(PromptLogprobs { top: 5 }),
        ..request(adapter, ids, 1)
    };
    let (begun, cpu) = (Instant::now(), cpu_seconds());
    let tokens = engine.generate(request).await?.prompt().await;
    let n_told = tokens.map_or(0, |tokens| tokens.len());
    let rate = rate(n_told, &RunClock::since(begun, cpu));
    say(&format!(
        "prompt {N_PROMPT}, its log-probabilities told: {rate}\n"
    ));
    Ok(())
}

/// Measures concurrent replies: the tokens of all of them, and the processor time of each.
async fn together(engine: &Engine, adapter: Option<&AdapterName>, n: u32) -> Result<(), Failure> {
    const N_REPLY: usize = 64;
    let mut streams = Vec::new();
    let (begun, cpu) = (Instant::now(), cpu_seconds());
    for i in 0..n {
        let request = request(adapter, (7000 + 100 * i..7016 + 100 * i).collect(), N_REPLY);
        streams.push(engine.generate(request).await?);
    }
    for stream in &mut streams {
        while let Some(event) = stream.recv().await {
            event?;
        }
    }
    let clock = RunClock::since(begun, cpu);
    let rate = rate(N_REPLY * streams.len(), &clock);
    say(&format!("{n} replies of {N_REPLY} at once: {rate}\n"));
    Ok(())
}

/// Measures the first token of a conversation of 1,500 ids, and of its next turn.
async fn next_turn(engine: &Engine, adapter: Option<&AdapterName>) -> Result<(), Failure> {
    let mut ids: Vec<u32> = (0..1500).map(|i| 2000 + i * 7 % 30_000).collect();
    for turn in ["first turn", "next turn"] {
        let (begun, cpu) = (Instant::now(), cpu_seconds());
        let mut stream = engine.generate(request(adapter, ids.clone(), 1)).await?;
        while let Some(event) = stream.recv().await {
            if let GenerateEvent::Token(token) = event? {
                ids.push(token.id);
            }
        }
        let clock = RunClock::since(begun, cpu);
        let (wall, cpu) = (clock.wall * 1e3, clock.cpu * 1e3);
        say(&format!(
            "{turn} over 1500 ids: {wall:.0} ms [{cpu:.0} ms] to its first token\n"
        ));
        ids.extend(40..60);
    }
    Ok(())
}

fn request(
    adapter: Option<&AdapterName>,
    prompt_ids: Vec<u32>,
    max_tokens: usize,
) -> GenerateRequest {
    GenerateRequest {
        prompt_ids,
        max_tokens,
        sampling: SamplingParams::greedy(),
        ignore_eos: true,
        seed: Some(1),
        adapter: adapter.cloned(),
        ..GenerateRequest::default()
    }
}

/// Wall seconds, and seconds of all processors together.
#[derive(Clone, Copy)]
struct RunClock {
    wall: f64,
    cpu: f64,
}

struct Timed {
    finished: FinishedReply,
    /// Up to the first token.
    first: RunClock,
    /// From there to the end.
    rest: RunClock,
}

fn rate(n: usize, clock: &RunClock) -> String {
    let n = n as f64;
    format!(
        "{:.1} tokens/s [{:.2} ms a token]",
        n / clock.wall,
        clock.cpu * 1e3 / n
    )
}

impl RunClock {
    fn since(begun: Instant, cpu: f64) -> Self {
        Self {
            wall: begun.elapsed().as_secs_f64(),
            cpu: cpu_seconds() - cpu,
        }
    }

    fn minus(self, other: Self) -> Self {
        Self {
            wall: self.wall - other.wall,
            cpu: self.cpu - other.cpu,
        }
    }
}

/// Returns user and system time of this process, from Linux's hundredths of a second, or 0 on other systems.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let ticks = fields
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|t| t.parse::<f64>().ok());
    ticks.sum::<f64>() / 100.0
}

/// Measures one reply. Prompts differ, so that no prefix is cached.
async fn timed(
    engine: &Engine,
    adapter: Option<&AdapterName>,
    n_prompt: u32,
    n_reply: usize,
    temperature: f64,
) -> Result<Timed, GenerateError> {
    let first_id = n_prompt + u32::try_from(n_reply).unwrap_or(0);
    let ids = (0..n_prompt).map(|i| 1000 + (first_id * 31 + i * 17) % 20_000);
    let request = GenerateRequest {
        sampling: SamplingParams {
            temperature,
            ..SamplingParams::default()
        },
        ..request(adapter, ids.collect(), n_reply)
    };
    let (begun, cpu) = (Instant::now(), cpu_seconds());
    let mut stream = engine.generate(request).await?;
    let mut first = None;
    while let Some(event) = stream.recv().await {
        let now = RunClock::since(begun, cpu);
        match event? {
            GenerateEvent::Token(_) => first = first.or(Some(now)),
            GenerateEvent::Finished(finished) => {
                let first = first.unwrap_or(now);
                return Ok(Timed {
                    finished,
                    first,
                    rest: now.minus(first),
                });
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
