//! Reads streams like clients do, each in a separate thread.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use metaclaw_engine::engine::Engine;
use metaclaw_engine::generate::{FinishedReply, GenerateEvent, GenerateRequest};
use metaclaw_engine::sampler::SamplingParams;
use metaclaw_trainer_terms::AdapterName;

use crate::failure::Failure;

/// A received reply.
#[derive(Debug, Default)]
pub(crate) struct TimedReply {
    /// When each token arrived.
    pub(crate) at: Vec<Instant>,
    pub(crate) ids: Vec<u32>,
    /// `None` if the reader left before the end.
    pub(crate) finished: Option<FinishedReply>,
}

/// Makes a greedy request for exactly `max_tokens`.
pub(crate) fn request(
    prompt_ids: &[u32],
    max_tokens: usize,
    adapter: Option<AdapterName>,
) -> GenerateRequest {
    GenerateRequest {
        prompt_ids: prompt_ids.to_vec(),
        max_tokens,
        sampling: SamplingParams::greedy(),
        ignore_eos: true,
        seed: Some(1),
        adapter,
        ..GenerateRequest::default()
    }
}

/// Reads a reply to its end, or until `leave` is set, which cancels it.
///
/// # Errors
/// Returns the engine's error.
pub(crate) fn read(
    engine: &Engine,
    request: GenerateRequest,
    leave: &AtomicBool,
) -> Result<TimedReply, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    runtime.block_on(async {
        let mut heard = TimedReply::default();
        let mut stream = engine.generate(request).await?;
        while let Some(event) = stream.recv().await {
            match event? {
                GenerateEvent::Token(token) => {
                    heard.at.push(Instant::now());
                    heard.ids.push(token.id);
                }
                GenerateEvent::Finished(finished) => heard.finished = Some(finished),
            }
            if leave.load(Ordering::Relaxed) {
                break;
            }
        }
        Ok(heard)
    })
}

/// Reads all of them at once.
///
/// # Errors
/// Returns the engine's error for the first that fails.
pub(crate) fn read_all(
    engine: &Engine,
    requests: Vec<GenerateRequest>,
    leave: &AtomicBool,
) -> Result<Vec<TimedReply>, Failure> {
    thread::scope(|scope| {
        let readers: Vec<_> = requests
            .into_iter()
            .map(|request| scope.spawn(|| read(engine, request, leave)))
            .collect();
        let heard = readers
            .into_iter()
            .map(|it| it.join().map_err(|_| "a reader panicked")?);
        heard.collect()
    })
}

/// Returns the seconds between tokens of the same stream, for tokens from `from` on.
pub(crate) fn gaps(heard: &[TimedReply], from: Option<Instant>) -> Vec<f64> {
    let pairs = heard.iter().flat_map(|it| it.at.windows(2));
    let within = pairs.filter(|pair| from.is_none_or(|from| pair[0] >= from));
    within
        .map(|pair| (pair[1] - pair[0]).as_secs_f64())
        .collect()
}

/// Returns the percentile of the values. 100 is the largest value. For no values, returns 0.
pub(crate) fn quantile(mut values: Vec<f64>, percent: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    let n_below = (percent * values.len()).div_ceil(100);
    values
        .get(n_below.saturating_sub(1))
        .copied()
        .unwrap_or(0.0)
}
