//! Measures replies: their speed, and the first token in a known conversation.

use std::sync::atomic::AtomicBool;

use metaclaw_engine::adapter;
use metaclaw_engine::engine::Engine;
use metaclaw_engine::run::{OpenRun, RunConfig};
use metaclaw_trainer_terms::AdapterName;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::input::{Decode, Input, NextTurn};
use crate::measure::Clock;
use crate::readers::{read, read_all, request};

/// Tokens of the first turn's reply, and of the warm-up.
const REPLY: usize = 8;

/// Measures greedy replies, all at once, including the prompts.
///
/// # Errors
/// Returns the engine's error.
pub(crate) fn run(input: &Input, work: &Decode) -> Result<Value, Failure> {
    let folder = scratch()?;
    let engine = input.engine(folder.clone(), work.prompts.len())?;
    let never = AtomicBool::new(false);
    let replies = |from: usize, n: usize| {
        // The warm-up uses other prompts, so that the cache knows none of the measured ones.
        let requests = work
            .prompts
            .iter()
            .map(|prompt| request(&prompt[from..], n, None));
        read_all(&engine, requests.collect(), &never)
    };
    replies(1, REPLY)?;
    let clock = Clock::start()?;
    let heard = replies(0, work.new_tokens)?;
    let mut figures = clock.figures()?;
    figures["new_tokens"] = heard.iter().map(|it| it.ids.len()).sum::<usize>().into();
    let bytes_each = input.dtype()?.kind().elt_size_in_bytes() as u64;
    figures["weight_bytes"] = (engine.info().n_params * bytes_each).into();
    std::fs::remove_dir_all(folder)?;
    Ok(figures)
}

/// Measures the first token of a second turn, and of the same turn after an unknown history.
///
/// # Errors
/// Returns the engine's error.
pub(crate) fn next_turn(input: &Input, work: &NextTurn) -> Result<Value, Failure> {
    let folder = scratch()?;
    let engine = input.engine(folder.clone(), 1)?;
    let never = AtomicBool::new(false);
    let first_token = |ids: &[u32]| -> Result<(Value, usize), Failure> {
        let clock = Clock::start()?;
        let heard = read(&engine, request(ids, 1, None), &never)?;
        let cached = heard.finished.map_or(0, |it| it.cached);
        Ok((clock.figures()?, cached))
    };
    // The history alone with its reply is the first turn, and the warm-up.
    let first = read(&engine, request(&work.history, REPLY, None), &never)?;
    let next = [work.history.as_slice(), &first.ids, &work.turn].concat();
    let (known, cached) = first_token(&next)?;
    let unknown = [work.other_history.as_slice(), &first.ids, &work.turn].concat();
    let (new, not_cached) = first_token(&unknown)?;
    std::fs::remove_dir_all(folder)?;
    Ok(json!({
        "wall_s": known["wall_s"], "cpu_s": known["cpu_s"], "cached": cached,
        "without_wall_s": new["wall_s"], "without_cpu_s": new["cpu_s"], "without_cached": not_cached,
    }))
}

/// Makes a folder for this process, which the caller removes.
///
/// # Errors
/// Fails if it cannot be made.
pub(crate) fn scratch() -> Result<std::path::PathBuf, Failure> {
    let folder = std::env::temp_dir().join(format!("metaclaw-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// Saves fresh adapters under these names, outside any measurement.
///
/// # Errors
/// Returns the engine's error.
pub(crate) fn save_adapters(engine: &Engine, names: Vec<AdapterName>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    runtime.block_on(engine.call(move |state| -> Result<(), Failure> {
        for (seed, name) in names.iter().enumerate() {
            let config = RunConfig {
                seed: seed as u64,
                ..RunConfig::default()
            };
            let run = OpenRun::new(&state.model, &config)?;
            adapter::save(&scratch()?, name, run.lora(), &state.base.id, run.step())?;
        }
        Ok(())
    }))?
}
