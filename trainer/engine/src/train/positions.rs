//! Live positions: those whose log-probabilities are needed.

use tch::{Device, TchError, Tensor};

use super::work::{TrainError, TrainOut, Work};
use crate::head::TopK;
use crate::loss::{Loss, Signal};
use crate::pack::{Row, to_i64};

/// A position that goes through the unembedding.
#[derive(Debug, Clone, Copy)]
pub(super) struct Live {
    /// Its place in the row.
    at: i64,
    sample: usize,
    position: usize,
}

/// The live positions of a row, in order.
pub(super) fn positions(work: &Work, row: &Row) -> Vec<Live> {
    let of_piece = |piece: &crate::pack::Piece| {
        let (sample, start) = (piece.sample, piece.start);
        let live = work.samples[sample].live_positions(work.loss.as_ref());
        live.into_iter().map(move |position| Live {
            at: to_i64(start + position),
            sample,
            position,
        })
    };
    row.pieces.iter().flat_map(of_piece).collect()
}

/// Places in the row, `[n]`, i64.
pub(super) fn rows(live: &[Live], device: Device) -> Result<Tensor, TchError> {
    let at: Vec<i64> = live.iter().map(|live| live.at).collect();
    Tensor::f_from_slice(&at)?.f_to_device(device)
}

/// Targets, `[n, k]`, i64. Samples may differ in K: `k` is the widest, and a row is filled up with
/// token 0, to which [`record`] gives slope 0.
pub(super) fn targets(live: &[Live], work: &Work, device: Device) -> Result<Tensor, TchError> {
    let k = width(live, work);
    let mut ids = Vec::with_capacity(live.len() * k);
    for live in live {
        let sample = &work.samples[live.sample];
        ids.extend_from_slice(&sample.target_ids[sample.at(live.position)]);
        ids.resize(ids.len() + k - sample.n_targets, 0);
    }
    Tensor::f_from_slice(&ids)?
        .f_view([to_i64(live.len()), to_i64(k)])?
        .f_to_device(device)
}

/// Writes log-probabilities and terms down and returns the slopes; both `[n, k]` as [`targets`].
///
/// # Errors
/// [`TrainError::NotFinite`].
pub(super) fn record(
    live: &[Live],
    work: &Work,
    logprobs: &[f32],
    out: &mut TrainOut,
) -> Result<Vec<f64>, TrainError> {
    let k = width(live, work);
    let mut slopes = vec![0.0; logprobs.len()];
    let rows = logprobs.chunks_exact(k).zip(slopes.chunks_exact_mut(k));
    for (live, (logprobs, slopes)) in live.iter().zip(rows) {
        let sample = &work.samples[live.sample];
        let range = sample.at(live.position);
        let logprobs = &logprobs[..sample.n_targets];
        out.logprobs[live.sample][range.clone()].copy_from_slice(logprobs);
        let Some(loss) = &work.loss else {
            out.n_targets += sample.n_targets;
            continue;
        };
        for ((&l, &signal), slope) in logprobs.iter().zip(&sample.signals[range]).zip(slopes) {
            *slope = add_term(loss, live, l, signal, out)?;
        }
    }
    Ok(slopes)
}

/// Adds one term and returns its slope.
fn add_term(
    loss: &Loss,
    live: &Live,
    logprob: f32,
    signal: Signal,
    out: &mut TrainOut,
) -> Result<f64, TrainError> {
    let term = loss.term(f64::from(logprob), signal);
    if !(term.loss.is_finite() && term.slope.abs() <= f64::from(f32::MAX)) {
        return Err(TrainError::NotFinite {
            loss: loss.name(),
            datum: live.sample,
            position: live.position,
            logprob,
            sampled: signal.sampled,
        });
    }
    out.loss += term.loss;
    out.n_targets += usize::from(!loss.is_silent(signal));
    Ok(term.slope)
}

/// Appends the likeliest tokens of a chunk; positions of a sample come in order.
pub(super) fn record_top(live: &[Live], k: usize, top: &TopK, out: &mut TrainOut) {
    let rows = top.ids.chunks_exact(k).zip(top.logprobs.chunks_exact(k));
    for (live, (ids, logprobs)) in live.iter().zip(rows) {
        let of_sample = &mut out.top[live.sample];
        of_sample.ids.extend_from_slice(ids);
        of_sample.logprobs.extend_from_slice(logprobs);
    }
}

fn width(live: &[Live], work: &Work) -> usize {
    live.iter()
        .map(|live| work.samples[live.sample].n_targets)
        .max()
        .unwrap_or(1)
}
