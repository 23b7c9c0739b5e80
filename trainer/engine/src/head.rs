//! From hidden states to log-probabilities and back, a few positions at a time.
//!
//! A vocabulary is 50,000 to 150,000 wide: `[N, vocab]` in f32 would be the largest tensor of a step by
//! far, so it never exists whole. Nothing here uses autograd: the gradient of a log-softmax is one line.
//!
//! Axes: `n` positions of a chunk, `k` targets each, `d` hidden, `v` vocabulary.

use tch::{Kind, TchError, Tensor};

use crate::lora::{HeadLora, Segment};
use crate::matrix::Matrix;
use crate::torch::Result;

/// Log-probabilities of a chunk over the whole vocabulary.
#[derive(Debug)]
pub struct LogProbs {
    /// `[n, v]`, f32.
    all_nv: Tensor,
    /// The cap of the logits, and their log-sum-exps, `[n, 1]`, if they are capped.
    capped: Option<(f64, Tensor)>,
}

/// The likeliest tokens at some positions, likeliest first.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TopTokens {
    /// `[n, k]`, row-major.
    pub ids: Vec<u32>,
    /// `[n, k]`.
    pub logprobs: Vec<f32>,
}

/// Logits that are computed again in f32 where the model's dtype is narrower.
const N_EXACT: i64 = 64;

struct Adapted<'a> {
    start: i64,
    len: i64,
    head: &'a HeadLora,
    low_mr: Tensor,
}

