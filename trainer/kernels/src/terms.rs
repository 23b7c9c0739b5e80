//! The inputs of the products.

/// A matrix in row-major order.
#[derive(Debug, Clone, Copy)]
pub enum RowMajorMatrix<'a> {
    /// Numbers in f32.
    F32(&'a [f32]),
    /// The upper halves of numbers in f32 (bf16).
    Bf16(&'a [u16]),
    /// Integers, and a scale for each row.
    Int8 {
        rounded: &'a [i8],
        /// A scale for each row.
        scales: Scales<'a>,
    },
}

/// A number for each row of a matrix.
#[derive(Debug, Clone, Copy)]
pub enum Scales<'a> {
    /// Numbers in f32.
    F32(&'a [f32]),
    /// The upper halves of numbers in f32 (bf16).
    Bf16(&'a [u16]),
}

#[derive(Debug, Clone, Copy)]
pub struct Heads {
    pub n: usize,
    /// The number of key heads. It divides the number of query heads.
    pub n_kv: usize,
    pub width: usize,
}

pub(crate) const MOST_SHARING: usize = 16;
/// A row's width is a multiple of this.
pub const ALIGNMENT: usize = 16;

/// Keys and values of all sequences: `[n_kv, n_positions, width]` each.
pub(crate) struct Cached<'a, W> {
    pub(crate) keys: &'a [W],
    pub(crate) values: &'a [W],
}

/// Consecutive rows with the same adapter.
#[derive(Debug)]
pub struct Slot<'a> {
    pub first: usize,
    pub n: usize,
    pub pairs: Vec<LowRankPair<'a>>,
}

/// One part of an adapter: it adds `B A x` to some columns.
#[derive(Debug, Clone, Copy)]
pub struct LowRankPair<'a> {
    pub column: usize,
    /// `[rank, width]`.
    pub a: &'a [f32],
    /// `[columns, rank]`.
    pub b: &'a [f32],
}

// === impl LowRankPair ===

impl LowRankPair<'_> {
    pub(crate) fn rank(&self, width: usize) -> usize {
        self.a.len() / width
    }

    pub(crate) fn fits(&self, width: usize, n_out: usize) -> bool {
        let rank = self.rank(width);
        rank > 0
            && rank.is_multiple_of(ALIGNMENT)
            && rank * width == self.a.len()
            && self.b.len().is_multiple_of(rank)
            && self.column + self.b.len() / rank <= n_out
    }
}
