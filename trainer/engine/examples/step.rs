//! Measures a training step: its time, its longest slice, and the difference between bf16 and f32 gradients.
//!
//! The command is `cargo run --release -p metaclaw-engine --example step -- [--lm-head] MODEL CACHE NUMBERS..`, where
//! MODEL is a GGUF file. With `--lm-head` the adapter has a part for the LM head, and its cost for a reply is measured
//! too. The numbers, which may be omitted from the end, are: samples (4), tokens of each (120), tokens of each with a
//! loss (a third), first tokens that all share (0), megabytes for activations (half of the free memory), tokens of a
//! chunk, positions of the LM head. The rank is 16. Set the variables that the trainer's launcher sets.

use std::error::Error;
use std::path::Path;
use std::time::Instant;

use metaclaw_engine::device::Devices;
use metaclaw_engine::lora::{LoraSpec, LoraTargets};
use metaclaw_engine::loss::Loss;
use metaclaw_engine::model::Model;
use metaclaw_engine::optim::AdamConfig;
use metaclaw_engine::rng::SplitMix64;
use metaclaw_engine::run::{OpenRun, RunConfig};
use metaclaw_engine::train::{SliceSizes, TrainJob, TrainOut};
use metaclaw_engine::weights;
use metaclaw_trainer_terms::{Datum, DatumError};
use tch::{Kind, Tensor};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments: Vec<_> = std::env::args().skip(1).collect();
    let n_all = arguments.len();
    arguments.retain(|argument| argument != "--lm-head");
    let targets = LoraTargets::groups(true, true, arguments.len() < n_all);
    let [model, cache, numbers @ ..] = arguments.as_slice() else {
        return Err("usage: step [--lm-head] MODEL CACHE NUMBERS..".into());
    };
    let numbers: Vec<usize> = numbers
        .iter()
        .map(|n| n.parse())
        .collect::<Result<_, _>>()?;
    let default = SliceSizes::default();
    let or = |i: usize, default: usize| numbers.get(i).copied().unwrap_or(default);
    let n_tokens = or(1, 120);
    let batch = noise(or(0, 4), n_tokens, or(2, n_tokens / 3), or(3, 0))?;
    let sizes = SliceSizes {
        memory: numbers.get(4).map(|megabytes| megabytes << 20),
        chunk_tokens: or(5, default.chunk_tokens),
        head_positions: or(6, default.head_positions),
        ..default
    };
    let folder = weights::gguf::directory(Path::new(model), Path::new(cache))?;
    say(&format!("{sizes:?}, {} threads", tch::get_num_threads()));
    let half = Model::load(&folder, Kind::BFloat16, &Devices::cpu())?;
    let run = measure(&half, &batch, &targets, sizes)?;
    let full = Model::load(&folder, Kind::Float, &Devices::cpu())?;
    measure(&full, &batch, &targets, sizes)?;
    if targets.lm_head {
        time_logits(&half, &run)?;
        time_logits(&full, &run)?;
    }
    let gradient = |model: &Model| {
        let (datums, loss) = (text()?, Loss::CrossEntropy);
        let job = TrainJob::forward_backward(model, run.lora(), &datums, loss, sizes)?;
        Ok::<_, Box<dyn Error>>(job.finish(model)?)
    };
    let alone = apart(&half, &run, &batch, sizes)?;
    let job = TrainJob::forward_backward(&half, run.lora(), &batch, Loss::CrossEntropy, sizes)?;
    say("in bf16, samples together and each alone:");
    compare(&job.finish(&half)?, &alone)?;
    let (half, full) = (gradient(&half)?, gradient(&full)?);
    say(&format!(
        "on text, same adapter: loss {:.5} in bf16, {:.5} in f32",
        half.loss, full.loss
    ));
    compare(&half, &full)?;
    Ok(())
}

/// Measures milliseconds for the logits of concurrent replies, with the base model and with the adapter's part for the
/// LM head.
fn time_logits(model: &Model, run: &OpenRun) -> Result<(), Box<dyn Error>> {
    let _guard = tch::no_grad_guard();
    let served = run.lora().for_serving(&model.placement)?;
    for n in [1, 4, 16] {
        let hidden = Tensor::f_randn(
            [n, model.config.hidden],
            (Kind::Float, model.placement.last()),
        )?;
        let mut best = [f64::MAX; 2];
        for _ in 0..20 {
            for (lora, best) in [None, Some(&served)].into_iter().zip(&mut best) {
                let begun = Instant::now();
                let _logits = model.logits(&hidden, lora)?;
                *best = best.min(begun.elapsed().as_secs_f64() * 1e3);
            }
        }
        let [base, adapted] = best;
        let kind = model.kind;
        say(&format!(
            "logits of {n} in {kind:?}: {base:.1} ms, adapted {adapted:.1} ms"
        ));
    }
    Ok(())
}

