//! Several short samples in one row, each blind to the others.
//!
//! A row holds whole samples one after the other: positions restart at each, and a mask keeps attention
//! within it. So no padding is ever computed. The plan depends on lengths alone, never on time: the
//! same batch gives the same sums in the same order, and so the same bits, on every run.

use tch::{Device, Kind, TchError, Tensor};

/// A sample's place in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Which sample.
    pub sample: usize,
    /// Its first position in the row.
    pub start: usize,
    /// Its length.
    pub len: usize,
}

/// Samples that are computed together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// In order, without gaps.
    pub pieces: Vec<Piece>,
}

/// Packs samples of these lengths into rows of at most `capacity` positions; a longer one gets a row of its own.
///
/// First fit, longest first, which needs at most 11/9 of the fewest rows possible.
pub fn pack(lengths: &[usize], capacity: usize) -> Vec<Row> {
    let mut order: Vec<usize> = (0..lengths.len()).collect();
    order.sort_by_key(|&i| std::cmp::Reverse(lengths[i]));
    let mut rows: Vec<Row> = Vec::new();
    for sample in order {
        let len = lengths[sample];
        let fits = |row: &&mut Row| row.len() + len <= capacity;
        match rows.iter_mut().find(fits) {
            Some(row) => row.push(sample, len),
            None => rows.push(Row {
                pieces: vec![Piece {
                    sample,
                    start: 0,
                    len,
                }],
            }),
        }
    }
    rows
}

// === impl Row ===

impl Row {
    /// Positions in all.
    pub fn len(&self) -> usize {
        self.pieces.last().map_or(0, |last| last.start + last.len)
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn push(&mut self, sample: usize, len: usize) {
        let start = self.len();
        self.pieces.push(Piece { sample, start, len });
    }

    /// Each position's place in its own sample, `[t]`, i64.
    ///
    /// # Errors
    /// What libtorch refuses.
    pub fn positions(&self, device: Device) -> Result<Tensor, TchError> {
        let of_piece = |piece: &Piece| 0..to_i64(piece.len);
        let positions: Vec<i64> = self.pieces.iter().flat_map(of_piece).collect();
        Tensor::f_from_slice(&positions)?.f_to_device(device)
    }

    /// What is added to attention scores, `[t, t]`: 0 where a position sees another, else minus infinity.
    /// `None` when one sample fills the row, for which the plain triangle is right and faster.
    ///
    /// # Errors
    /// What libtorch refuses.
    pub fn mask(&self, kind: Kind, device: Device) -> Result<Option<Tensor>, TchError> {
        if self.pieces.len() < 2 {
            return Ok(None);
        }
        let blocked = |n: i64| Tensor::f_full([n, n], f64::NEG_INFINITY, (kind, device));
        let mask = blocked(to_i64(self.len()))?;
        for piece in &self.pieces {
            let (start, len) = (to_i64(piece.start), to_i64(piece.len));
            let mut block = mask.f_narrow(0, start, len)?.f_narrow(1, start, len)?;
            block.f_copy_(&blocked(len)?.f_triu(1)?)?;
        }
        Ok(Some(mask))
    }
}

/// Lengths are bounded by the context, far below the limit of the type.
pub(crate) fn to_i64(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn short_ones_share_a_row_and_long_ones_stand_alone() {
        let rows = pack(&[3, 9, 4, 2], 8);
        let samples: Vec<Vec<usize>> = rows
            .iter()
            .map(|row| row.pieces.iter().map(|p| p.sample).collect())
            .collect();
        assert_eq!(samples, [vec![1], vec![2, 0], vec![3]]);
    }

    #[test]
    fn a_position_sees_its_own_sample_up_to_itself() {
        let row = &pack(&[2, 3], 8)[0];
        let mask = row.mask(Kind::Float, Device::Cpu).unwrap().unwrap();
        let sees = |i: i64, j: i64| mask.double_value(&[i, j]) == 0.0;
        for i in 0..5 {
            for j in 0..5 {
                let same = (i < 3) == (j < 3);
                assert_eq!(sees(i, j), same && j <= i, "{i} {j}");
            }
        }
        let positions = Vec::<i64>::try_from(&row.positions(Device::Cpu).unwrap()).unwrap();
        assert_eq!(positions, [0, 1, 2, 0, 1]);
        assert!(
            pack(&[5], 8)[0]
                .mask(Kind::Float, Device::Cpu)
                .unwrap()
                .is_none()
        );
    }

    proptest! {
        #[test]
        fn each_sample_is_placed_once_without_gaps(
            lengths in prop::collection::vec(1usize..40, 0..20), capacity in 1usize..64,
        ) {
            let rows = pack(&lengths, capacity);
            let mut seen = vec![0; lengths.len()];
            for row in &rows {
                let mut next = 0;
                for piece in &row.pieces {
                    prop_assert_eq!(piece.start, next);
                    prop_assert_eq!(piece.len, lengths[piece.sample]);
                    seen[piece.sample] += 1;
                    next += piece.len;
                }
                prop_assert!(row.len() <= capacity || row.pieces.len() == 1);
            }
            prop_assert!(seen.iter().all(|&n| n == 1));
        }
    }
}
