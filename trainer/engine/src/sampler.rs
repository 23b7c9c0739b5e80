//! The next token of several sequences at once, each with both of its log-probabilities.
//!
//! Training needs two numbers for every token: what the untouched model gives it at temperature 1 over the
//! whole vocabulary (both sides of a ratio are computed so), and what it was drawn with. The order
//! is vLLM's: `min_tokens`, penalties, temperature, `min_p`, top-k, top-p.
//!
//! Axes: `n` sequences, `v` vocabulary. All of it is computed where the logits are, and read back once.

mod counts;
mod cut;
mod penalty;
mod sequence;

use tch::{Kind, TchError, Tensor};

pub use self::sequence::SequenceSampler;
use self::sequence::column;
use crate::torch::Result;
pub use metaclaw_trainer_terms::{ParamError, SamplingParams};

/// First look at the likeliest tokens: nearly always holds all that top-p keeps.
const FIRST_LOOK: i64 = 512;

/// Why no token could be drawn.
#[derive(Debug, thiserror::Error)]
pub enum SampleError {
    /// A damaged adapter or an overflow.
    #[error("the model's logits are not finite: the adapter or the weights are damaged")]
    NotFinite,
    #[error("libtorch: {0}")]
    Torch(#[from] TchError),
}

/// A token as it was drawn.
#[derive(Debug, Clone, PartialEq)]
pub struct DrawnToken {
    pub id: u32,
    /// Natural logarithm of its probability at temperature 1 over the whole vocabulary.
    pub logprob: f32,
    /// The log-probability under the distribution that was sampled from: after penalties, temperature and cuts,
    /// renormalised.
    pub sampling_logprob: f32,
    /// The likeliest tokens with their `logprob`, as many as the request asks for.
    pub top: Vec<(u32, f32)>,
}

/// Draws one token for each sequence.
///
/// # Shapes
/// `logits_nv`: `[n, v]`, f32, a row for each sampler. Returns `n` tokens.
///
/// # Errors
/// What libtorch refuses; of a sequence [`SampleError::NotFinite`] when there is a NaN or infinity among its logits.
pub fn sample(
    logits_nv: &Tensor,
    samplers: &[&SequenceSampler],
) -> Result<Vec<Result<DrawnToken, SampleError>>> {
    let (n, v) = logits_nv.size2()?;
    let raw_nv = logits_nv.f_log_softmax(-1, Kind::Float)?;
    let adjusted_nv = penalty::adjust(logits_nv, samplers)?;
    let n_top = samplers.iter().map(|s| s.params.top_logprobs).max();
    let n_top = i64::try_from(n_top.unwrap_or(0)).unwrap_or(0).min(v);
    let mut look = FIRST_LOOK;
    loop {
        let draw = match &adjusted_nv {
            Some(adjusted_nv) => draw(adjusted_nv, None, samplers, look)?,
            None => draw(logits_nv, Some(&raw_nv), samplers, look)?,
        };
        let mut columns = vec![
            draw.ids.f_to_kind(Kind::Double)?,
            raw_nv
                .f_gather(1, &draw.ids, false)?
                .f_to_kind(Kind::Double)?,
            draw.logprobs.f_to_kind(Kind::Double)?,
            draw.is_short.f_to_kind(Kind::Double)?,
        ];
        if n_top > 0 {
            let (logprobs, ids) = raw_nv.f_topk(n_top, -1, true, true)?;
            columns.push(ids.f_to_kind(Kind::Double)?);
            columns.push(logprobs.f_to_kind(Kind::Double)?);
        }
        let table = Tensor::f_cat(&columns, 1)?.f_reshape([-1])?;
        let table = Vec::<f64>::try_from(&table)?;
        let rows = table.chunks_exact(table.len() / usize::try_from(n).unwrap_or(1).max(1));
        if look < v && rows.clone().any(|row| row[3] > 0.0) {
            look = v;
            continue;
        }
        return Ok(rows.zip(samplers).map(|(row, s)| token(row, s)).collect());
    }
}

/// The tensors of one draw, `[n, 1]` each.
struct DrawTensors {
    ids: Tensor,
    /// The log-probabilities as drawn, f32.
    logprobs: Tensor,
    /// Above 0 where the look at the likeliest tokens was too short.
    is_short: Tensor,
}

/// `log_softmax_nv`: that of the logits, if it is there already.
fn draw(
    logits_nv: &Tensor,
    log_softmax_nv: Option<&Tensor>,
    samplers: &[&SequenceSampler],
    look: i64,
) -> Result<DrawTensors> {
    let device = logits_nv.device();
    let likeliest_n1 = logits_nv.f_argmax(-1, true)?;
    let zeros_n1 = Tensor::f_zeros(likeliest_n1.size(), (Kind::Float, device))?;
    if samplers.iter().all(|s| s.is_greedy()) {
        return Ok(DrawTensors {
            ids: likeliest_n1,
            logprobs: zeros_n1.shallow_clone(),
            is_short: zeros_n1,
        });
    }
    let heat = |s: &&SequenceSampler| {
        if s.is_greedy() {
            1.0
        } else {
            s.params.temperature
        }
    };
    #[expect(
        clippy::float_cmp,
        reason = "1 is the absence of a temperature, not a result"
    )]
    let is_untempered = samplers.iter().all(|s| heat(s) == 1.0);
    let tempered_nv = match log_softmax_nv {
        Some(log_softmax_nv) if is_untempered => log_softmax_nv.shallow_clone(),
        _ => {
            let heat_n1 = column(samplers.iter().map(heat), device)?.f_to_kind(Kind::Float)?;
            logits_nv.f_div(&heat_n1)?.f_log_softmax(-1, Kind::Float)?
        }
    };
    let (kept_nv, short_n1) = cut::cut(tempered_nv, samplers, look)?;
    // Sums in f64, so that they end at 1 over a large vocabulary and no tail token is lost.
    let sums_nv = kept_nv.f_exp()?.f_cumsum(-1, Kind::Double)?;
    let v = sums_nv.size2()?.1;
    let points_n1 = column(samplers.iter().map(|s| s.point()), device)?;
    let points_n1 = points_n1.f_mul(&sums_nv.f_narrow(1, v - 1, 1)?)?;
    let drawn_n1 = points_n1
        .f_searchsorted(&sums_nv, false, true, "right", None::<Tensor>)?
        .f_clamp_max(v - 1)?;
    let greedy = samplers.iter().map(|s| f64::from(u8::from(s.is_greedy())));
    let greedy_n1 = column(greedy, device)?;
    let greedy_n1 = greedy_n1.f_gt(0.5)?;
    let ids_n1 = likeliest_n1.f_where_self(&greedy_n1, &drawn_n1)?;
    let logprobs_n1 = kept_nv.f_gather(1, &ids_n1, false)?;
    Ok(DrawTensors {
        logprobs: zeros_n1.f_where_self(&greedy_n1, &logprobs_n1)?,
        ids: ids_n1,
        is_short: short_n1,
    })
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "ids are whole and small, log-probabilities are f32 to callers"
)]
fn token(row: &[f64], sampler: &SequenceSampler) -> Result<DrawnToken, SampleError> {
    let [id, logprob, sampling_logprob, _, top @ ..] = row else {
        return Err(SampleError::NotFinite);
    };
    if !logprob.is_finite() || !sampling_logprob.is_finite() {
        return Err(SampleError::NotFinite);
    }
    let (ids, logprobs) = top.split_at(top.len() / 2);
    let pairs = ids.iter().zip(logprobs).take(sampler.params.top_logprobs);
    Ok(DrawnToken {
        id: *id as u32,
        logprob: *logprob as f32,
        sampling_logprob: *sampling_logprob as f32,
        top: pairs
            .map(|(&id, &logprob)| (id as u32, logprob as f32))
            .collect(),
    })
}

#[cfg(test)]
mod tests;
