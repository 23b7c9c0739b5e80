//! Attention of packed rows over pages: exact, and without a mask.
//!
//! The cached positions of a sequence lie in a few runs of consecutive positions, and are read where they are. There are
//! four ways, and [`PagePlan`] chooses one for a batch:
//!
//! - On a GPU with flash attention, one call computes all sequences.
//! - On a CPU, new positions that are the only ones of their sequences have a kernel of our own
//!   ([`metaclaw_kernels::attend`]).
//! - Where that kernel does not run, their keys are copied side by side for one call, unless these are too many.
//! - Otherwise each run of a sequence is one call of the fused kernel on a view, and one causal call more computes how
//!   the new positions attend to one another. The results are joined by their log-sum-exps, which gives the same as
//!   attention over all of them at once (FlashAttention, <https://arxiv.org/abs/2205.14135>, section 3.1).

mod plan;
pub mod window;

use tch::{Device, Kind, Tensor};

pub use self::plan::{NewRows, PagePlan};
use self::plan::{Past, Reads, Singles};
use crate::aten::{self, Part};
use crate::few_rows;
use crate::kv::{LayerKv, PositionRun};
use crate::pack::to_i64;
use crate::torch::Result;

/// Writes the new keys and values to the pool, then lets every row attend to its own sequence.
///
/// # Shapes
/// `q`: `[1, t, n_heads, head_dim]`; `new`: keys and then values, `[1, t, 2 * n_kv_heads, head_dim]`, or none of them if the layer
/// whose pages these are has written them; both in the pool's dtype.
/// Returns `[1, t, n_heads * head_dim]` in that dtype.
///
/// # Errors
/// What libtorch reports, such as a slot beyond the pool.
pub fn paged([q, new]: [&Tensor; 2], kv: &mut LayerKv, plan: &PagePlan) -> Result<Tensor> {
    let (_, _, n_heads, e) = q.size4()?;
    let n_kv = kv.k.size3()?.0;
    let [q, mut new] = [q.f_select(0, 0)?, new.f_select(0, 0)?];
    let are_written = new.size3()?.1 == 0;
    if !are_written {
        kv.write(&new, &plan.slots)?;
    }
    let spans = match &plan.reads {
        Reads::Together(together) => {
            let positions_first = |x: &Tensor| match &together.gathered {
                Some(slots) => x.f_index_select(1, slots)?.f_transpose(0, 1),
                None => x.f_transpose(0, 1),
            };
            let (k, v) = (positions_first(&kv.k)?, positions_first(&kv.v)?);
            let call = aten::attention_of_sequences;
            let mixed = call([&q, &k, &v], &together.of, together.window)?;
            return mixed.f_reshape([1, -1, n_heads * e]);
        }
        Reads::Spans(spans) => spans,
        Reads::Few(pasts) => return few_rows::attention(&q, [&kv.k, &kv.v], pasts)?.f_unsqueeze(0),
        Reads::Singles(singles) => {
            let q = q.f_reshape([-1, n_kv, n_heads / n_kv, e])?;
            let mixed = over_singles(&q, kv, singles)?;
            return mixed.f_reshape([1, -1, n_heads * e]);
        }
    };
    if are_written {
        new = kv.at(&plan.slots)?;
    }
    let [k, v] = [0, n_kv].map(|first| new.f_narrow(1, first, n_kv));
    let (k, v) = (k?, v?);
    let mut rows = Vec::with_capacity(spans.len());
    for span in spans {
        let own = |x: &Tensor| x.f_narrow(0, span.row, span.len);
        // [t, heads, e] to [kv heads, query heads of each, t, e]: views.
        let q = own(&q)?.f_reshape([span.len, n_kv, n_heads / n_kv, e])?;
        let q = q.f_permute([1, 2, 0, 3])?;
        let mut parts = over_past(&q, kv, &span.past)?;
        let see_themselves = matches!(span.past, Past::Newest { .. });
        if span.len > 1 && !see_themselves {
            parts.push(among_themselves(&q, &own(&k)?, &own(&v)?)?);
        }
        let mixed = join(parts)?.f_permute([2, 0, 1, 3])?;
        rows.push(mixed.f_reshape([span.len, n_heads * e])?);
    }
    match rows.as_slice() {
        [one] => one.f_unsqueeze(0),
        _ => Tensor::f_cat(&rows, 0)?.f_unsqueeze(0),
    }
}

/// The result of one kernel call: `[n_kv_heads, group, t, head_dim]`, and the log-sum-exps of its scores, `[n_kv_heads,
/// group, t]`, f32.
type PartialAttention = (Tensor, Tensor);

