//! Multiplies some rows of the matrix with all rows of the input, one tile of both at a time.
//!
//! A tile's sums stay in registers over the whole width. Its rows are adjacent in memory, so the next tile's rows are
//! prefetched from front to back, one cache line for each line that is read. Without that, reading several rows side by
//! side took 47 ms per pass for a single input row, and 24 with it.
#![expect(
    unsafe_code,
    reason = "checks of each index would take longer than the product"
)]
#![expect(
    clippy::inline_always,
    reason = "an instruction is one only inside a function that is compiled for the processor that has it"
)]

use std::ops::Range;

use crate::job::{BLOCK, ProductJob};
use crate::lanes::{Avx2, Avx512, Lanes, Load, Weight, prefetch, sums};
use crate::team;
use crate::terms::Scales;

// SAFETY: shared data is only read, except for `y`. Each thread writes the columns of its own rows of the matrix.
unsafe impl<W: Sync> Sync for ProductJob<'_, W> {}

pub(crate) fn is_supported() -> bool {
    has_avx512() || has_avx2()
}

fn has_avx512() -> bool {
    is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512dq") && has_avx2()
}

fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")
}

/// As [`crate::product`], for one type of matrix. Returns false if the lengths do not fit.
pub(crate) fn product<W: Weight>(
    x: &[f32],
    w: &[W],
    width: usize,
    scales: Option<Scales<'_>>,
    y: &mut [f32],
    threads: usize,
) -> bool {
    let Some(job) = ProductJob::new(x, w, width, scales, y) else {
        return false;
    };
    team::each(threads, job.in_parts(threads), |rows| compute(&job, rows));
    true
}

pub(crate) fn compute<W: Weight>(job: &ProductJob<'_, W>, rows: Range<usize>) {
    if has_avx512() {
        // SAFETY: the processor has the instructions.
        unsafe { avx512(job, rows) }
    } else if has_avx2() {
        // SAFETY: see above.
        unsafe { avx2(job, rows) }
    }
}

#[target_feature(enable = "avx512f,avx512dq,avx2,fma")]
fn avx512<W: Weight>(job: &ProductJob<'_, W>, rows: Range<usize>) {
    // SAFETY: the caller has checked the instructions.
    unsafe { blocks::<Avx512, W>(job, rows) }
}

#[target_feature(enable = "avx2,fma")]
pub(crate) fn avx2<W: Weight>(job: &ProductJob<'_, W>, rows: Range<usize>) {
    // SAFETY: the caller has checked the instructions.
    unsafe { blocks::<Avx2, W>(job, rows) }
}

