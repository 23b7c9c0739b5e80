//! A linear map: weight, bias and whatever adapters stand beside them.
//!
//! Maps that read the same input are one matrix (q, k and v; gate and up), so that a step on a CPU reads one
//! long matrix instead of three short ones. The adapters of its parts are one product with the stacked A and
//! one product with each B; those of a few rows on a CPU are computed together ([`metaclaw_kernels::adapt`]).

use tch::Tensor;

use crate::few_rows::{self, AdaptedRows};
use crate::lora::{FusedPart, LayerLora, Lora, Projection};
use crate::matrix::Matrix;
use crate::torch::Result;

/// `y = W x + b`, for one projection or several that read the same `x`.
#[derive(Debug)]
pub struct Linear {
    /// `[out, in]` as PyTorch's `Linear`.
    pub weight: Matrix,
    /// `[out]`, in the engine's dtype.
    pub bias: Option<Tensor>,
    /// The projections in the order of their rows.
    pub parts: Vec<FusedPart>,
}

/// Rows of a batch that go through the same adapter.
#[derive(Debug, Clone, Copy)]
pub struct Segment<'a> {
    pub start: i64,
    pub len: i64,
    pub lora: &'a Lora,
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
}

impl<'a> From<Option<&'a LayerLora>> for LayerAdapters<'a> {
    fn from(lora: Option<&'a LayerLora>) -> Self {
        lora.map_or(Self::None, Self::One)
    }
}

// === impl Segment ===

impl<'a> Segment<'a> {
    /// A selection of all `len` rows, if there is an adapter.
    pub fn whole(len: i64, lora: Option<&'a Lora>) -> Option<Self> {
        let start = 0;
        lora.map(|lora| Self { start, len, lora })
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
        let y = match adapters {
            LayerAdapters::Rows { .. } => self.weight.product_to_serve(x, bias)?,
            LayerAdapters::None | LayerAdapters::One(_) => self.weight.product(x, bias)?,
        };
        match adapters {
            LayerAdapters::None => Ok(y),
            LayerAdapters::One(lora) => match lora.delta(&self.parts, x)? {
                Some(delta) => y.f_add(&delta),
                None => Ok(y),
            },
            LayerAdapters::Rows { segments, layer } => {
                if !self.adapt_together(x, &y, segments, layer)? {
                    self.adapt_one_by_one(x, &y, segments, layer)?;
                }
                Ok(y)
            }
        }
    }

    /// Computes all adapters in one call, for few rows and served sets. Returns whether it did.
    fn adapt_together(
        &self,
        x: &Tensor,
        y: &Tensor,
        segments: &[Segment<'_>],
        layer: usize,
    ) -> Result<bool> {
        let mut slots = Vec::with_capacity(segments.len());
        for segment in segments {
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
            let rows = |t: &Tensor| t.f_narrow(1, segment.start, segment.len);
            let lora = segment.lora.layer(layer);
            if let Some(delta) = lora.map(|l| l.delta(&self.parts, &rows(x)?)).transpose()?
                && let Some(delta) = delta
            {
                // Adds in place to the fresh output, never to a weight.
                let _sum = rows(y)?.f_add_(&delta)?;
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