/// Every row attends to the whole past, except in [`Past::Newest`]. The query heads of a key head are laid out as if they were
/// positions, so that keys and values are read once for all of them.
fn over_past(q_heads: &Tensor, kv: &LayerKv, past: &Past) -> Result<Vec<PartialAttention>> {
    let (n_kv, group, t, e) = q_heads.size4()?;
    let q = q_heads.f_reshape([1, n_kv, group * t, e])?;
    let call = |k: &Tensor, v: &Tensor| {
        let (out, lse) = flash(&q, &k.f_unsqueeze(0)?, &v.f_unsqueeze(0)?, None, false)?;
        let out = out.f_reshape([n_kv, group, t, e])?;
        Ok((out, lse.f_reshape([n_kv, group, t])?))
    };
    match past {
        Past::Runs(runs) => {
            let of_run = |run: &PositionRun| {
                let view = |x: &Tensor| x.f_narrow(1, to_i64(run.start), to_i64(run.len));
                call(&view(&kv.k)?, &view(&kv.v)?)
            };
            runs.iter().map(of_run).collect()
        }
        Past::Scattered(slots) => {
            let all = |x: &Tensor| x.f_index_select(1, slots);
            Ok(vec![call(&all(&kv.k)?, &all(&kv.v)?)?])
        }
        Past::Newest { slots, mask } => Ok(vec![over_newest(q_heads, kv, slots, mask)?]),
    }
}

/// Every row attends to its own past. `q`: `[n, n_kv_heads, group, head_dim]`. Returns the same shape.
fn over_singles(q: &Tensor, kv: &LayerKv, singles: &Singles) -> Result<Tensor> {
    let (n, n_kv, _, e) = q.size4()?;
    let all = |x: &Tensor| {
        let x = x.f_index_select(1, &singles.slots)?;
        x.f_view([n_kv, n, singles.longest, e])?
            .f_permute([1, 0, 2, 3])
    };
    let (mixed, _) = flash(q, &all(&kv.k)?, &all(&kv.v)?, Some(&singles.mask), false)?;
    Ok(mixed)
}

/// Each row attends to the positions that `mask` allows it. Key heads are laid out as in [`among_themselves`].
fn over_newest(
    q: &Tensor,
    kv: &LayerKv,
    slots: &Tensor,
    mask: &Tensor,
) -> Result<PartialAttention> {
    let (n_kv, group, _, e) = q.size4()?;
    let repeated = |x: &Tensor| {
        let x = x.f_index_select(1, slots)?;
        let s = x.size3()?.1;
        x.f_unsqueeze(1)?.f_expand([n_kv, group, s, e], false)
    };
    flash(q, &repeated(&kv.k)?, &repeated(&kv.v)?, Some(mask), false)
}

/// New positions attend to themselves and to the new positions before them. Here the key heads are the batch, and each
/// is repeated for its query heads by a stride of 0.
#[expect(
    clippy::many_single_char_names,
    reason = "the axes and the three projections are called so everywhere"
)]
fn among_themselves(q: &Tensor, k: &Tensor, v: &Tensor) -> Result<PartialAttention> {
    let (n_kv, group, t, e) = q.size4()?;
    let repeated = |x: &Tensor| {
        let x = x.f_permute([1, 0, 2])?.f_unsqueeze(1)?;
        x.f_expand([n_kv, group, t, e], false)
    };
    flash(q, &repeated(k)?, &repeated(v)?, None, true)
}

fn flash(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    mask: Option<&Tensor>,
    causal: bool,
) -> Result<PartialAttention> {
    if q.device() == Device::Cpu {
        let call = Tensor::f_internal_scaled_dot_product_flash_attention_for_cpu;
        return call(q, k, v, 0.0, causal, mask, None);
    }
    // On a GPU this is the kernel that also supports f32. Its mask must have the shape and the dtype of the scores, and its
    // log-sum-exps are padded to whole blocks of rows.
    let (rows, heads, positions, _) = q.size4()?;
    let longest = k.size4()?.2;
    let wide = |mask: &Tensor| {
        let mask = mask.f_to_kind(q.f_kind()?)?;
        mask.f_expand([rows, heads, positions, longest], false)
    };
    let mask = mask.map(wide).transpose()?;
    let call = Tensor::f_internal_scaled_dot_product_efficient_attention;
    let (out, lse, _, _) = call(q, k, v, mask, true, 0.0, causal, None)?;
    Ok((out, lse.f_narrow(2, 0, positions)?))
}

