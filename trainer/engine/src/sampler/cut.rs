//! `min_p`, top-k and top-p: what they keep, renormalised.

use tch::{Device, Kind, Tensor};

use super::sequence::{SequenceSampler, column};
use crate::torch::Result;

/// Cuts the rows that ask for it; the likeliest `look` tokens are looked at.
///
/// # Shapes
/// `logprobs_nv`: `[n, v]`, f32, normalised; returns the same, minus infinity where cut, and `[n, 1]`, f32, above 0 where
/// top-p would keep more than the look.
pub(super) fn cut(
    logprobs_nv: Tensor,
    samplers: &[&SequenceSampler],
    look: i64,
) -> Result<(Tensor, Tensor)> {
    let v = logprobs_nv.size2()?.1;
    let top_k = |s: &SequenceSampler| match i64::try_from(s.params.top_k).unwrap_or(v) {
        k if k == 0 || k > v => v,
        k => k,
    };
    let device = logprobs_nv.device();
    let mut kept_nv = logprobs_nv;
    let mut short_n1 = Tensor::f_zeros([kept_nv.size2()?.0, 1], (Kind::Float, device))?;
    if let Some((which, rows)) = rows(samplers, device, |s| s.params.min_p > 0.0)? {
        let floors = column(rows.iter().map(|s| s.params.min_p.ln()), device)?;
        let cut = above_floor(&kept_nv.f_index_select(0, &which)?, &floors)?;
        kept_nv = kept_nv.f_index_copy(0, &which, &cut)?;
    }
    let is_cut = |s: &SequenceSampler| s.params.top_p < 1.0 || top_k(s) < v;
    if let Some((which, rows)) = rows(samplers, device, is_cut)? {
        let limits = CutLimits {
            look: rows
                .iter()
                .map(|s| top_k(s))
                .filter(|&k| k < v)
                .fold(look, i64::max)
                .min(v),
            top_k_m1: column(rows.iter().map(|s| top_k(s) as f64), device)?,
            top_p_m1: column(rows.iter().map(|s| s.params.top_p), device)?,
        };
        let (cut, short) = limits.likeliest(&kept_nv.f_index_select(0, &which)?)?;
        kept_nv = kept_nv.f_index_copy(0, &which, &cut)?;
        short_n1 = short_n1.f_index_copy(0, &which, &short)?;
    }
    Ok((kept_nv, short_n1))
}

/// The rows that ask for something, and their places, `[m]`, i64; `None` when there are none.
fn rows<'a>(
    samplers: &[&'a SequenceSampler],
    device: Device,
    asks: impl Fn(&SequenceSampler) -> bool,
) -> Result<Option<(Tensor, Vec<&'a SequenceSampler>)>> {
    let asking = (0_i64..)
        .zip(samplers)
        .filter(|(_, s)| !s.is_greedy() && asks(s));
    let (which, rows): (Vec<i64>, Vec<&SequenceSampler>) = asking.map(|(i, s)| (i, *s)).unzip();
    if rows.is_empty() {
        return Ok(None);
    }
    let which = Tensor::f_from_slice(&which)?.f_to_device(device)?;
    Ok(Some((which, rows)))
}

/// `min_p`: keeps tokens with at least this share of the likeliest token's probability.
fn above_floor(logprobs_mv: &Tensor, log_shares_m1: &Tensor) -> Result<Tensor> {
    let floors_m1 = logprobs_mv
        .f_amax([-1i64].as_slice(), true)?
        .f_add(log_shares_m1)?;
    let out = logprobs_mv.f_lt_tensor(&floors_m1)?;
    logprobs_mv
        .f_masked_fill(&out, f64::NEG_INFINITY)?
        .f_log_softmax(-1, Kind::Float)
}

struct CutLimits {
    /// How many of the likeliest tokens are looked at; at least every top-k.
    look: i64,
    /// `v` where off.
    top_k_m1: Tensor,
    /// 1 where off.
    top_p_m1: Tensor,
}

impl CutLimits {
    fn likeliest(&self, logprobs_mv: &Tensor) -> Result<(Tensor, Tensor)> {
        let (m, v) = logprobs_mv.size2()?;
        let device = logprobs_mv.device();
        let (kept_mk, ids_mk) = logprobs_mv.f_topk(self.look, -1, true, true)?;
        let ranks_1k = Tensor::f_arange(self.look, (Kind::Double, device))?.f_unsqueeze(0)?;
        let in_top_k = ranks_1k.f_lt_tensor(&self.top_k_m1)?;
        let probs_mk = kept_mk.f_exp()?.f_to_kind(Kind::Double)?.f_mul(&in_top_k)?;
        let sums_mk = probs_mk.f_cumsum(-1, Kind::Double)?;
        let held_m1 = sums_mk.f_narrow(1, self.look - 1, 1)?;
        let no_top_k = self.top_k_m1.f_ge(v as f64)?;
        let whole_m1 = held_m1.f_ones_like()?.f_where_self(&no_top_k, &held_m1)?;
        let limits_m1 = self.top_p_m1.f_mul(&whole_m1)?;
        // A token is kept while those before it do not hold enough; sums may end below 1 by rounding.
        let enough = sums_mk.f_sub(&probs_mk)?.f_ge_tensor(&limits_m1)?;
        let enough = enough.f_logical_and(&self.top_p_m1.f_lt(1.0)?)?;
        let out = in_top_k.f_logical_not()?.f_logical_or(&enough)?;
        let kept_mk = kept_mk.f_masked_fill(&out, f64::NEG_INFINITY)?;
        let none_mv = Tensor::f_full([m, v], f64::NEG_INFINITY, (Kind::Float, device))?;
        let cut_mv = none_mv
            .f_scatter(1, &ids_mk, &kept_mk)?
            .f_log_softmax(-1, Kind::Float)?;
        let short = held_m1.f_lt_tensor(&limits_m1)?.f_logical_and(&no_top_k)?;
        Ok((cut_mv, short.f_to_kind(Kind::Float)?))
    }
}