/// Logits, f32: of all tokens in the dtype of the LM head, and of the likeliest ones once more in f32. Of a few rows on a CPU
/// all logits are computed in f32 at once.
///
/// From 16 on, numbers are 0.125 apart in bf16: enough to turn a close choice, and to make the
/// log-probabilities of sampling and of training disagree. The likeliest tokens hold nearly all of the
/// probability, and their rows are little to read beside the whole LM head. Adapters of the LM head are in f32. With a `cap`
/// logits are `cap * tanh(logit / cap)`.
///
/// # Shapes
/// `hidden_nd`: `[n, d]`, after the last norm, f32. `lm_head_vd`: `[v, d]`, the LM head, any float dtype. `adapters`: which
/// rows of `hidden_nd` have which; rows that none names have the base's logits. Returns `[n, v]`, f32.
///
/// # Errors
/// What libtorch refuses.
pub fn logits(
    hidden_nd: &Tensor,
    lm_head_vd: &Matrix,
    adapters: &[Segment<'_>],
    cap: Option<f64>,
) -> Result<Tensor> {
    let mut logits_nv = uncapped(hidden_nd, lm_head_vd, adapters)?;
    if let Some(cap) = cap {
        logits_nv = logits_nv.f_div_scalar_(cap)?.f_tanh_()?.f_mul_scalar(cap)?;
    }
    Ok(logits_nv)
}

fn uncapped(hidden_nd: &Tensor, lm_head_vd: &Matrix, adapters: &[Segment<'_>]) -> Result<Tensor> {
    let adapted = adapters
        .iter()
        .filter_map(|segment| Adapted::of_segment(hidden_nd, segment));
    let adapted: Vec<Adapted<'_>> = adapted.collect::<Result<_, _>>()?;
    let kind = lm_head_vd.kind()?;
    let exact_nv = lm_head_vd.few_rows(hidden_nd)?;
    let is_exact = kind == Kind::Float || exact_nv.is_some();
    let rough_nv = match exact_nv {
        Some(exact_nv) => exact_nv,
        None => lm_head_vd
            .product(&hidden_nd.f_to_kind(kind)?, None)?
            .f_to_kind(Kind::Float)?,
    };
    for part in &adapted {
        part.head.add_to(&part.low_mr, part.rows(&rough_nv)?)?;
    }
    if is_exact {
        return Ok(rough_nv);
    }
    let (n, v) = rough_nv.size2()?;
    let k = N_EXACT.min(v);
    let (_, ids_nk) = rough_nv.f_topk(k, -1, true, false)?;
    let rows = lm_head_vd.rows(&ids_nk.f_reshape([-1])?)?;
    let rows_nkd = rows.f_view([n, k, -1])?;
    let exact_nk = rows_nkd
        .f_bmm(&hidden_nd.f_unsqueeze(-1)?)?
        .f_squeeze_dim(-1)?;
    for part in &adapted {
        let delta_mk = part.head.of_tokens(&part.low_mr, &part.rows(&ids_nk)?)?;
        let _sum = part.rows(&exact_nk)?.f_add_(&delta_mk)?;
    }
    rough_nv.f_scatter(1, &ids_nk, &exact_nk)
}

/// The gradient by the hidden states, of the base alone.
///
/// # Shapes
/// `grad_nv`: `[n, v]`, f32, by the logits. `lm_head_vd`: `[v, d]`. Returns `[n, d]` in the dtype of `lm_head_vd`.
///
/// # Errors
/// What libtorch refuses.
pub fn backward(grad_nv: &Tensor, lm_head_vd: &Matrix) -> Result<Tensor> {
    grad_nv
        .f_to_kind(lm_head_vd.kind()?)?
        .f_matmul(&lm_head_vd.plain()?)
}

// === impl Adapted ===

impl<'a> Adapted<'a> {
    /// `None` where the rows' adapter has no part for the LM head.
    fn of_segment(
        hidden_nd: &Tensor,
        &Segment { start, len, lora }: &Segment<'a>,
    ) -> Option<Result<Self>> {
        let head = lora.head()?;
        let low_mr = hidden_nd
            .f_narrow(0, start, len)
            .and_then(|rows| head.low(&rows));
        Some(low_mr.map(|low_mr| Self {
            start,
            len,
            head,
            low_mr,
        }))
    }

    fn rows(&self, all: &Tensor) -> Result<Tensor> {
        all.f_narrow(0, self.start, self.len)
    }
}

// === impl LogProbs ===

impl LogProbs {
    /// Untempered, over the full vocabulary.
    ///
    /// # Shapes
    /// As [`logits`]: `[n, d]` f32, and `[v, d]` in any float dtype.
    ///
    /// # Errors
    /// What libtorch refuses.
    pub fn new(
        hidden_nd: &Tensor,
        lm_head_vd: &Matrix,
        adapters: &[Segment<'_>],
        cap: Option<f64>,
    ) -> Result<Self> {
        let logits_nv = logits(hidden_nd, lm_head_vd, adapters, cap)?;
        let all_nv = logits_nv.f_log_softmax(-1, Kind::Float)?;
        let sums = || logits_nv.f_logsumexp([-1i64].as_slice(), true);
        let capped = cap.map(|cap| Ok::<_, TchError>((cap, sums()?)));
        Ok(Self {
            all_nv,
            capped: capped.transpose()?,
        })
    }

    /// The log-probabilities of the targets, row-major.
    ///
    /// # Shapes
    /// `targets_nk`: `[n, k]`, i64. Returns `n * k` numbers, f32.
    ///
    /// # Errors
    /// When a target is beyond the vocabulary.
    pub fn of(&self, targets_nk: &Tensor) -> Result<Vec<f32>> {
        to_vec(&self.all_nv.f_gather(1, targets_nk, false)?)
    }

    /// The `k` likeliest tokens at each position.
    ///
    /// # Errors
    /// When `k` is over the vocabulary.
    pub fn top(&self, k: usize) -> Result<TopTokens> {
        let k = i64::try_from(k).unwrap_or(i64::MAX);
        let (logprobs, ids) = self.all_nv.f_topk(k, -1, true, true)?;
        let ids = Vec::<i64>::try_from(&ids.f_reshape([-1])?)?;
        let ids = ids
            .into_iter()
            .map(|id| u32::try_from(id).unwrap_or(u32::MAX));
        Ok(TopTokens {
            ids: ids.collect(),
            logprobs: to_vec(&logprobs)?,
        })
    }

    /// The gradient of `sum(gradients * log-probabilities of targets)` by the logits: the gradient at each target minus
    /// `softmax * sum of the position's gradients`.
    ///
    /// # Shapes
    /// `targets_nk`: `[n, k]`, i64. `gradients_nk`: `[n, k]`, f32. Returns `[n, v]`, f32.
    ///
    /// # Errors
    /// What libtorch refuses.
    pub fn gradient(self, targets_nk: &Tensor, gradients_nk: &Tensor) -> Result<Tensor> {
        let total_n1 = gradients_nk.f_sum_dim_intlist([-1i64].as_slice(), true, Kind::Float)?;
        // This works in place, so that the largest tensor of a step is in memory once.
        let mut logits_nv = self.all_nv;
        // The derivative of the cap: 1 - tanh².
        let slope = |(cap, sums_n1): (f64, Tensor)| {
            let mut tanh_nv = logits_nv.f_add(&sums_n1)?.f_div_scalar_(cap)?;
            tanh_nv.f_square_()?.f_neg_()?.f_add_scalar_(1.0)
        };
        let slope_nv = self.capped.map(slope).transpose()?;
        let mut logits_nv = logits_nv.f_exp_()?.f_mul_(&total_n1.f_neg()?)?;
        let mut grad_nv = logits_nv.f_scatter_add_(1, targets_nk, gradients_nk)?;
        match slope_nv {
            Some(slope_nv) => grad_nv.f_mul_(&slope_nv),
            None => Ok(grad_nv),
        }
    }
}

fn to_vec(tensor: &Tensor) -> Result<Vec<f32>> {
    Vec::<f32>::try_from(&tensor.f_reshape([-1])?)
}

#[cfg(test)]
mod tests;
