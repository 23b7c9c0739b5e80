//! The adapters of a batch on a GPU, stacked: two products of matrices side by side for each map, whoever's rows they are.
//!
//! A GPU starts a product no faster for being small. One by one, eight adapters took three times as long as one.

use tch::{Kind, Tensor};

use super::projection::{FusedPart, Projection};
use super::{LayerLora, Lora, Segment};
use crate::pack::to_i64;
use crate::torch::Result;

/// More adapters than this are computed one by one: a stack takes 0.1 GB for each (4B parameters, rank 16).
const MOST: usize = 16;
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

// === impl AdapterStack ===

impl AdapterStack {
    /// `None` where the segments' adapters are not for this: too many, or not all for serving. `layers`: the projections of each
    /// layer's maps, which are those into and out of its mixer; gate and up; down.
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
            let [into, out, gate_up, down] =
                maps.map(|parts| StackedPair::new(parts, layer, segments, kind));
            Ok([into?, out?, gate_up?, down?])
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
        segments: &[Segment<'_>],
        [x, y]: [&Tensor; 2],
    ) -> Result<()> {
        use Projection::{Down, Gate, K, NetA, NetB, NetOut, NetQkv, NetZ, O, Q, Up, V};
        let map = match parts.first().map(|part| part.projection) {
            None => return Ok(()),
            Some(Q | K | V | NetA | NetB | NetQkv | NetZ) => 0,
            Some(O | NetOut) => 1,
            Some(Gate | Up) => 2,
            Some(Down) => 3,
        };
        let pair = self.layers.get(layer).and_then(|maps| maps[map].as_ref());
        let (Some(StackedPair { a, b }), Some(first)) = (pair, segments.first()) else {
            return Ok(());
        };
        let [x, y] = [x.f_select(0, 0)?, y.f_select(0, 0)?];
        let is_even = |(i, segment): (i64, &Segment<'_>)| {
            segment.len == first.len && segment.start == first.start + i * first.len
        };
        if (0..).zip(segments).all(is_even) {
            let n = to_i64(segments.len());
            let side_by_side = |t: &Tensor| {
                t.f_narrow(0, first.start, n * first.len)?
                    .f_view([n, first.len, -1])
            };
            let low = side_by_side(&x)?.f_bmm(a)?;
            let _sum = side_by_side(&y)?.f_baddbmm_(&low, b)?;
            return Ok(());
        }
        for (i, segment) in (0..).zip(segments) {
            let rows = |t: &Tensor| t.f_narrow(0, segment.start, segment.len);
            let low = rows(&x)?.f_mm(&a.f_get(i)?)?;
            let _sum = rows(&y)?.f_addmm_(&low, &b.f_get(i)?)?;
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
        let of = |segment: &Segment<'_>| match segment.lora.layer(layer) {
            Some(lora) => lora.matrices(parts),
            None => Ok(None),
        };
        let found: Vec<Option<[Tensor; 2]>> = segments.iter().map(of).collect::<Result<_>>()?;
        let ranks = found.iter().flatten().map(|[a, _]| a.size()[0]);
        let (Some(most), Some([a, b])) = (ranks.max(), found.iter().flatten().next()) else {
            return Ok(None);
        };
        let (options, n) = ((kind, a.device()), to_i64(found.len()));
        let all_a = Tensor::f_zeros([n, most, a.size2()?.1], options)?;
        let all_b = Tensor::f_zeros([n, b.size2()?.0, most], options)?;
        for (i, pair) in (0..).zip(&found) {
            let Some([a, b]) = pair else { continue };
            let rank = a.size2()?.0;
            all_a.f_get(i)?.f_narrow(0, 0, rank)?.f_copy_(a)?;
            all_b.f_get(i)?.f_narrow(1, 0, rank)?.f_copy_(b)?;
        }
        Ok(Some(Self {
            a: all_a.f_transpose(1, 2)?,
            b: all_b.f_transpose(1, 2)?,
        }))
    }
}
