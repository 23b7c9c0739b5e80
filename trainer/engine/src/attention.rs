//! Attention of packed rows over pages: exact, without a mask and without gathering what is cached.
//!
//! A sequence's past lies in a few runs of consecutive positions. Each run is one call of the fused
//! kernel on a view; the results are joined by their log-sum-exps, which is what attention over all of
//! them at once would give (FlashAttention, <https://arxiv.org/abs/2205.14135>, section 3.1). New positions of a prompt attend to one another in
//! one causal call more. [`paged`] is the one place that a kernel of another device has to take.

use tch::{Device, Kind, TchError, Tensor};

use crate::kv::{LayerKv, Run};

/// More runs than this are gathered into one: a call costs more than the copy then.
const MAX_RUNS: usize = 8;

/// The rows of one sequence in a batch, and what they attend to besides one another.
#[derive(Debug)]
pub struct Span {
    /// Its first row.
    row: i64,
    /// How many rows.
    len: i64,
    past: Past,
}

/// Cached positions of one sequence; a single row is among them.
#[derive(Debug)]
enum Past {
    Runs(Vec<Run>),
    /// Slots, `[n]`, i64.
    Scattered(Tensor),
}

/// Where all rows of a batch are written and what they attend to.
#[derive(Debug)]
pub struct PagePlan {
    /// `[t]`, i64.
    pub slots: Tensor,
    /// In the order of their rows.
    pub spans: Vec<Span>,
}

// === impl Span ===

impl Span {
    /// `len` rows from `row` on; `past` are the positions before them, and the row itself where it is one.
    ///
    /// # Errors
    /// What libtorch reports.
    pub fn new(row: usize, len: usize, past: Vec<Run>, device: Device) -> Result<Self, TchError> {
        let past = if past.len() > MAX_RUNS {
            let slots = past.iter().flat_map(|run| run.start..run.start + run.len);
            let slots: Vec<i64> = slots.map(to_i64).collect();
            Past::Scattered(Tensor::f_from_slice(&slots)?.f_to_device(device)?)
        } else {
            Past::Runs(past)
        };
        Ok(Self {
            row: to_i64(row),
            len: to_i64(len),
            past,
        })
    }
}

/// Writes the new keys and values to the pool, then lets every row attend to its own sequence.
///
/// # Shapes
/// `q`: `[1, t, n_heads, head_dim]`, `k` and `v`: `[1, t, n_kv_heads, head_dim]`, all in the pool's dtype.
/// Returns `[1, t, n_heads * head_dim]` in that dtype.
///
/// # Errors
/// What libtorch reports, such as a slot beyond the pool.
pub fn paged(
    [q, k, v]: [&Tensor; 3],
    kv: &mut LayerKv,
    plan: &PagePlan,
) -> Result<Tensor, TchError> {
    let (_, _, n_heads, e) = q.size4()?;
    let n_kv = k.size4()?.2;
    let [q, k, v] = [q.f_select(0, 0)?, k.f_select(0, 0)?, v.f_select(0, 0)?];
    kv.write(&k, &v, &plan.slots)?;
    let mut rows = Vec::with_capacity(plan.spans.len());
    for span in &plan.spans {
        let own = |x: &Tensor| x.f_narrow(0, span.row, span.len);
        // [t, heads, e] to [kv heads, query heads of each, t, e]: views.
        let q = own(&q)?.f_view([span.len, n_kv, n_heads / n_kv, e])?;
        let q = q.f_permute([1, 2, 0, 3])?;
        let mut parts = over_past(&q, kv, &span.past)?;
        if span.len > 1 {
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

/// What a call gives: `[n_kv_heads, group, t, head_dim]`, and the log-sum-exp of its scores, `[n_kv_heads, group, t]`, f32.
type Part = (Tensor, Tensor);

/// All rows see all of the past. The query heads of a key head are laid out as if they were positions,
/// so that keys and values are read once for all of them.
fn over_past(q: &Tensor, kv: &LayerKv, past: &Past) -> Result<Vec<Part>, TchError> {
    let (n_kv, group, t, e) = q.size4()?;
    let q = q.f_reshape([1, n_kv, group * t, e])?;
    let call = |k: &Tensor, v: &Tensor| {
        let (out, lse) = flash(&q, &k.f_unsqueeze(0)?, &v.f_unsqueeze(0)?, false)?;
        let out = out.f_reshape([n_kv, group, t, e])?;
        Ok((out, lse.f_reshape([n_kv, group, t])?))
    };
    match past {
        Past::Runs(runs) => {
            let of_run = |run: &Run| {
                let view = |x: &Tensor| x.f_narrow(1, to_i64(run.start), to_i64(run.len));
                call(&view(&kv.k)?, &view(&kv.v)?)
            };
            runs.iter().map(of_run).collect()
        }
        Past::Scattered(slots) => {
            let all = |x: &Tensor| x.f_index_select(1, slots);
            Ok(vec![call(&all(&kv.k)?, &all(&kv.v)?)?])
        }
    }
}

/// New positions see themselves and those before them. Here the key heads are the batch, and each is
/// repeated for its query heads by a stride of 0.
#[expect(
    clippy::many_single_char_names,
    reason = "the axes and the three projections are called so everywhere"
)]
fn among_themselves(q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Part, TchError> {
    let (n_kv, group, t, e) = q.size4()?;
    let repeated = |x: &Tensor| {
        let x = x.f_permute([1, 0, 2])?.f_unsqueeze(1)?;
        x.f_expand([n_kv, group, t, e], false)
    };
    flash(q, &repeated(k)?, &repeated(v)?, true)
}

fn flash(q: &Tensor, k: &Tensor, v: &Tensor, causal: bool) -> Result<Part, TchError> {
    Tensor::f_internal_scaled_dot_product_flash_attention_for_cpu(
        q,
        k,
        v,
        0.0,
        causal,
        None::<Tensor>,
        None,
    )
}

/// Attention over everything that the parts saw, in f32.
fn join(mut parts: Vec<Part>) -> Result<Tensor, TchError> {
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

fn to_i64(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
