//! The adapters of a batch on a GPU, stacked: two products of matrices side by side for each map, whoever's rows they are.
//!
//! A GPU starts a product no faster for being small. One by one, eight adapters took three times as long as one.

use tch::{Device, Kind, Tensor};

use super::projection::{FusedPart, Projection};
use super::{LayerLora, Lora, Segment};
use crate::pack::to_i64;
use crate::torch::Result;

/// More adapters than this are computed one by one: a stack takes 0.1 GB for each (4B parameters, rank 16).
const MOST: usize = 16;
/// Rows that are filled up to this many times as many are computed side by side.
const MOST_FILLED: i64 = 4;

/// Adapters in the order of a batch's segments, in the dtype of the model. It is good for as long as the batch has the same ones.
#[derive(Debug)]
pub struct AdapterStack {
    /// A parameter of each. While a handle on it is held, no other adapter has its address.
    of: Vec<Tensor>,
    /// Of each layer, one for each map, if it is adapted.
    layers: Vec<[Option<StackedPair>; 4]>,
}

/// `A` of all parts of a map one under the other, and their `B` in blocks; ranks are filled up with zeros.
#[derive(Debug)]
struct StackedPair {
    /// `[n, in, rank]`.
    a: Tensor,
    /// `[n, rank, out]`.
    b: Tensor,
}

/// Which rows of a batch are whose.
#[derive(Debug)]
pub enum StackedRows {
    /// As many for each adapter, side by side from `first` on.
    Even { first: i64, n: i64 },
    /// Filled up to as many for each, side by side from `first` on.
    Filled {
        first: i64,
        /// The row of each place, `[adapters * most]`, i64.
        rows: Tensor,
        /// The place of each row, `[rows]`, i64.
        places: Tensor,
    },
    /// Start and length for each adapter.
    OneByOne(Vec<(i64, i64)>),
}

// === impl AdapterStack ===

impl AdapterStack {
    /// `None` where the segments' adapters are not for this: too many, or not all for serving. `layers`: the projections of each
    /// layer's maps, which are q, k and v; o; gate and up; down.
    ///
    /// # Errors
    /// What libtorch refuses, for want of memory above all.
    pub(crate) fn new<'a>(
        layers: impl Iterator<Item = [&'a [FusedPart]; 4]>,
        segments: &[Segment<'_>],
        kind: Kind,
    ) -> Result<Option<Self>> {
        let is_served = |segment: &Segment<'_>| {
            let layer = segment.lora.layer(0);
            layer.is_some_and(LayerLora::is_for_serving)
        };
        if segments.is_empty() || segments.len() > MOST || !segments.iter().all(is_served) {
            return Ok(None);
        }
        let layers = layers.enumerate().map(|(layer, maps)| {
            let [qkv, o, gate_up, down] =
                maps.map(|parts| StackedPair::new(parts, layer, segments, kind));
            Ok([qkv?, o?, gate_up?, down?])
        });
        let firsts = segments.iter().filter_map(|segment| first(segment.lora));
        Ok(Some(Self {
            layers: layers.collect::<Result<_>>()?,
            of: firsts.map(Tensor::shallow_clone).collect(),
        }))
    }

