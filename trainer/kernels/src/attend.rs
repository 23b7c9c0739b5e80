//! Attention of single new positions, each over the cached positions of its own sequence.
//!
//! Keys and values are read in place, by the core that needs them, once for all query heads that share them. libtorch's
//! kernel copies both for each product, and makes two products for each sequence and head. Together with the copies for
//! linear layers, this took 58 % of the time of eight replies of 100 positions (SmolLM2-135M, f32, two cores). The
//! results of segments of positions are combined by the sums of their exponentials (FlashAttention,
//! <https://arxiv.org/abs/2205.14135>, section 3.1).

use std::ops::Range;

use crate::job::ProductJob;
use crate::lanes::Weight;
use crate::terms::{Cached, Heads, MOST_SHARING};
use crate::{team, tile};

/// Largest number of positions of one segment. A long past is shared among threads.
const STRETCH: usize = 128;

struct Stretch {
    row: usize,
    kv_head: usize,
    positions: Range<usize>,
}

/// The results of segments, one after the other. For each query head of the key head: its sum, its highest score, the
/// sum of its exponentials.
struct Partial {
    size: usize,
    sharing: usize,
    width: usize,
}

/// Returns whether the lengths fit. The sizes of the heads were checked before.
fn fits<W>(q: &[f32], cached: &Cached<'_, W>, heads: Heads, pasts: &[Vec<Range<usize>>]) -> bool {
    let Heads { n, n_kv, width } = heads;
    let n_positions = cached.keys.len() / (n_kv * width);
    let is_whole = n_positions * n_kv * width == cached.keys.len();
    let has_past = |past: &Vec<Range<usize>>| {
        let within = |it: &Range<usize>| it.start < it.end && it.end <= n_positions;
        !past.is_empty() && past.iter().all(within)
    };
    is_whole
        && cached.values.len() == cached.keys.len()
        && q.len() == pasts.len() * n * width
        && pasts.iter().all(has_past)
}

/// As [`crate::attend`]. Returns false if the lengths do not fit.
pub(crate) fn attend<W: Weight>(
    q: &[f32],
    cached: &Cached<'_, W>,
    heads: Heads,
    pasts: &[Vec<Range<usize>>],
    out: &mut [f32],
    threads: usize,
) -> bool {
    if out.len() != q.len() || !fits(q, cached, heads, pasts) {
        return false;
    }
    let Heads { n, n_kv, width } = heads;
    let sharing = n / n_kv;
    let partial = Partial {
        size: sharing * (width + 2),
        sharing,
        width,
    };
    let stretches = stretches(pasts, n_kv);
    let mut partials = vec![0.0; stretches.len() * partial.size];
    let places = partials.chunks_exact_mut(partial.size);
    let tasks = stretches.iter().zip(places);
    team::each(threads, tasks, |(stretch, found)| {
        let first = (stretch.row * n + stretch.kv_head * sharing) * width;
        let q = &q[first..][..sharing * width];
        partial.compute(q, cached, n_kv, stretch, found);
    });
    let mut done = 0;
    for row_and_head in stretches.chunk_by(|a, b| (a.row, a.kv_head) == (b.row, b.kv_head)) {
        let Some(one) = row_and_head.first() else {
            continue;
        };
        let first = (one.row * n + one.kv_head * sharing) * width;
        let own = &partials[done * partial.size..][..row_and_head.len() * partial.size];
        partial.join(own, &mut out[first..][..sharing * width]);
        done += row_and_head.len();
    }
    true
}

fn stretches(pasts: &[Vec<Range<usize>>], n_kv: usize) -> Vec<Stretch> {
    let mut all = Vec::new();
    for (row, past) in pasts.iter().enumerate() {
        for kv_head in 0..n_kv {
            for run in past {
                let starts = run.clone().step_by(STRETCH);
                all.extend(starts.map(|start| Stretch {
                    row,
                    kv_head,
                    positions: start..run.end.min(start + STRETCH),
                }));
            }
        }
    }
    all
}

// === impl Partial ===

impl Partial {
    /// `q`: `[sharing, width]`.
    fn compute<W: Weight>(
        &self,
        q: &[f32],
        cached: &Cached<'_, W>,
        n_kv: usize,
        stretch: &Stretch,
        found: &mut [f32],
    ) {
        let (width, n) = (self.width, stretch.positions.len());
        let n_positions = cached.keys.len() / (n_kv * width);
        let first = (stretch.kv_head * n_positions + stretch.positions.start) * width;
        let mut scores = [0.0; MOST_SHARING * STRETCH];
        let scores = &mut scores[..self.sharing * n];
        if let Some(job) =
            ProductJob::new(q, &cached.keys[first..][..n * width], width, None, scores)
        {
            tile::compute(&job, 0..n);
        }
        let (mixed, tops_and_sums) = found.split_at_mut(self.sharing * width);
        let scale = 1.0 / (width as f32).sqrt();
        for (scores, told) in scores
            .chunks_exact_mut(n)
            .zip(tops_and_sums.chunks_exact_mut(2))
        {
            let top = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            for score in &mut *scores {
                *score = ((*score - top) * scale).exp();
            }
            told.copy_from_slice(&[top * scale, scores.iter().sum()]);
        }
        tile::mix(scores, &cached.values[first..][..n * width], width, mixed);
    }

    /// Combines all segments of a row and key head, weighted by their exponentials. `out`: `[sharing, width]`.
    fn join(&self, partials: &[f32], out: &mut [f32]) {
        let told = |partial: &[f32], head: usize| {
            let told = &partial[self.sharing * self.width + 2 * head..];
            (told[0], told[1])
        };
        for (head, out) in out.chunks_exact_mut(self.width).enumerate() {
            let each = || partials.chunks_exact(self.size);
            let top = each().map(|part| told(part, head).0);
            let top = top.fold(f32::NEG_INFINITY, f32::max);
            let weight = |it: &[f32]| (told(it, head).0 - top).exp();
            let sum: f32 = each().map(|part| weight(part) * told(part, head).1).sum();
            out.fill(0.0);
            for partial in each() {
                let weight = weight(partial) / sum;
                for (out, mixed) in out.iter_mut().zip(&partial[head * self.width..]) {
                    *out += weight * mixed;
                }
            }
        }
    }
}
