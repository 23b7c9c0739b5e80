//! Loss positions: those whose log-probabilities are needed.
//!
//! Where samples share a place, each distinct target is looked up once; every sample's term of it is added up.

use std::collections::BTreeMap;

use tch::{Device, Tensor};

use super::work::{PassWork, TrainJobError, TrainOut};
use crate::head::TopTokens;
use crate::loss::{Loss, LossSignal};
use crate::pack::{Row, to_i64};
use crate::torch::Result;

#[derive(Debug)]
pub(super) struct LossPosition {
    place: usize,
    /// Samples that have a loss here, and which of their positions this is.
    users: Vec<(usize, usize)>,
    /// The ids of all targets at the position, each once.
    targets: Vec<i64>,
}

pub(super) fn of_row(work: &PassWork, row: &Row) -> Vec<LossPosition> {
    let mut found: BTreeMap<usize, LossPosition> = BTreeMap::new();
    for branch in &row.branches {
        let sample = &work.samples[branch.sample];
        for (position, place) in branch.places().enumerate() {
            if !work.is_wanted(branch.sample, position) {
                continue;
            }
            let at = found.entry(place).or_insert_with(|| LossPosition {
                place,
                users: Vec::new(),
                targets: Vec::new(),
            });
            at.users.push((branch.sample, position));
            at.targets
                .extend_from_slice(&sample.target_ids[sample.at(position)]);
        }
    }
    for position in found.values_mut() {
        position.targets.sort_unstable();
        position.targets.dedup();
    }
    found.into_values().collect()
}

/// Places in the row, `[n]`, i64.
pub(super) fn places(positions: &[LossPosition], device: Device) -> Result<Tensor> {
    let places: Vec<i64> = positions.iter().map(|p| to_i64(p.place)).collect();
    Tensor::f_from_slice(&places)?.f_to_device(device)
}

/// The targets, `[n, k]`, i64, with the largest `k` of all positions. Shorter lists are filled up with token 0, to
/// which [`record`] gives no gradient.
pub(super) fn targets(positions: &[LossPosition], device: Device) -> Result<Tensor> {
    let k = width(positions);
    let mut ids = Vec::with_capacity(positions.len() * k);
    for position in positions {
        ids.extend_from_slice(&position.targets);
        ids.resize(ids.len() + k - position.targets.len(), 0);
    }
    Tensor::f_from_slice(&ids)?
        .f_view([to_i64(positions.len()), to_i64(k)])?
        .f_to_device(device)
}

/// Writes log-probabilities and terms down and returns the loss's derivatives by the log-probabilities; both
/// `[n, k]` as [`targets`].
///
/// # Errors
/// [`TrainJobError::NotFinite`].
pub(super) fn record(
    positions: &[LossPosition],
    work: &PassWork,
    logprobs: &[f32],
    out: &mut TrainOut,
) -> Result<Vec<f64>, TrainJobError> {
    let k = width(positions);
    let mut gradients = vec![0.0; logprobs.len()];
    let rows = logprobs.chunks_exact(k).zip(gradients.chunks_exact_mut(k));
    for (at, (logprobs, gradients)) in positions.iter().zip(rows) {
        for &(datum, position) in &at.users {
            let sample = &work.samples[datum];
            for entry in sample.at(position) {
                // Every user's targets are among them.
                let Ok(column) = at.targets.binary_search(&sample.target_ids[entry]) else {
                    continue;
                };
                let logprob = logprobs[column];
                out.logprobs[datum][entry] = Some(logprob);
                let Some(loss) = &work.loss else {
                    out.n_loss_tokens += 1;
                    continue;
                };
                let place = TermPlace { datum, position };
                let signal = sample.signals[entry];
                gradients[column] += add_term(loss, place, logprob, signal, out)?;
            }
        }
    }
    Ok(gradients)
}

#[derive(Debug, Clone, Copy)]
struct TermPlace {
    datum: usize,
    position: usize,
}

fn add_term(
    loss: &Loss,
    place: TermPlace,
    logprob: f32,
    signal: LossSignal,
    out: &mut TrainOut,
) -> Result<f64, TrainJobError> {
    let term = loss.term(f64::from(logprob), signal);
    if !(term.loss.is_finite() && term.grad_logprob.abs() <= f64::from(f32::MAX)) {
        return Err(TrainJobError::NotFinite {
            loss: loss.loss_fn(),
            datum: place.datum,
            position: place.position,
            logprob,
            sampled: signal.sampled,
        });
    }
    out.loss += term.loss;
    out.n_loss_tokens += usize::from(!loss.is_masked(signal));
    Ok(term.grad_logprob)
}

/// Appends the likeliest tokens of a chunk; positions of a sample come in order.
pub(super) fn record_top(
    positions: &[LossPosition],
    k: usize,
    top: &TopTokens,
    out: &mut TrainOut,
) {
    let rows = top.ids.chunks_exact(k).zip(top.logprobs.chunks_exact(k));
    for (position, (ids, logprobs)) in positions.iter().zip(rows) {
        for &(datum, _) in &position.users {
            let of_sample = &mut out.top[datum];
            of_sample.ids.extend_from_slice(ids);
            of_sample.logprobs.extend_from_slice(logprobs);
        }
    }
}

fn width(positions: &[LossPosition]) -> usize {
    let widths = positions.iter().map(|position| position.targets.len());
    widths.max().unwrap_or(1)
}