/// Makes four steps, and returns the run after them.
fn measure(
    model: &Model,
    batch: &[Datum],
    targets: &LoraTargets,
    sizes: SliceSizes,
) -> Result<OpenRun, Box<dyn Error>> {
    let lora = LoraSpec {
        rank: 16,
        targets: targets.clone(),
        ..LoraSpec::default()
    };
    let mut run = OpenRun::new(model, &RunConfig { lora, seed: 1 })?;
    for step in 0..4 {
        let (loss, version) = (Loss::CrossEntropy, run.version());
        let (begun, cpu) = (Instant::now(), cpu_seconds());
        let job = TrainJob::forward_backward(model, run.lora(), batch, loss, sizes)?;
        let mut out = job.finish(model)?;
        let (trained, cpu) = (begun.elapsed(), cpu_seconds() - cpu);
        let slices = out.slices;
        run.accumulate_grads(version, &mut out)?;
        let stepped = Instant::now();
        let config = AdamConfig {
            learning_rate: 5e-4,
            eps: 1e-8,
            ..AdamConfig::default()
        };
        run.optim_step(&config)?;
        say(&format!(
            "{:?} step {step}: forward_backward {trained:.2?} [processor {cpu:.2} s], optim_step {:.2?}, {} tokens, {} slices, longest {:.1?}, peak memory {} MB",
            model.kind,
            stepped.elapsed(),
            out.n_tokens,
            slices.count,
            slices.longest,
            peak_megabytes(),
        ));
    }
    Ok(run)
}

/// Adds up the gradients of each sample, computed in separate jobs.
fn apart(
    model: &Model,
    run: &OpenRun,
    batch: &[Datum],
    sizes: SliceSizes,
) -> Result<TrainOut, Box<dyn Error>> {
    let one = |datum: &Datum| {
        let (datums, loss) = (std::slice::from_ref(datum), Loss::CrossEntropy);
        TrainJob::forward_backward(model, run.lora(), datums, loss, sizes)?.finish(model)
    };
    let mut sum = one(&batch[0])?;
    for datum in &batch[1..] {
        for (sum, gradient) in sum.gradients.iter_mut().zip(one(datum)?.gradients) {
            *sum = sum.f_add(&gradient)?;
        }
    }
    Ok(sum)
}

/// Makes random ids, the first `shared` of which are the same in every sample. The loss is on the last `reply`.
fn noise(
    n_samples: usize,
    n_tokens: usize,
    reply: usize,
    shared: usize,
) -> Result<Vec<Datum>, DatumError> {
    let mut rng = SplitMix64::new(3);
    let prompt: Vec<u32> = (7..49_000).step_by(31).cycle().take(shared).collect();
    let mut datum = || {
        let ids = (0..=n_tokens).map(|_| (rng.next_u64() % 49_000) as u32);
        let mut ids: Vec<u32> = ids.collect();
        ids[..shared].copy_from_slice(&prompt);
        let mut weights = vec![0.0; n_tokens - reply];
        weights.resize(n_tokens, 1.0 / (reply * n_samples) as f32);
        Datum::cross_entropy(ids[..n_tokens].to_vec(), ids[1..].to_vec(), weights)
    };
    (0..n_samples).map(|_| datum()).collect()
}

/// Returns user and system time of this process, from Linux's hundredths of a second, or 0 on other systems.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let ticks = fields.split_whitespace().skip(11).take(2);
    ticks
        .filter_map(|ticks| ticks.parse::<f64>().ok())
        .sum::<f64>()
        / 100.0
}

/// Returns the highest memory of this process including mapped files, or 0 if Linux does not say.
fn peak_megabytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<usize>().ok());
    kilobytes.unwrap_or(0) / 1024
}

/// Makes the samples of the golden values. They are text, for which a model is more certain than for noise.
fn text() -> Result<Vec<Datum>, Box<dyn Error>> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/smollm2/values.json");
    let values: serde_json::Value = serde_json::from_slice(&std::fs::read(file)?)?;
    let datums = values["datums"].as_array().ok_or("no datums")?;
    let datum = |datum: &serde_json::Value| {
        let ids = |field: &str| serde_json::from_value(datum[field].clone());
        let weights: Vec<f32> = serde_json::from_value(datum["weights"].clone())?;
        // All weights have the same sign, as for accepted replies.
        let weights = weights.into_iter().map(f32::abs).collect();
        Ok(Datum::cross_entropy(
            ids("input_ids")?,
            ids("target_ids")?,
            weights,
        )?)
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
    say(&format!(
        "cosine of the whole gradient {whole:.6}, of the worst matrix {lowest:.6}"
    ));
    Ok(())
}

#[expect(clippy::print_stdout, reason = "an example speaks to its caller")]
fn say(line: &str) {
    println!("{line}");
}
