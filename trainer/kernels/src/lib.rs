//! Products of a few rows with a large matrix, and attention of single positions. Generating tokens consists mainly of
//! these.
//!
//! Each token of a reply reads every weight once. If the computation did nothing else, it would take the time of
//! reading them. libtorch's products do more. MKL's product copies the matrix into another order in every call (42 % of
//! the time of eight replies in f32). oneDNN's for bf16 does the same, and ATen's for int8 converts activations to f32
//! one number at a time. The products here read a row of the matrix once, from front to back, and multiply it with all
//! rows of the input at the same time.
//!
//! A pass over SmolLM2-135M's matrices on one core (AVX-512, milliseconds of processor time, beside other work; another
//! run than the table of `tests/bench/engine/README.md`, which has other figures for the same machine):
//!
//! | input rows | dtype | libtorch | here |
//! |---|---|---|---|
//! | 1 | f32 | 51 | 24 |
//! | 8 | f32 | 80 | 42 |
//! | 1 | bf16 | 28 | 10 |
//! | 1 | int8 | 131 | 5 |
//!
//! Each output number is a separate sum in a fixed order, whatever else is computed. So a row's result does not depend
//! on the number of rows or threads.
#![cfg_attr(
    not(all(target_arch = "x86_64", unix)),
    expect(
        dead_code,
        unused_variables,
        reason = "there are kernels for x86-64 alone"
    )
)]

#[cfg(all(target_arch = "x86_64", unix))]
mod adapt;
#[cfg(all(target_arch = "x86_64", unix))]
mod attend;
mod job;
#[cfg(all(target_arch = "x86_64", unix))]
mod lanes;
#[cfg(all(target_arch = "x86_64", unix))]
mod team;
mod terms;
#[cfg(all(target_arch = "x86_64", unix))]
mod tile;

use std::ops::Range;

use crate::terms::MOST_SHARING;
pub use crate::terms::{ALIGNMENT, Heads, LowRankPair, RowMajorMatrix, Scales, Slot};

/// Returns whether [`product`] works on this machine with so many threads.
pub fn is_supported(threads: usize) -> bool {
    #[cfg(all(target_arch = "x86_64", unix))]
    return tile::is_supported() && (threads <= 1 || team::is_there());
    #[cfg(not(all(target_arch = "x86_64", unix)))]
    return false;
}

/// Computes `y = x Wᵀ` in f32, for any type of matrix.
///
/// # Shapes
/// `x`: `[n, width]`; `matrix`: `[out, width]`; `y`: `[n, out]`; all in row-major order. `width` is a multiple of [`ALIGNMENT`].
///
/// Returns whether it was computed. It is not computed if lengths do not fit, or if [`is_supported`] returns false.
pub fn product(
    x: &[f32],
    matrix: RowMajorMatrix<'_>,
    width: usize,
    y: &mut [f32],
    threads: usize,
) -> bool {
    #[cfg(all(target_arch = "x86_64", unix))]
    return is_supported(threads)
        && match matrix {
            RowMajorMatrix::F32(w) => tile::product(x, w, width, None, y, threads),
            RowMajorMatrix::Bf16(w) => tile::product(x, w, width, None, y, threads),
            RowMajorMatrix::Int8 { rounded, scales } => {
                tile::product(x, rounded, width, Some(scales), y, threads)
            }
        };
    #[cfg(not(all(target_arch = "x86_64", unix)))]
    return false;
}

/// Adds the outputs of the adapters of `slots` for `x` to `y`.
///
/// # Shapes
/// `x`: `[n, width]`; `y`: `[n, n_out]`, both in row-major order. Slots are in order and do not overlap. Ranks and
/// `width` are multiples of [`ALIGNMENT`].
///
/// Returns whether it was computed. If lengths do not fit, or [`is_supported`] returns false, it is not computed and
/// `y` is unchanged.
pub fn adapt(
    x: &[f32],
    slots: &[Slot<'_>],
    width: usize,
    y: &mut [f32],
    n_out: usize,
    threads: usize,
) -> bool {
    #[cfg(all(target_arch = "x86_64", unix))]
    return is_supported(threads) && adapt::adapt(x, slots, width, y, n_out, threads);
    #[cfg(not(all(target_arch = "x86_64", unix)))]
    return false;
}

/// Returns whether [`attend`] supports attention of these sizes.
pub fn attends(heads: Heads, threads: usize) -> bool {
    let Heads { n, n_kv, width } = heads;
    let fits = width > 0 && width.is_multiple_of(ALIGNMENT) && n_kv > 0 && n.is_multiple_of(n_kv);
    fits && n / n_kv <= MOST_SHARING && is_supported(threads)
}

/// Computes attention of one new position of each of several sequences: a row of `q` over its own sequence's positions.
///
/// # Shapes
/// `q`: `[n, heads.n, heads.width]`, f32. `keys` and `values`: `[heads.n_kv, positions, heads.width]`, both in f32 or
/// both in bf16. `pasts`: for each row the positions that it attends to, including its own. `out`: like `q`. All in
/// row-major order.
///
/// Returns whether it was computed. It is not computed if lengths do not fit, or if [`is_supported`] returns false.
pub fn attend(
    q: &[f32],
    [keys, values]: [RowMajorMatrix<'_>; 2],
    heads: Heads,
    pasts: &[Vec<Range<usize>>],
    out: &mut [f32],
    threads: usize,
) -> bool {
    #[cfg(all(target_arch = "x86_64", unix))]
    return attends(heads, threads)
        && match (keys, values) {
            (RowMajorMatrix::F32(keys), RowMajorMatrix::F32(values)) => attend::attend(
                q,
                &terms::Cached { keys, values },
                heads,
                pasts,
                out,
                threads,
            ),
            (RowMajorMatrix::Bf16(keys), RowMajorMatrix::Bf16(values)) => attend::attend(
                q,
                &terms::Cached { keys, values },
                heads,
                pasts,
                out,
                threads,
            ),
            _ => false,
        };
    #[cfg(not(all(target_arch = "x86_64", unix)))]
    return false;
}

#[cfg(test)]
mod tests;
