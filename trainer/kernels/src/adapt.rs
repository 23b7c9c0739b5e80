//! Low-rank adapters of several rows, where each row has its own.
//!
//! Each product is too small to be shared among threads. Therefore a thread takes a slot of rows with all of its
//! products. In a loop over libtorch's products, eight replies on eight adapters took 1.85 times as long as eight on
//! one.

use crate::job::ProductJob;
use crate::terms::{ALIGNMENT, LowRankPair, Slot};
use crate::{team, tile};

const MOST_ROWS: usize = 4;

struct AdaptTask<'a, 'b> {
    x: &'a [f32],
    y: &'b mut [f32],
    pairs: &'a [LowRankPair<'a>],
}

/// Adds the outputs of the adapters of `slots` for `x` to `y`. If lengths do not fit, it changes nothing and returns
/// false.
///
/// # Shapes
/// `x`: `[n, width]`; `y`: `[n, n_out]`. Slots are in order and do not overlap.
pub(crate) fn adapt(
    x: &[f32],
    slots: &[Slot<'_>],
    width: usize,
    y: &mut [f32],
    n_out: usize,
    threads: usize,
) -> bool {
    let Some(tasks) = tasks(x, slots, width, y, n_out) else {
        return false;
    };
    team::each(threads, tasks.into_iter(), |task| {
        task.compute(width, n_out);
    });
    true
}

fn tasks<'a, 'b>(
    x: &'a [f32],
    slots: &'a [Slot<'_>],
    width: usize,
    y: &'b mut [f32],
    n_out: usize,
) -> Option<Vec<AdaptTask<'a, 'b>>> {
    if width == 0 || n_out == 0 || !width.is_multiple_of(ALIGNMENT) {
        return None;
    }
    let mut rest = (0, y);
    let mut tasks = Vec::new();
    for slot in slots {
        let (at, y) = rest;
        if !slot.pairs.iter().all(|pair| pair.fits(width, n_out)) {
            return None;
        }
        let (_, y) = y.split_at_mut_checked(slot.first.checked_sub(at)? * n_out)?;
        let (own, after) = y.split_at_mut_checked(slot.n * n_out)?;
        let end = slot.first + slot.n;
        let x = x.get(slot.first * width..end * width)?;
        let rows = x
            .chunks(MOST_ROWS * width)
            .zip(own.chunks_mut(MOST_ROWS * n_out));
        let pairs = &slot.pairs;
        tasks.extend(rows.map(|(x, y)| AdaptTask { x, y, pairs }));
        rest = (end, after);
    }
    Some(tasks)
}

// === impl AdaptTask ===

impl AdaptTask<'_, '_> {
    fn compute(self, width: usize, n_out: usize) {
        let n = self.x.len() / width;
        for pair in self.pairs {
            let rank = pair.rank(width);
            let columns = pair.b.len() / rank;
            let (mut low, mut sums) = (vec![0.0; n * rank], vec![0.0; n * columns]);
            if let Some(job) = ProductJob::new(self.x, pair.a, width, None, &mut low) {
                tile::compute(&job, 0..rank);
            }
            if let Some(job) = ProductJob::new(&low, pair.b, rank, None, &mut sums) {
                tile::compute(&job, 0..columns);
            }
            for (y, sums) in self
                .y
                .chunks_exact_mut(n_out)
                .zip(sums.chunks_exact(columns))
            {
                for (y, sum) in y[pair.column..].iter_mut().zip(sums) {
                    *y += sum;
                }
            }
        }
    }
}