/// # Safety
/// The processor must have the instructions of `L`.
#[inline(always)]
unsafe fn blocks<L: Lanes, W: Load<L>>(job: &ProductJob<'_, W>, rows: Range<usize>)
where
    f32: Load<L>,
{
    let rows = rows.start..rows.end.min(job.n_out);
    for start in rows.clone().step_by(BLOCK) {
        let block = start..rows.end.min(start + BLOCK);
        let mut first = 0;
        while first < job.n_rows() {
            let left = job.n_rows() - first;
            // SAFETY: the caller has checked the instructions, and the rows of both sides exist.
            first += unsafe { some::<L, W>(job, block.clone(), first, left) };
        }
    }
}

/// Computes input rows from `first` on, of which `left` exist, by tiles that fit into the registers. AVX-512 has twice as many.
/// Returns how many were computed.
///
/// # Safety
/// The processor must have the instructions of `L`. `rows` must be below `n_out`.
#[inline(always)]
unsafe fn some<L: Lanes, W: Load<L>>(
    job: &ProductJob<'_, W>,
    rows: Range<usize>,
    first: usize,
    left: usize,
) -> usize
where
    f32: Load<L>,
{
    let is_avx512 = L::N == Avx512::N;
    // SAFETY: as the caller promises.
    unsafe {
        match left {
            8.. if is_avx512 => tiles::<L, W, 8, 3>(job, rows, first),
            4.. if is_avx512 => tiles::<L, W, 4, 4>(job, rows, first),
            4.. => tiles::<L, W, 4, 2>(job, rows, first),
            2.. => tiles::<L, W, 2, 4>(job, rows, first),
            _ => tiles::<L, W, 1, 4>(job, rows, first),
        }
    }
}

/// Computes tiles of `R` rows of the matrix and `N` of the input, and the remaining rows of the matrix one by one.
/// Returns `N`.
///
/// # Safety
/// The processor must have the instructions of `L`. `rows` must be below `n_out`, and `N` input rows must exist from
/// `first` on.
#[inline(always)]
unsafe fn tiles<L: Lanes, W: Load<L>, const N: usize, const R: usize>(
    job: &ProductJob<'_, W>,
    rows: Range<usize>,
    first: usize,
) -> usize
where
    f32: Load<L>,
{
    let mut row = rows.start;
    // SAFETY: the caller guarantees this, and no tile extends beyond the rows.
    unsafe {
        while row + R <= rows.end {
            tile::<L, W, N, R>(job, row, first);
            row += R;
        }
        while row < rows.end {
            tile::<L, W, N, 1>(job, row, first);
            row += 1;
        }
    }
    N
}

/// # Safety
/// The conditions of [`tiles`] apply, for `R` rows from `row` on.
#[inline(always)]
unsafe fn tile<L: Lanes, W: Load<L>, const N: usize, const R: usize>(
    job: &ProductJob<'_, W>,
    row: usize,
    first: usize,
) where
    f32: Load<L>,
{
    let width = job.width;
    // SAFETY: rows of both sides exist, and the width is a multiple of the lanes. Memory beyond the matrix is only
    // prefetched, and no index below is beyond its array.
    unsafe {
        let w = job.w.as_ptr().add(row * width);
        let x = job.x.as_ptr().add(first * width);
        let mut products = [[L::splat(0.0); N]; R];
        let mut at = 0;
        while at < width {
            let mut weights = [L::splat(0.0); R];
            for (r, weight) in weights.iter_mut().enumerate() {
                *weight = W::load(w.add(r * width + at));
                prefetch(w.wrapping_add(R * width + R * at + r * L::N));
            }
            for n in 0..N {
                let input = f32::load(x.add(n * width + at));
                for (sums, weight) in products.iter_mut().zip(weights) {
                    sums[n] = L::multiply_add(input, weight, sums[n]);
                }
            }
            at += L::N;
        }
        store::<L, W>(job, products.as_flattened(), row, first, N);
    }
}

/// Sums up `products` for each row of the matrix and each input row, and writes the sums to their places.
///
/// # Safety
/// The conditions of [`tile`] apply.
#[inline(always)]
unsafe fn store<L: Lanes, W>(
    job: &ProductJob<'_, W>,
    products: &[L::V],
    row: usize,
    first: usize,
    n: usize,
) {
    let mut done = 0;
    while done < products.len() {
        let left = products.len() - done;
        // SAFETY: the places are within `[n, n_out]`, in columns that no other thread writes.
        unsafe {
            let folded = |i: usize| L::fold(products[done + i.min(left - 1)]);
            let sums = sums([folded(0), folded(1), folded(2), folded(3)]);
            for (i, sum) in sums.into_iter().enumerate().take(left) {
                let (r, m) = (row + (done + i) / n, first + (done + i) % n);
                let scale = job.scales.map_or(1.0, |scales| scales.get(r));
                *job.y.add(m * job.n_out + r) = sum * scale;
            }
        }
        done += 4;
    }
}

/// Adds up weighted rows of numbers.
///
/// # Shapes
/// `weights`: `[g, n]`; `rows`: `[n, width]`; `out`: `[g, width]`, overwritten. If lengths do not fit, it uses as many
/// as there are.
pub(crate) fn mix<W: Weight>(weights: &[f32], rows: &[W], width: usize, out: &mut [f32]) {
    let n = rows.len() / width;
    let g = (out.len() / width).min(weights.len() / n.max(1));
    if n == 0 || !width.is_multiple_of(crate::terms::ALIGNMENT) {
        return;
    }
    let (w, rows, out) = (weights.as_ptr(), rows.as_ptr(), out.as_mut_ptr());
    for first in (0..g).step_by(4) {
        let mixing = Mixing {
            n,
            width,
            left: (g - first).min(4),
        };
        // SAFETY: the processor has the instructions. `g` weights for each of `n` rows, the rows, and `g` sums exist.
        unsafe {
            let (w, out) = (w.add(first * n), out.add(first * width));
            if has_avx512() {
                mix_avx512(mixing, w, rows, out);
            } else if has_avx2() {
                mix_avx2(mixing, w, rows, out);
            }
        }
    }
}

#[derive(Clone, Copy)]
struct Mixing {
    n: usize,
    width: usize,
    left: usize,
}

#[target_feature(enable = "avx512f,avx512dq,avx2,fma")]
unsafe fn mix_avx512<W: Weight>(sizes: Mixing, w: *const f32, rows: *const W, out: *mut f32) {
    // SAFETY: as the caller promises.
    unsafe { mixtures::<Avx512, W>(sizes, w, rows, out) }
}

#[target_feature(enable = "avx2,fma")]
unsafe fn mix_avx2<W: Weight>(sizes: Mixing, w: *const f32, rows: *const W, out: *mut f32) {
    // SAFETY: as the caller promises.
    unsafe { mixtures::<Avx2, W>(sizes, w, rows, out) }
}

/// # Safety
/// The processor must have the instructions of `L`. The pointers must have `[left, n]`, `[n, width]` and
/// `[left, width]` numbers.
#[inline(always)]
unsafe fn mixtures<L: Lanes, W: Load<L>>(
    sizes: Mixing,
    w: *const f32,
    rows: *const W,
    out: *mut f32,
) {
    // SAFETY: as the caller promises.
    unsafe {
        match sizes.left {
            4.. => columns::<L, W, 4>(sizes, w, rows, out),
            3 => columns::<L, W, 3>(sizes, w, rows, out),
            2 => columns::<L, W, 2>(sizes, w, rows, out),
            _ => columns::<L, W, 1>(sizes, w, rows, out),
        }
    }
}

/// Computes two vectors of columns at a time as long as possible, then one.
///
/// # Safety
/// The conditions of [`mixtures`] apply.
#[inline(always)]
unsafe fn columns<L: Lanes, W: Load<L>, const G: usize>(
    sizes: Mixing,
    w: *const f32,
    rows: *const W,
    out: *mut f32,
) {
    let mut at = 0;
    // SAFETY: the caller guarantees this, and the width is a multiple of the lanes.
    unsafe {
        while at + 2 * L::N <= sizes.width {
            column::<L, W, G, 2>(sizes, w, rows.add(at), out.add(at));
            at += 2 * L::N;
        }
        while at < sizes.width {
            column::<L, W, G, 1>(sizes, w, rows.add(at), out.add(at));
            at += L::N;
        }
    }
}

/// # Safety
/// The conditions of [`mixtures`] apply, for `C` vectors of columns.
#[inline(always)]
unsafe fn column<L: Lanes, W: Load<L>, const G: usize, const C: usize>(
    sizes: Mixing,
    w: *const f32,
    rows: *const W,
    out: *mut f32,
) {
    // SAFETY: the caller guarantees this, and no index is beyond its array.
    unsafe {
        let mut sums = [[L::splat(0.0); C]; G];
        for i in 0..sizes.n {
            for c in 0..C {
                let row = W::load(rows.add(i * sizes.width + c * L::N));
                for (g, sums) in sums.iter_mut().enumerate() {
                    let weight = L::splat(*w.add(g * sizes.n + i));
                    sums[c] = L::multiply_add(weight, row, sums[c]);
                }
            }
        }
        for (g, sums) in sums.into_iter().enumerate() {
            for (c, sum) in sums.into_iter().enumerate() {
                L::write(out.add(g * sizes.width + c * L::N), sum);
            }
        }
    }
}
