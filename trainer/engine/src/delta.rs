//! Gated delta nets: mixers whose past is a state of fixed size in place of keys and values.
//!
//! A head has a state `S`, `[k_dim, v_dim]`. A position lets it decay, and replaces what it has for the key by a part of the value:
//! `S = exp(g) S; S = S + k (β (v - Sᵀk))ᵀ; o = Sᵀq / sqrt(k_dim)` (<https://arxiv.org/abs/2412.06464>). Queries, keys and values come
//! from a short convolution over positions. States are f32. Which positions go on from which is a [`DeltaPlan`]: whole rows, packed
//! samples, branches of a tree and served sequences are all computed by the same code.
//!
//! Axes: `t` positions, `n` pieces of `c` positions, `h` value heads, `k` and `v` sizes of heads.

mod plan;
mod rule;

use tch::{Device, Kind, TchError, Tensor};

pub use self::plan::{Before, DeltaPlan, Run};
use self::rule::Steps;
use crate::linear::{LayerAdapters, Linear};
use crate::model_config::DeltaSpec;
use crate::torch::{Result, split};

/// Base weights of a gated delta net.
#[derive(Debug)]
pub struct DeltaNet {
    pub spec: DeltaSpec,
    /// Decay, strength, the input of the convolution and the gate: `a`, `b`, `qkv`, `z`.
    pub input: Linear,
    pub out: Linear,
    /// The convolution's weights, the oldest position first, `[kernel, qkv]`, f32.
    pub taps: Tensor,
    /// Minus `exp(A_log)`, `[h]`, f32.
    pub rate: Tensor,
    /// `[h]`, f32.
    pub dt_bias: Tensor,
    /// RMSNorm of each head's output, `[v_dim]`, f32.
    pub norm: Tensor,
}

/// What positions go on from, or leave behind.
#[derive(Debug)]
pub struct DeltaPast {
    /// `[n, h, k_dim, v_dim]`, f32.
    pub states: Tensor,
    /// The newest inputs of the convolution of each, `[n * (kernel - 1), qkv]`, the engine's dtype.
    pub tails: Tensor,
}

/// `x * rsqrt(sum x² + ε)`, as fla has it.
const EPS: f64 = 1e-6;

// === impl DeltaNet ===

impl DeltaNet {
    /// The past of a text's first position: zeros.
    ///
    /// # Errors
    /// What libtorch reports.
    pub fn beginning(&self, device: Device) -> Result<DeltaPast> {
        let spec = &self.spec;
        let states = [1, spec.n_v_heads, spec.k_dim, spec.v_dim];
        let kind = self.input.weight.kind()?;
        Ok(DeltaPast {
            states: Tensor::f_zeros(states, (Kind::Float, device))?,
            tails: Tensor::f_zeros([spec.kernel - 1, spec.qkv()], (kind, device))?,
        })
    }

