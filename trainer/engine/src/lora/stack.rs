//! Several adapters in one batch on a GPU, computed by batched products.
//!
//! The replies of a batch may each have another adapter. For every linear map of a layer, the `A` matrices of these adapters are
//! stacked in one tensor and their `B` matrices in another. Then two batched products (`bmm`) compute what all adapters add to the
//! map's output, however many adapters there are. One product for each adapter is slow, because starting a product takes a GPU
//! longer than computing such a small one: eight adapters took three times as long as one.

use tch::{Kind, Tensor};

use super::projection::{FusedPart, Projection};
use super::{LayerLora, Lora, Segment};
use crate::pack::to_i64;
use crate::torch::Result;

/// The most adapters in a stack, which takes 0.1 GB for each (4B parameters, rank 16). More adapters are computed one by one.
const MOST: usize = 16;

/// The stacked adapters of a batch, in the order of its segments and in the dtype of the model. The next batches use it again as long
/// as they have the same adapters in the same order.
#[derive(Debug)]
pub struct AdapterStack {
    /// The first parameter of each adapter, by whose address the adapter is recognised. This handle keeps the tensor alive, so that no
    /// other tensor gets the address.
    of: Vec<Tensor>,
    /// For each layer the pairs of its four maps (q, k and v; o; gate and up; down); `None` for a map without adapters.
    layers: Vec<[Option<StackedPair>; 4]>,
}

/// The matrices of one map for `n` adapters. Those of adapters with a smaller rank are filled up with zeros. In a map of several
/// projections, `A` has the rows of all of them, and `B` a block for each.
#[derive(Debug)]
struct StackedPair {
    /// `[n, in, rank]`.
    a: Tensor,
    /// `[n, rank, out]`.
    b: Tensor,
}

// === impl AdapterStack ===

impl AdapterStack {
    /// Stacks the adapters of the segments. Returns `None` if there are too many of them, or if one is not prepared for serving.
    /// `layers` has the projections of each layer's four maps: into the mixer, out of it, gate and up, down.
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

    /// Whether it was made from the adapters of these segments.
    pub(crate) fn is_of(&self, segments: &[Segment<'_>]) -> bool {
        let pairs = || self.of.iter().zip(segments);
        let is_same = |(own, segment): (&Tensor, &Segment<'_>)| {
            first(segment.lora).is_some_and(|other| other.data_ptr() == own.data_ptr())
        };
        self.of.len() == segments.len() && pairs().all(is_same)
    }

    /// Adds the outputs of a map's adapters for `x` to `y`, the map's own output, in place.
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
