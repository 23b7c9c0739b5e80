//! The gated delta rule: of single positions, and of pieces of many.

use tch::{Kind, Tensor};

use super::plan::Pieces;
use crate::torch::{Result, split};

/// Positions in pieces, by head; all f32.
#[derive(Debug)]
pub(super) struct Steps {
    /// Of length `1 / sqrt(k_dim)`, `[n, h, c, k]`.
    pub(super) q: Tensor,
    /// Of length 1, as `q`.
    pub(super) k: Tensor,
    /// `[n, h, c, v]`.
    pub(super) v: Tensor,
    /// `[n, h, c, 1]`.
    pub(super) beta: Tensor,
    /// The logarithm of the decay, `[n, h, c]`.
    pub(super) g: Tensor,
}

/// One position of each of several sequences, as the rule is written down. The states, `[n, h, k, v]`, are nobody else's.
///
/// Returns `[n, h, 1, v]` and the states; inference only.
pub(super) fn of_singles(steps: &Steps, mut states: Tensor) -> Result<(Tensor, Tensor)> {
    let decay = steps.g.f_exp()?.f_unsqueeze(-1)?;
    let _decayed = states.f_mul_(&decay)?;
    let known = steps.k.f_matmul(&states)?;
    let new = steps.v.f_sub(&known)?.f_mul(&steps.beta)?;
    let _sum = states.f_add_(&steps.k.f_transpose(2, 3)?.f_mul(&new)?)?;
    Ok((steps.q.f_matmul(&states)?, states))
}

/// Pieces of positions, in which all that does not depend on the state is computed for all at once: what the positions of a piece
/// do to one another is a triangular system (<https://arxiv.org/abs/2406.06484>, with decay <https://arxiv.org/abs/2412.06464>). Pieces then
/// go on from the state of their parent, all of one depth at once. Differentiable.
///
/// Returns `[n, h, c, v]`, and the states that are left, in the order of the plan.
pub(super) fn of_pieces(steps: &Steps, past: &Tensor, pieces: &Pieces) -> Result<(Tensor, Tensor)> {
    let Steps { q, k, v, beta, g } = steps;
    let sums = g.f_cumsum(-1, Kind::Float)?;
    let between = sums.f_unsqueeze(-1)?.f_sub(&sums.f_unsqueeze(-2)?)?;
    let later = Tensor::f_ones([pieces.len, pieces.len], (Kind::Bool, q.device()))?.f_triu(1)?;
    let decays = between.f_masked_fill(&later, f64::NEG_INFINITY)?.f_exp()?;
    let since_start = sums.f_exp()?.f_unsqueeze(-1)?;
    let last = sums.f_narrow(-1, pieces.len - 1, 1)?;
    let to_end = last.f_sub(&sums)?.f_exp()?.f_unsqueeze(-1)?;

    let (k_beta, keys) = (k.f_mul(beta)?, k.f_transpose(2, 3)?);
    let system = k_beta.f_matmul(&keys)?.f_mul(&decays)?;
    let (k_dim, v_dim) = (k.size4()?.3, v.size4()?.3);
    let right = Tensor::f_cat(&[v.f_mul(beta)?, k_beta.f_mul(&since_start)?], -1)?;
    let solved = system.f_linalg_solve_triangular(&right, false, true, true)?;
    let [values, reads] = split(&solved, [v_dim, k_dim], -1)?;
    let among = q.f_matmul(&keys)?.f_mul(&decays)?;
    let from_state = q.f_mul(&since_start)?;
    let to_state = k.f_mul(&to_end)?.f_transpose(2, 3)?;
    let decay = last.f_exp()?.f_unsqueeze(-1)?;

    let levels = |x: &Tensor| x.f_split_with_sizes(pieces.sizes.as_slice(), 0);
    let (values, reads, among) = (levels(&values)?, levels(&reads)?, levels(&among)?);
    let (from_state, to_state) = (levels(&from_state)?, levels(&to_state)?);
    let decay = levels(&decay)?;
    let (mut mixed, mut left) = (Vec::new(), Vec::new());
    let mut ends = past.shallow_clone();
    for (i, level) in pieces.levels.iter().enumerate() {
        let states = ends.f_index_select(0, &level.parents)?;
        let new = values[i].f_sub(&reads[i].f_matmul(&states)?)?;
        let own = among[i].f_matmul(&new)?;
        mixed.push(from_state[i].f_matmul(&states)?.f_add(&own)?);
        ends = states
            .f_mul(&decay[i])?
            .f_add(&to_state[i].f_matmul(&new)?)?;
        if let Some(which) = &level.left {
            left.push(ends.f_index_select(0, which)?);
        }
    }
    let left = if left.is_empty() {
        past.f_narrow(0, 0, 0)?
    } else {
        Tensor::f_cat(&left, 0)?.f_index_select(0, &pieces.order)?
    };
    Ok((Tensor::f_cat(&mixed, 0)?, left))
}
