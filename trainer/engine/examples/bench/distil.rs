//! Measures a distillation batch with and without its teacher.

use metaclaw_engine::head::TopTokens;
use metaclaw_trainer_terms::{Datum, DatumParts, Tensor2};
use serde_json::Value;

use crate::failure::Failure;
use crate::input::{BenchSample, Distillation, Input};
use crate::measure::Clock;
use crate::training::{Trainer, load};

/// Measures a step towards the teacher's most likely tokens. Without a teacher the targets exist already.
///
/// # Errors
/// Returns the engine's error.
pub(crate) fn run(input: &Input, work: &Distillation) -> Result<Value, Failure> {
    let model = load(input)?;
    let mut trainer = Trainer::new(&model)?;
    let hinted = hinted(work);
    // This is the warm-up, and gives the targets of a step without a teacher.
    let tops = trainer.teacher(&model, &hinted, work.top_k)?;
    trainer.step(&model, &targets(work, &tops)?)?;
    let clock = Clock::start()?;
    let tops = if work.with_teacher {
        trainer.teacher(&model, &hinted, work.top_k)?
    } else {
        tops
    };
    let loss = trainer.step(&model, &targets(work, &tops)?)?;
    let mut figures = clock.figures()?;
    figures["loss"] = loss.into();
    Ok(figures)
}

/// Makes each sample with each of its hints between prompt and reply.
fn hinted(work: &Distillation) -> Vec<BenchSample> {
    let pairs = work.samples.iter().zip(&work.hints);
    let with = |sample: &BenchSample, hint: &Vec<u32>| {
        // The position that predicts the reply's first token is the prompt's last one.
        let (prompt, reply) = sample.ids.split_at(sample.loss_from + 1);
        BenchSample {
            ids: [prompt, hint, reply].concat(),
            loss_from: sample.loss_from + hint.len(),
        }
    };
    let all = pairs.flat_map(|(sample, hints)| hints.iter().map(move |hint| with(sample, hint)));
    all.collect()
}

/// Makes the student's samples with the targets of its most certain hinted teacher: `[N, K]` targets.
fn targets(work: &Distillation, tops: &[TopTokens]) -> Result<Vec<Datum>, Failure> {
    let n_batch: usize = work.samples.iter().map(BenchSample::n_targets).sum();
    let mut rest = tops;
    let mut datums = Vec::new();
    for (sample, hints) in work.samples.iter().zip(&work.hints) {
        let (own, others) = rest.split_at(hints.len());
        rest = others;
        let sum = |top: &TopTokens| top.logprobs.iter().sum::<f32>();
        let surest = own.iter().max_by(|a, b| sum(a).total_cmp(&sum(b)));
        let surest = surest.ok_or("a sample without hints")?;
        let silent = sample.loss_from * work.top_k;
        let weights = surest.logprobs.iter().map(|l| l.exp() / n_batch as f32);
        let parts = sample.datum(n_batch)?.into_parts();
        let shape = [parts.model_input_tokens.len(), work.top_k];
        let targets = [vec![0; silent], surest.ids.clone()].concat();
        let weights = [vec![0.0; silent], weights.collect::<Vec<f32>>()].concat();
        datums.push(Datum::new(DatumParts {
            target_tokens: Tensor2::shaped(targets, &shape)?,
            weights: Some(Tensor2::shaped(weights, &shape)?),
            ..parts
        })?);
    }
    Ok(datums)
}
