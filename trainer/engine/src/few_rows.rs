//! Products of a few rows, and attention of single ones, by [`metaclaw_kernels`] on tensors.
#![expect(unsafe_code, reason = "libtorch gives a tensor's numbers as a pointer")]

use std::ops::Range;

use metaclaw_kernels::{self as kernels, Heads, LowRankPair, RowMajorMatrix, Scales, Slot};
use tch::{Device, Kind, TchError, Tensor};

use crate::torch::Result;

/// `x Wᵀ` in f32. `None` if libtorch computes it faster.
///
/// # Shapes
/// `x`: `[.., in]`, any float dtype. `weight`: `[out, in]` in f32 or bf16, or in int8 with `scales`, `[out]`. Returns `[.., out]`, f32.
///
/// # Errors
/// What libtorch reports.
pub(crate) fn product(
    x: &Tensor,
    weight: &Tensor,
    scales: Option<&Tensor>,
) -> Result<Option<Tensor>> {
    let mut shape = x.size();
    let (width, kind) = (shape.pop().unwrap_or(0), weight.f_kind()?);
    let n_rows = shape.iter().product::<i64>();
    let is_wanted =
        (1..=most_rows(kind)).contains(&n_rows) && x.device() == Device::Cpu && !x.requires_grad();
    if !is_wanted || width != weight.size().last().copied().unwrap_or(0) {
        return Ok(None);
    }
    let Some(matrix) = matrix(weight, kind, scales) else {
        return Ok(None);
    };
    let x = x.f_to_kind(Kind::Float)?.f_contiguous()?;
    let n_out = weight.size().first().copied().unwrap_or(0);
    shape.push(n_out);
    let y = Tensor::f_empty(&shape, (Kind::Float, Device::Cpu))?;
    let Some(x_numbers) = numbers::<f32>(&x, Kind::Float) else {
        return Ok(None);
    };
    // SAFETY: the tensor was just made. It holds this many f32 numbers in one piece, and no other handle to it exists.
    let y_numbers = unsafe { std::slice::from_raw_parts_mut(y.data_ptr().cast(), y.numel()) };
    let width = usize::try_from(width).unwrap_or(0);
    let is_done = kernels::product(x_numbers, matrix, width, y_numbers, threads());
    Ok(is_done.then_some(y))
}

pub(crate) fn are_here() -> bool {
    kernels::is_supported(threads())
}

pub(crate) fn attends(heads: Heads, device: Device) -> bool {
    device == Device::Cpu && kernels::attends(heads, threads())
}

/// Attention of single rows over cached positions. Call it only if [`attends`] is true.
///
/// # Shapes
/// `q`: `[n, n_heads, head_dim]`; `keys` and `values`: `[n_kv_heads, positions, head_dim]`, f32 or bf16. `pasts`: of each row the
/// positions that it sees. Returns `[n, n_heads * head_dim]` in the dtype of `q`.
///
/// # Errors
/// What libtorch reports, and a position beyond the cache.
pub(crate) fn attention(
    q: &Tensor,
    [keys, values]: [&Tensor; 2],
    pasts: &[Vec<Range<usize>>],
) -> Result<Tensor> {
    let ((n, n_heads, width), (n_kv, _, _)) = (q.size3()?, keys.size3()?);
    let kind = q.f_kind()?;
    let q = q.f_to_kind(Kind::Float)?.f_contiguous()?;
    let out = Tensor::f_empty([n, n_heads * width], (Kind::Float, Device::Cpu))?;
    // SAFETY: the tensor was just made. It holds this many f32 numbers in one piece, and no other handle to it exists.
    let found = unsafe { std::slice::from_raw_parts_mut(out.data_ptr().cast(), out.numel()) };
    let heads = heads(n_heads, n_kv, width);
    let kv_kind = keys.f_kind()?;
    let numbers_of_q = numbers::<f32>(&q, Kind::Float);
    let cached = matrix(keys, kv_kind, None).zip(matrix(values, kv_kind, None));
    let is_done = match (numbers_of_q, cached) {
        (Some(q), Some((keys, values))) => {
            kernels::attend(q, [keys, values], heads, pasts, found, threads())
        }
        _ => false,
    };
    if is_done {
        return out.f_to_kind(kind);
    }
    let size = keys.size();
    Err(TchError::Shape(format!(
        "attention of {n} rows over {pasts:?} of {size:?} in {kv_kind:?}"
    )))
}

/// Adapters of some rows: where in the outputs' columns each part begins, its `A` and its `B`, the scale among it.
pub(crate) struct AdaptedRows<'a> {
    /// The first row, and how many.
    pub(crate) rows: (i64, i64),
    /// `[rank, in]` and `[columns, rank]`.
    pub(crate) pairs: Vec<(i64, &'a Tensor, &'a Tensor)>,
}