    /// Mixes positions, and gives what those leave behind from which others go on. Differentiable, also with respect to the past,
    /// unless the plan has single positions alone.
    ///
    /// # Shapes
    /// `normed`: `[b, t, d]`, the engine's dtype; the plan counts all `b * t` positions. Returns `[b, t, values]` in that dtype.
    ///
    /// # Errors
    /// What libtorch reports, such as a plan of another batch.
    pub fn mix(
        &self,
        normed: &Tensor,
        adapters: LayerAdapters<'_>,
        past: &DeltaPast,
        plan: &DeltaPlan,
        eps: f64,
    ) -> Result<(Tensor, DeltaPast)> {
        let spec = &self.spec;
        let (b, t, _) = normed.size3()?;
        let (h, values) = (spec.n_v_heads, spec.values());
        let all = self.input.forward(normed, adapters)?.f_view([b * t, -1])?;
        let [decay, strength, qkv, gate] = split(&all, [h, h, spec.qkv(), values], -1)?;
        let wide = |x: &Tensor| x.f_to_kind(Kind::Float);
        let g = wide(&decay)?.f_add(&self.dt_bias)?.f_softplus()?;
        let g = g.f_mul(&self.rate)?;
        let beta = wide(&strength)?.f_sigmoid()?;
        let source = Tensor::f_cat(&[&past.tails, &qkv], 0)?;
        let qkv = self.convolved(&wide(&source)?, plan)?;
        let steps = Tensor::f_cat(&[qkv, beta, g], -1)?;
        let (mixed, states) = match plan.pieces() {
            None => {
                let steps = self.steps(&steps.f_unsqueeze(1)?)?;
                rule::of_singles(&steps, past.states.f_index_select(0, plan.first())?)?
            }
            Some(pieces) => {
                let padded = steps.f_constant_pad_nd([0, 0, 0, 1])?;
                let steps = padded.f_index_select(0, &pieces.places)?;
                let steps = steps.f_view([-1, pieces.len, steps.size2()?.1])?;
                rule::of_pieces(&self.steps(&steps)?, &past.states, pieces)?
            }
        };
        // [n, h, c, v] to [t, h, v].
        let mixed = mixed.f_transpose(1, 2)?.f_reshape([-1, h, spec.v_dim])?;
        let mixed = match plan.pieces() {
            Some(pieces) => mixed.f_index_select(0, &pieces.back)?,
            None => mixed,
        };
        let normed = mixed.f_rms_norm([spec.v_dim], Some(&self.norm), eps)?;
        let gated = normed.f_mul(&wide(&gate)?.f_silu()?.f_view([-1, h, spec.v_dim])?)?;
        let kind = self.input.weight.kind()?;
        let left = DeltaPast {
            states,
            tails: source.f_index_select(0, plan.tails())?,
        };
        Ok((gated.f_to_kind(kind)?.f_view([b, t, values])?, left))
    }

    /// The convolution over positions and its activation, `[t, qkv]`. `source`: the pasts' tails, then the positions.
    fn convolved(&self, source: &Tensor, plan: &DeltaPlan) -> Result<Tensor> {
        let mut sum: Option<Tensor> = None;
        for (places, weight) in plan.taps().iter().zip(self.taps.f_unbind(0)?) {
            let seen = source.f_index_select(0, places)?;
            sum = Some(match sum {
                None => seen.f_mul(&weight)?,
                Some(sum) => sum.f_addcmul(&seen, &weight)?,
            });
        }
        let none = || TchError::Torch("a convolution over no positions".into());
        sum.ok_or_else(none)?.f_silu()
    }

    /// The numbers of positions in pieces, `[n, c, *]`, by head.
    #[expect(
        clippy::many_single_char_names,
        reason = "the axes and the three projections are called so everywhere"
    )]
    fn steps(&self, all: &Tensor) -> Result<Steps> {
        let spec = &self.spec;
        let (n, c, _) = all.size3()?;
        let (h, keys) = (spec.n_v_heads, spec.keys());
        let [q, k, v, beta, g] = split(all, [keys, keys, spec.values(), h, h], -1)?;
        let each = h / spec.n_k_heads;
        let normed = |x: &Tensor| {
            let x = x
                .f_view([n, c, spec.n_k_heads, spec.k_dim])?
                .f_transpose(1, 2)?;
            let squares = x.f_mul(&x)?;
            let sum = squares.f_sum_dim_intlist([-1i64].as_slice(), true, Kind::Float)?;
            let x = x.f_mul(&sum.f_add_scalar(EPS)?.f_rsqrt()?)?;
            let shape = [n, spec.n_k_heads, each, c, spec.k_dim];
            x.f_unsqueeze(2)?
                .f_expand(shape, false)?
                .f_reshape([n, h, c, spec.k_dim])
        };
        let heads = |x: Tensor| x.f_view([n, c, h, -1])?.f_transpose(1, 2);
        Ok(Steps {
            q: normed(&q)?.f_mul_scalar((spec.k_dim as f64).powf(-0.5))?,
            k: normed(&k)?,
            v: heads(v)?,
            beta: heads(beta)?,
            g: heads(g)?.f_squeeze_dim(-1)?,
        })
    }
}

#[cfg(test)]
mod tests;
