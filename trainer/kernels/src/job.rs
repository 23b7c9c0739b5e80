//! One product: its inputs, its output, and which rows of the matrix a thread takes next.

use std::marker::PhantomData;
use std::ops::Range;

use crate::terms::{ALIGNMENT, Scales};

/// Rows of the matrix that are computed for all input rows before the next ones are read: at a width of 576, these are
/// 27 KB of f32. So they stay in the core's own cache when more than eight input rows read them again. It is a multiple
/// of each tile's height.
pub(crate) const BLOCK: usize = 12;
/// Number of parts for each thread. If another program delays a thread, the others take its parts.
const PARTS_A_THREAD: usize = 8;

pub(crate) struct ProductJob<'a, W> {
    pub(crate) x: &'a [f32],
    pub(crate) w: &'a [W],
    pub(crate) width: usize,
    pub(crate) n_out: usize,
    pub(crate) scales: Option<Scales<'a>>,
    /// `[n, n_out]`. Threads write to different parts of it.
    pub(crate) y: *mut f32,
    borrowed: PhantomData<&'a mut [f32]>,
}

// === impl ProductJob ===

impl<'a, W> ProductJob<'a, W> {
    /// Returns `None` if lengths do not fit.
    pub(crate) fn new(
        x: &'a [f32],
        w: &'a [W],
        width: usize,
        scales: Option<Scales<'a>>,
        y: &'a mut [f32],
    ) -> Option<Self> {
        if width == 0 || !width.is_multiple_of(ALIGNMENT) {
            return None;
        }
        let (n, n_out) = (x.len() / width, w.len() / width);
        let has_scales = scales.is_none_or(|scales| scales.len() == n_out);
        let fits = n * width == x.len() && n_out * width == w.len() && n * n_out == y.len();
        (fits && has_scales).then_some(Self {
            x,
            w,
            width,
            n_out,
            scales,
            y: y.as_mut_ptr(),
            borrowed: PhantomData,
        })
    }

    pub(crate) fn n_rows(&self) -> usize {
        self.x.len() / self.width
    }

    /// The rows of the matrix that a thread takes at once.
    pub(crate) fn in_parts(&self, threads: usize) -> impl Iterator<Item = Range<usize>> {
        let size = self.n_out / (threads.max(1) * PARTS_A_THREAD);
        let (size, all) = (size.next_multiple_of(BLOCK).max(BLOCK), self.n_out);
        (0..all)
            .step_by(size)
            .map(move |start| start..all.min(start + size))
    }
}

// === impl Scales ===

impl Scales<'_> {
    fn len(&self) -> usize {
        match self {
            Self::F32(all) => all.len(),
            Self::Bf16(all) => all.len(),
        }
    }

    /// Returns the scale of one row, or 1 for a row that does not exist.
    pub(crate) fn get(&self, row: usize) -> f32 {
        let found = match self {
            Self::F32(all) => all.get(row).copied(),
            Self::Bf16(all) => all
                .get(row)
                .map(|&half| f32::from_bits(u32::from(half) << 16)),
        };
        found.unwrap_or(1.0)
    }
}
