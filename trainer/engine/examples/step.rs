//! Measures a training step: time, the longest slice, and how far bf16 gradients are from f32 ones.
//!
//! `cargo run --release -p metaclaw-engine --example step -- MODEL CACHE [ROW_TOKENS HEAD_POSITIONS]`,
//! where MODEL is a GGUF file. Four samples of 120 tokens, the loss on the last 40 of each; rank 16.

use std::error::Error;
use std::path::Path;
use std::time::Instant;

use metaclaw_engine::datum::TrainDatum;
use metaclaw_engine::lora::LoraSpec;
use metaclaw_engine::loss::Loss;
use metaclaw_engine::model::Model;
use metaclaw_engine::optim::AdamConfig;
use metaclaw_engine::rng::SplitMix64;
use metaclaw_engine::run::{Run, RunConfig};
use metaclaw_engine::train::{SliceSizes, TrainJob, TrainOut};
use metaclaw_engine::weights;
use tch::{Kind, Tensor};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [model, cache, rest @ ..] = arguments.as_slice() else {
        return Err("usage: step MODEL CACHE [ROW_TOKENS HEAD_POSITIONS]".into());
    };
    let sizes = match rest {
        [row, head] => SliceSizes { row_tokens: row.parse()?, head_positions: head.parse()? },
        _ => SliceSizes::default(),
    };
    let folder = weights::gguf::directory(Path::new(model), Path::new(cache))?;
    say(&format!("{sizes:?}, {} threads", tch::get_num_threads()));
    let half = Model::load(&folder, Kind::BFloat16)?;
    let run = measure(&half, sizes)?;
    let full = Model::load(&folder, Kind::Float)?;
    measure(&full, sizes)?;
    let gradient = |model: &Model| {
        let (datums, loss) = (text()?, Loss::CrossEntropy);
        let job = TrainJob::forward_backward(model, run.lora(), &datums, loss, sizes)?;
        Ok::<_, Box<dyn Error>>(job.finish(model)?)
    };
    let (half, full) = (gradient(&half)?, gradient(&full)?);
    say(&format!("on text, same adapter: loss {:.5} in bf16, {:.5} in f32", half.loss, full.loss));
    compare(&half, &full)?;
    Ok(())
}

/// Four steps; the run after them.
fn measure(model: &Model, sizes: SliceSizes) -> Result<Run, Box<dyn Error>> {
    let lora = LoraSpec { rank: 16, ..LoraSpec::default() };
    let mut run = Run::new(model, &RunConfig { lora, seed: 1 })?;
    for step in 0..4 {
        let (datums, loss, epoch) = (datums(), Loss::CrossEntropy, run.epoch());
        let begun = Instant::now();
        let job = TrainJob::forward_backward(model, run.lora(), &datums, loss, sizes)?;
        let mut out = job.finish(model)?;
        let trained = begun.elapsed();
        let slices = out.slices;
        run.absorb(epoch, &mut out)?;
        let stepped = Instant::now();
        let config = AdamConfig { learning_rate: 5e-4, eps: 1e-8, ..AdamConfig::default() };
        run.optim_step(&config)?;
        say(&format!(
            "{:?} step {step}: forward_backward {trained:.2?}, optim_step {:.2?}, {} slices, longest {:.1?}",
            model.kind,
            stepped.elapsed(),
            slices.count,
            slices.longest
        ));
    }
    Ok(run)
}

fn datums() -> Vec<TrainDatum> {
    let mut rng = SplitMix64::new(3);
    let mut datum = || {
        let ids: Vec<u32> = (0..=120).map(|_| (rng.next_u64() % 49_000) as u32).collect();
        let mut weights = vec![0.0; 80];
        weights.resize(120, 1.0 / 160.0);
        TrainDatum {
            input_ids: ids[..120].to_vec(),
            target_ids: ids[1..].to_vec(),
            n_targets: 1,
            weights: Some(weights),
            ..TrainDatum::default()
        }
    };
    (0..4).map(|_| datum()).collect()
}

/// The samples of the golden values: text, on which a model is surer than on noise.
fn text() -> Result<Vec<TrainDatum>, Box<dyn Error>> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/smollm2/values.json");
    let values: serde_json::Value = serde_json::from_slice(&std::fs::read(file)?)?;
    let datums = values["datums"].as_array().ok_or("no datums")?;
    let datum = |datum: &serde_json::Value| {
        let input_ids: Vec<u32> = serde_json::from_value(datum["input_ids"].clone())?;
        let weights: Vec<f32> = serde_json::from_value(datum["weights"].clone())?;
        Ok(TrainDatum {
            input_ids,
            target_ids: serde_json::from_value(datum["target_ids"].clone())?,
            n_targets: 1,
            // All pull one way, as accepted replies do.
            weights: Some(weights.into_iter().map(f32::abs).collect()),
            ..TrainDatum::default()
        })
    };
    datums.iter().map(datum).collect()
}

fn compare(a: &TrainOut, b: &TrainOut) -> Result<(), tch::TchError> {
    let dot = |a: &Tensor, b: &Tensor| a.f_mul(b)?.f_sum(Kind::Double)?.f_double_value(&[]);
    let (mut total, mut lowest) = ([0.0; 3], f64::INFINITY);
    for (a, b) in a.gradients.iter().zip(&b.gradients) {
        let [ab, aa, bb] = [dot(a, b)?, dot(a, a)?, dot(b, b)?];
        lowest = lowest.min(ab / (aa * bb).sqrt());
        total = [total[0] + ab, total[1] + aa, total[2] + bb];
    }
    let [ab, aa, bb] = total;
    let whole = ab / (aa * bb).sqrt();
    say(&format!("cosine of the whole gradient {whole:.6}, of the worst matrix {lowest:.6}"));
    Ok(())
}

#[expect(clippy::print_stdout, reason = "an example speaks to its caller")]
fn say(line: &str) {
    println!("{line}");
}