    /// Whether it is of these segments' adapters.
    pub(crate) fn is_of(&self, segments: &[Segment<'_>]) -> bool {
        let pairs = || self.of.iter().zip(segments);
        let is_same = |(own, segment): (&Tensor, &Segment<'_>)| {
            first(segment.lora).is_some_and(|other| other.data_ptr() == own.data_ptr())
        };
        self.of.len() == segments.len() && pairs().all(is_same)
    }

    /// Adds what the adapters of a map say of `x` to its fresh output `y`.
    ///
    /// # Shapes
    /// `x`: `[1, t, in]`, `y`: `[1, t, out]`, in the dtype of the model.
    ///
    /// # Errors
    /// What libtorch refuses.
    pub(crate) fn add(
        &self,
        parts: &[FusedPart],
        layer: usize,
        rows: &StackedRows,
        [x, y]: [&Tensor; 2],
    ) -> Result<()> {
        use Projection::{Down, Gate, K, O, Q, Up, V};
        let map = match parts.first().map(|part| part.projection) {
            None => return Ok(()),
            Some(Q | K | V) => 0,
            Some(O) => 1,
            Some(Gate | Up) => 2,
            Some(Down) => 3,
        };
        let Some(StackedPair { a, b }) = self.layers.get(layer).and_then(|maps| maps[map].as_ref())
        else {
            return Ok(());
        };
        let n = a.size3()?.0;
        let [x, y] = [x.f_select(0, 0)?, y.f_select(0, 0)?];
        match rows {
            StackedRows::Even { first, n: each } => {
                let side_by_side =
                    |t: &Tensor| t.f_narrow(0, *first, n * each)?.f_view([n, *each, -1]);
                let low = side_by_side(&x)?.f_bmm(a)?;
                let _sum = side_by_side(&y)?.f_baddbmm_(&low, b)?;
            }
            StackedRows::Filled {
                first,
                rows,
                places,
            } => {
                let filled = x.f_index_select(0, rows)?.f_view([n, -1, x.size2()?.1])?;
                let delta = filled.f_bmm(a)?.f_bmm(b)?.f_view([-1, y.size2()?.1])?;
                let own = places.size1()?;
                let _sum = y
                    .f_narrow(0, *first, own)?
                    .f_add_(&delta.f_index_select(0, places)?)?;
            }
            StackedRows::OneByOne(segments) => {
                for (i, (start, len)) in (0..).zip(segments) {
                    let low = x.f_narrow(0, *start, *len)?.f_mm(&a.f_get(i)?)?;
                    let _sum = y.f_narrow(0, *start, *len)?.f_addmm_(&low, &b.f_get(i)?)?;
                }
            }
        }
        Ok(())
    }
}

fn first(lora: &Lora) -> Option<&Tensor> {
    lora.params().next()
}

// === impl StackedPair ===

impl StackedPair {
    fn new(
        parts: &[FusedPart],
        layer: usize,
        segments: &[Segment<'_>],
        kind: Kind,
    ) -> Result<Option<Self>> {
        let pairs = |segment: &Segment<'_>| {
            let mut column = 0;
            let pairs = parts.iter().filter_map(|part| {
                let start = column;
                column += part.width;
                let pair = segment.lora.layer(layer)?.get(part.projection)?;
                Some((start, pair.a.shallow_clone(), pair.b.shallow_clone()))
            });
            pairs.collect::<Vec<_>>()
        };
        let adapted: Vec<Vec<(i64, Tensor, Tensor)>> = segments.iter().map(pairs).collect();
        let rank = |pairs: &Vec<(i64, Tensor, Tensor)>| {
            pairs.iter().map(|(_, a, _)| a.size()[0]).sum::<i64>()
        };
        let most = adapted.iter().map(rank).max().unwrap_or(0);
        let Some((_, like, _)) = adapted.iter().flatten().next() else {
            return Ok(None);
        };
        let (n, wide) = (to_i64(segments.len()), like.size2()?.1);
        let out: i64 = parts.iter().map(|part| part.width).sum();
        let zeros = |rows, columns| Tensor::f_zeros([n, rows, columns], (kind, like.device()));
        let (stacked_a, stacked_b) = (zeros(most, wide)?, zeros(out, most)?);
        for (i, pairs) in (0..).zip(&adapted) {
            let mut row = 0;
            for (column, a, b) in pairs {
                let (rank, width) = (a.size2()?.0, b.size2()?.0);
                stacked_a.f_get(i)?.f_narrow(0, row, rank)?.f_copy_(a)?;
                let block = stacked_b.f_get(i)?.f_narrow(0, *column, width)?;
                block.f_narrow(1, row, rank)?.f_copy_(b)?;
                row += rank;
            }
        }
        Ok(Some(Self {
            a: stacked_a.f_transpose(1, 2)?,
            b: stacked_b.f_transpose(1, 2)?,
        }))
    }
}

// === impl StackedRows ===

impl StackedRows {
    /// # Errors
    /// What libtorch refuses.
    pub(crate) fn new(segments: &[Segment<'_>], device: Device) -> Result<Self> {
        let first = segments.first().map_or(0, |segment| segment.start);
        let most = segments
            .iter()
            .map(|segment| segment.len)
            .max()
            .unwrap_or(0);
        let mut end = first;
        let mut are_side_by_side = true;
        for segment in segments {
            are_side_by_side &= segment.start == end;
            end = segment.start + segment.len;
        }
        let n_places = most * to_i64(segments.len());
        if are_side_by_side && segments.iter().all(|segment| segment.len == most) {
            return Ok(Self::Even { first, n: most });
        }
        if !are_side_by_side || segments.len() < 3 || n_places > MOST_FILLED * (end - first) {
            let all = segments.iter().map(|segment| (segment.start, segment.len));
            return Ok(Self::OneByOne(all.collect()));
        }
        let (mut rows, mut places) = (Vec::new(), Vec::new());
        for segment in segments {
            places.extend((0..segment.len).map(|i| to_i64(rows.len()) + i));
            rows.extend((0..most).map(|i| segment.start + i.min(segment.len - 1)));
        }
        Ok(Self::Filled {
            first,
            rows: Tensor::f_from_slice(&rows)?.f_to_device(device)?,
            places: Tensor::f_from_slice(&places)?.f_to_device(device)?,
        })
    }

    /// The same on `device`.
    ///
    /// # Errors
    /// What libtorch refuses.
    pub(crate) fn to_device(&self, device: Device) -> Result<Self> {
        Ok(match self {
            Self::Even { first, n } => Self::Even {
                first: *first,
                n: *n,
            },
            Self::Filled {
                first,
                rows,
                places,
            } => Self::Filled {
                first: *first,
                rows: rows.f_to_device(device)?,
                places: places.f_to_device(device)?,
            },
            Self::OneByOne(segments) => Self::OneByOne(segments.clone()),
        })
    }
}