/// Adds what adapters say of `x` to `y`, which is changed; returns whether it was done, which it is of a few rows on a CPU.
///
/// # Shapes
/// `x`: `[1, n, in]`; `y`: `[1, n, out]`, fresh; `slots` in the order of their rows.
///
/// # Errors
/// What libtorch reports.
pub(crate) fn adapt(x: &Tensor, y: &Tensor, slots: &[AdaptedRows<'_>]) -> Result<bool> {
    let ((_, n, width), (_, _, n_out)) = (x.size3()?, y.size3()?);
    let is_wanted = n <= most_rows(Kind::Float) && !x.requires_grad() && !y.requires_grad();
    let kind = y.f_kind()?;
    // Sums are in f32: outputs in another dtype get them rounded once.
    let sums = match kind {
        Kind::Float => y.shallow_clone(),
        _ => Tensor::f_zeros(y.size(), (Kind::Float, y.device()))?,
    };
    if !is_wanted || numbers::<f32>(&sums, Kind::Float).is_none() {
        return Ok(false);
    }
    let x = x.f_to_kind(Kind::Float)?.f_contiguous()?;
    let (Some(numbers_of_x), Some(slots)) = (numbers::<f32>(&x, Kind::Float), raw(slots)) else {
        return Ok(false);
    };
    // SAFETY: `numbers` has checked that the tensor holds this many f32 numbers in one piece. The caller has just made
    // the tensor, and `x` is another.
    let found = unsafe { std::slice::from_raw_parts_mut(sums.data_ptr().cast(), sums.numel()) };
    let [width, n_out] = [width, n_out].map(|n| usize::try_from(n).unwrap_or(0));
    let is_done = kernels::adapt(numbers_of_x, &slots, width, found, n_out, threads());
    if is_done && kind != Kind::Float {
        let _sum = y.shallow_clone().f_add_(&sums.f_to_kind(kind)?)?;
    }
    Ok(is_done)
}

/// `None` where a tensor is not plain numbers in f32, or has a gradient.
fn raw<'a>(slots: &'a [AdaptedRows<'a>]) -> Option<Vec<Slot<'a>>> {
    let pair = |&(column, a, b): &(i64, &'a Tensor, &'a Tensor)| {
        let has_gradient = a.requires_grad() || b.requires_grad();
        let pair = LowRankPair {
            column: usize::try_from(column).ok()?,
            a: numbers(a, Kind::Float)?,
            b: numbers(b, Kind::Float)?,
        };
        (!has_gradient).then_some(pair)
    };
    let slot = |slot: &'a AdaptedRows<'a>| {
        Some(Slot {
            first: usize::try_from(slot.rows.0).ok()?,
            n: usize::try_from(slot.rows.1).ok()?,
            pairs: slot.pairs.iter().map(pair).collect::<Option<_>>()?,
        })
    };
    slots.iter().map(slot).collect()
}

/// Sizes of attention; 0 for what no tensor can have.
pub(crate) fn heads(n: i64, n_kv: i64, width: i64) -> Heads {
    let size = |n: i64| usize::try_from(n).unwrap_or(0);
    Heads {
        n: size(n),
        n_kv: size(n_kv),
        width: size(width),
    }
}

fn threads() -> usize {
    usize::try_from(tch::get_num_threads()).unwrap_or(1)
}

/// Up to so many rows the product here takes less time than libtorch's (SmolLM2-135M's matrices on one core, milliseconds of
/// processor time a pass, here and libtorch's): f32 127 and 156 at 32 rows, bf16 52 and 56 at 16, 92 and 76 at 32. For int8,
/// libtorch has to make the matrix first, which takes more than the product at 64 rows does here.
fn most_rows(kind: Kind) -> i64 {
    match kind {
        Kind::Float => 32,
        Kind::BFloat16 => 16,
        Kind::Int8 => 64,
        _ => 0,
    }
}

fn matrix<'a>(
    weight: &'a Tensor,
    kind: Kind,
    scales: Option<&'a Tensor>,
) -> Option<RowMajorMatrix<'a>> {
    match (kind, scales) {
        (Kind::Float, None) => numbers(weight, kind).map(RowMajorMatrix::F32),
        (Kind::BFloat16, None) => numbers(weight, kind).map(RowMajorMatrix::Bf16),
        (Kind::Int8, Some(scales)) => {
            let scales = match scales.f_kind().ok()? {
                kind @ Kind::Float => numbers(scales, kind).map(Scales::F32),
                kind @ Kind::BFloat16 => numbers(scales, kind).map(Scales::Bf16),
                _ => None,
            };
            let rounded = numbers(weight, kind)?;
            scales.map(|scales| RowMajorMatrix::Int8 { rounded, scales })
        }
        _ => None,
    }
}

/// A tensor's numbers in row-major order; `None` if they are laid out differently or on another device. `T` is the Rust
/// type of `kind`.
fn numbers<T: Number>(tensor: &Tensor, kind: Kind) -> Option<&[T]> {
    let is_plain = T::KIND == kind && tensor.is_contiguous() && tensor.device() == Device::Cpu;
    if !is_plain || tensor.numel() == 0 {
        return None;
    }
    // SAFETY: the tensor holds this many numbers of this type in one piece for as long as it is borrowed. This crate
    // never writes to weights, or to inputs while a product is computed.
    Some(unsafe { std::slice::from_raw_parts(tensor.data_ptr().cast(), tensor.numel()) })
}

/// The Rust type of a tensor's numbers.
trait Number {
    const KIND: Kind;
}

impl Number for f32 {
    const KIND: Kind = Kind::Float;
}

impl Number for u16 {
    const KIND: Kind = Kind::BFloat16;
}

impl Number for i8 {
    const KIND: Kind = Kind::Int8;
}