/// Attention of whole rows among themselves, or of a chunk over what it sees; differentiable.
///
/// # Shapes
/// `q`: `[b, n_heads, t, e]`, `k` and `v`: `[b, n_kv_heads, s, e]`; `mask`: added to the scores, broadcastable to
/// `[b, n_heads, t, s]`, or the plain triangle; all in one dtype. Returns `[b, t, n_heads * e]` in that dtype.
///
/// # Errors
/// What libtorch reports.
#[expect(
    clippy::many_single_char_names,
    reason = "the axes and the three projections are called so everywhere"
)]
pub fn whole([q, k, v]: [&Tensor; 3], mask: Option<&Tensor>) -> Result<Tensor> {
    let (b, n_heads, t, e) = q.size4()?;
    let (_, n_kv, s, _) = k.size4()?;
    let mut grouped = n_heads != n_kv;
    let repeated = |keys: &Tensor| {
        let shape = [b, n_kv, n_heads / n_kv, s, e];
        let views = keys.f_unsqueeze(2)?.f_expand(shape, false)?;
        views.f_reshape([b, n_heads, s, e])
    };
    let (mut k, mut v) = (k.shallow_clone(), v.shallow_clone());
    // A GPU's fused kernel shares key heads only in 16 bits and without a mask. In other cases libtorch would fall back to a kernel
    // that keeps all scores in memory.
    let shares = q.device() == Device::Cpu || (mask.is_none() && q.f_kind()? != Kind::Float);
    if grouped && !shares {
        (k, v, grouped) = (repeated(&k)?, repeated(&v)?, false);
    }
    let causal = mask.is_none();
    let call = Tensor::f_scaled_dot_product_attention;
    let mixed = call(q, &k, &v, mask, 0.0, causal, None, grouped)?;
    mixed.f_transpose(1, 2)?.f_reshape([b, t, n_heads * e])
}

/// Attention within each of `n` samples of the same length, which stand one after the other in a row.
///
/// # Shapes
/// As [`whole`] with `b = 1`, `t` a multiple of `n`.
///
/// # Errors
/// What libtorch reports.
pub fn samples(qkv: [&Tensor; 3], n: i64) -> Result<Tensor> {
    if n == 1 {
        return whole(qkv, None);
    }
    let side_by_side = |x: &Tensor| {
        let (_, heads, t, e) = x.size4()?;
        x.f_view([heads, n, t / n, e])?.f_transpose(0, 1)
    };
    let [q, k, v] = qkv;
    let [q, k, v] = [side_by_side(q)?, side_by_side(k)?, side_by_side(v)?];
    let mixed = whole([&q, &k, &v], None)?;
    mixed.f_view([1, -1, mixed.size3()?.2])
}

/// Attention of each query to the keys of its parts; differentiable. See [`has_parts`].
///
/// # Shapes
/// As [`whole`] with `b = 1`.
///
/// # Errors
/// What libtorch reports.
pub(crate) fn in_parts(qkv: [&Tensor; 3], parts: &[Part]) -> Result<Tensor> {
    let (_, n_heads, t, e) = qkv[0].size4()?;
    let mixed = aten::attention_in_parts(qkv, parts)?;
    mixed.f_transpose(1, 2)?.f_reshape([1, t, n_heads * e])
}

/// Whether a device can compute attention in parts and join them. This needs a kernel that returns log-sum-exps and takes them in its
/// backward pass. The answer is found by trying: GPUs have such a kernel for 16 bits only, and older GPUs have none.
pub(crate) fn has_parts(device: Device, kind: Kind, head_dim: i64) -> Result<bool> {
    if device == Device::Cpu {
        return Ok(true);
    }
    let one = Tensor::f_zeros([1, 1, 1, head_dim], (kind, device))?;
    let itself = Part {
        q: 0,
        n_q: 1,
        k: 0,
        n_k: 1,
        causal: 1,
    };
    Ok(in_parts([&one, &one, &one], &[itself]).is_ok())
}

/// Joins the results of several key ranges to the attention over all of them, in f32.
fn join(mut parts: Vec<PartialAttention>) -> Result<Tensor> {
    if parts.len() == 1
        && let Some((only, _)) = parts.pop()
    {
        return Ok(only);
    }
    let kind = parts
        .first()
        .map_or(Ok(Kind::Float), |part| part.0.f_kind())?;
    let lse: Vec<&Tensor> = parts.iter().map(|(_, lse)| lse).collect();
    let weights = Tensor::f_stack(&lse, 0)?.f_softmax(0, Kind::Float)?;
    let outs: Vec<&Tensor> = parts.iter().map(|(out, _)| out).collect();
    let outs = Tensor::f_stack(&outs, 0)?.f_to_kind(Kind::Float)?;
    outs.f_mul(&weights.f_unsqueeze(-1)?)?
        .f_sum_dim_intlist([0i64].as_slice(), false, Kind::Float)?
        .f_to_kind(kind)
}

#[cfg(test)]
mod tests;
