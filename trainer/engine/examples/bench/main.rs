//! Runs one cell of `cargo xtask bench engine` once after a warm-up: `bench INPUT.json` prints one line of JSON.
//!
//! Each run is a separate process, so that its highest memory is the cell's own. Both [`input`] and `bench/peer.py`
//! read `INPUT.json`. `bench folder MODEL.gguf CACHE` prints the folder that a GGUF file is converted to. Set the
//! variables that the trainer's launcher sets.

mod decode;
mod distil;
mod failure;
mod input;
mod measure;
mod readers;
mod serving;
mod training;

use std::path::Path;

use metaclaw_engine::weights;
use serde_json::Value;

use crate::failure::Failure;
use crate::input::{BenchWork, Input};

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["folder", model, cache] => {
            let folder = weights::gguf::directory(Path::new(model), Path::new(cache))?;
            say(&folder.display().to_string());
        }
        [input] => {
            let input: Input = serde_json::from_slice(&std::fs::read(input)?)?;
            let mut figures = run(&input)?;
            figures["peak_bytes"] = measure::peak_bytes()?.into();
            figures["device_bytes"] = measure::device_bytes(&input)?.into();
            say(&figures.to_string());
        }
        _ => return Err("usage: bench INPUT.json | bench folder MODEL.gguf CACHE".into()),
    }
    Ok(())
}

fn run(input: &Input) -> Result<Value, Failure> {
    match &input.work {
        BenchWork::Bandwidth => measure::bandwidth(input.threads),
        BenchWork::Peak { side } => measure::peak(input, *side),
        BenchWork::Train(work) => training::run(input, work),
        BenchWork::Distil(work) => distil::run(input, work),
        BenchWork::Decode(work) => decode::run(input, work),
        BenchWork::NextTurn(work) => decode::next_turn(input, work),
        BenchWork::Adapters(work) => serving::adapters(input, work),
        BenchWork::Served(work) => serving::served(input, work),
        BenchWork::Arrivals(work) => serving::arrivals(input, work),
        BenchWork::Swaps(work) => serving::swaps(input, work),
    }
}

#[expect(clippy::print_stdout, reason = "an example speaks to its caller")]
fn say(line: &str) {
    println!("{line}");
}
