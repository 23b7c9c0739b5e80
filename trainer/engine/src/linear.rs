//! A linear map: weight, bias and the adapters beside them.
//!
//! Projections that read the same input are one matrix (q, k and v; gate and up), so that a step on a CPU reads one
//! long matrix instead of three short ones. The adapters of such projections are computed by one product with their `A`
//! one under the other, and one with their `B` in blocks. If the rows of a batch have several adapters, all of them are
//! computed in one call for a few rows on a CPU ([`metaclaw_kernels::adapt`]), and by two batched products on a GPU
//! ([`AdapterStack`]).

use tch::Tensor;

use crate::aten;
use crate::few_rows::{self, AdaptedRows};
use crate::lora::{AdapterStack, FusedPart, LayerLora, Projection, Segment};
use crate::matrix::Matrix;
use crate::torch::Result;

/// `y = W x + b`, for one projection or several that read the same `x`.
#[derive(Debug)]
pub struct Linear {
    /// `[out, in]` as PyTorch's `Linear`.
    pub weight: Matrix,
    /// `[out]`, in the engine's dtype.
    pub bias: Option<Tensor>,
    /// The projections in the order of their rows; none of a map that is never adapted.
    pub parts: Vec<FusedPart>,
}

/// The adapters beside the base weights of one layer.
#[derive(Debug, Clone, Copy)]
pub enum LayerAdapters<'a> {
    None,
    /// One adapter for all rows; differentiable.
    One(&'a LayerLora),
    /// An adapter for each of some rows; inference only. Rows that no segment names have none.
    Rows {
        segments: &'a [Segment<'a>],
        /// Which layer of their adapters.
        layer: usize,
    },
    /// The same for a batch on a GPU.
    Stacked {
        stack: &'a AdapterStack,
        segments: &'a [Segment<'a>],
        layer: usize,
    },
}

impl<'a> From<Option<&'a LayerLora>> for LayerAdapters<'a> {
    fn from(lora: Option<&'a LayerLora>) -> Self {
        lora.map_or(Self::None, Self::One)
    }
}

// === impl Linear ===

impl Linear {
    /// The map, adapters included.
    ///
    /// # Shapes
    /// `x`: `[1, t, in]` (`[b, t, in]` where one adapter is for all), the engine's dtype. Returns `[.., out]` in the same.
    ///
    /// # Errors
    /// What libtorch refuses, a width that does not fit above all.
    pub fn forward(&self, x: &Tensor, adapters: LayerAdapters<'_>) -> Result<Tensor> {
        let bias = self.bias.as_ref();
        match adapters {
            LayerAdapters::None => self.weight.product(x, bias),
            LayerAdapters::One(lora) => {
                // Outputs are not views of others, which the way back would have to copy.
                let mut shape = x.size();
                let rows = x.f_reshape([-1, shape.pop().unwrap_or(0)])?;
                let mut y = self.weight.product(&rows, bias)?;
                if let Some(delta) = lora.delta(&self.parts, &rows)? {
                    delta.add_to(&mut y)?;
                }
                shape.push(y.size2()?.1);
                y.f_view(shape.as_slice())
            }
            LayerAdapters::Rows { segments, layer } => {
                let y = self.weight.product_to_serve(x, bias)?;
                if !self.adapt_together(x, &y, segments, layer)? {
                    self.adapt_one_by_one(x, &y, segments, layer)?;
                }
                Ok(y)
            }
            LayerAdapters::Stacked {
                stack,
                segments,
                layer,
            } => {
                let y = self.weight.product(x, bias)?;
                stack.add(&self.parts, layer, segments, [x, &y])?;
                Ok(y)
            }
        }
    }

    /// Adds the map's output to `sum` in place. It does so only for a map without bias and adapters, because a GPU computes that in
    /// one call. Returns whether it did.
    ///
    /// # Shapes
    /// `sum`: `[1, t, out]`, f32. `x`: `[1, t, in]`, the engine's dtype.
    ///
    /// # Errors
    /// As [`Self::forward`].
    pub fn add_to(&self, sum: &Tensor, x: &Tensor, adapters: LayerAdapters<'_>) -> Result<bool> {
        let (Matrix::Plain(weight), None, LayerAdapters::None) =
            (&self.weight, &self.bias, adapters)
        else {
            return Ok(false);
        };
        aten::add_product(&mut sum.f_select(0, 0)?, &x.f_select(0, 0)?, weight)?;
        Ok(true)
    }

    /// Computes all adapters in one call. It does so only for few rows, and for adapters that are prepared for serving. Returns
    /// whether it did.
    fn adapt_together(
        &self,
        x: &Tensor,
        y: &Tensor,
        segments: &[Segment<'_>],
        layer: usize,
    ) -> Result<bool> {
        let mut slots = Vec::with_capacity(segments.len());
        for segment in segments.iter().filter(|_| !self.parts.is_empty()) {
            let Some(lora) = segment.lora.layer(layer) else {
                continue;
            };
            if !lora.is_for_serving() {
                return Ok(false);
            }
            let mut column = 0;
            let pairs = self.parts.iter().filter_map(|part| {
                let first = column;
                column += part.width;
                let pair = lora.get(part.projection)?;
                Some((first, &pair.a, &pair.b))
            });
            slots.push(AdaptedRows {
                rows: (segment.start, segment.len),
                pairs: pairs.collect(),
            });
        }
        if slots.is_empty() {
            return Ok(true);
        }
        few_rows::adapt(x, y, &slots)
    }

    fn adapt_one_by_one(
        &self,
        x: &Tensor,
        y: &Tensor,
        segments: &[Segment<'_>],
        layer: usize,
    ) -> Result<()> {
        for segment in segments {
            let rows = |t: &Tensor| t.f_select(0, 0)?.f_narrow(0, segment.start, segment.len);
            if let Some(lora) = segment.lora.layer(layer)
                && let Some(delta) = lora.delta(&self.parts, &rows(x)?)?
            {
                delta.add_to(&mut rows(y)?)?;
            }
        }
        Ok(())
    }

    /// The weight of one projection. It is a view unless the matrix is rounded.
    ///
    /// # Shapes
    /// Returns `[width of the projection, in]` in the engine's dtype.
    ///
    /// # Errors
    /// Never for a projection that is a part; else what libtorch says of an empty slice.
    pub fn weight_of(&self, projection: Projection) -> Result<Tensor> {
        let before = self.parts.iter().take_while(|p| p.projection != projection);
        let start = before.map(|part| part.width).sum();
        let found = self.parts.iter().find(|p| p.projection == projection);
        self.weight
            .plain()?
            .f_narrow(0, start, found.map_or(0, |p| p.width))
    }
}
