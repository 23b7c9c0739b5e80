//! The adapters of one layer.

use tch::Tensor;

use super::projection::{FusedPart, Projection};
use crate::torch::Result;

/// `A` and `B` of one projection.
#[derive(Debug)]
pub struct LoraPair {
    /// `[rank, d_in]`.
    pub a: Tensor,
    /// `[d_out, rank]`.
    pub b: Tensor,
}

/// The adapters of one layer.
#[derive(Debug)]
pub struct LayerLora {
    /// `alpha / rank`.
    pub scale: f64,
    pairs: [Option<LoraPair>; 7],
    /// The `A` of each of [`GROUPS`], one under the other: made once for a set that serves, whose pairs are views of it.
    stacked: [Option<Tensor>; 2],
}

/// Projections that read the same input.
const GROUPS: [&[Projection]; 2] = [
    &[Projection::Q, Projection::K, Projection::V],
    &[Projection::Gate, Projection::Up],
];

// === impl LoraPair ===

impl LoraPair {
    /// `scale * B A x`, computed in the dtype of the pair.
    ///
    /// # Shapes
    /// `x`: `[.., d_in]`, any float dtype. Returns `[.., d_out]` in that dtype.
    ///
    /// # Errors
    /// What libtorch refuses, a width that does not fit above all.
    pub fn apply(&self, x: &Tensor, scale: f64) -> Result<Tensor> {
        let low = x
            .f_to_kind(self.a.f_kind()?)?
            .f_linear(&self.a, None::<Tensor>)?;
        let delta = scaled(low, scale)?.f_linear(&self.b, None::<Tensor>)?;
        delta.f_to_kind(x.f_kind()?)
    }

    pub(super) fn try_map<E>(
        &self,
        mut f: impl FnMut(&Tensor) -> Result<Tensor, E>,
    ) -> Result<Self, E> {
        Ok(Self {
            a: f(&self.a)?,
            b: f(&self.b)?,
        })
    }
}

// === impl LayerLora ===

impl LayerLora {
    pub(super) fn new(scale: f64, pairs: [Option<LoraPair>; 7]) -> Self {
        Self {
            scale,
            pairs,
            stacked: [None, None],
        }
    }

    /// The pair of a projection, if it is adapted.
    ///
    /// # Shapes
    /// `a`: `[rank, d_in]`, `b`: `[d_out, rank]`, in the dtype of the set.
    pub fn get(&self, projection: Projection) -> Option<&LoraPair> {
        self.pairs[projection as usize].as_ref()
    }

    /// Whether the scale is in each `B`.
    pub(crate) fn is_for_serving(&self) -> bool {
        is_one(self.scale)
    }

    /// The sum that the adapters of some projections add to their base outputs, side by side; `None` without adapters.
    ///
    /// Several adapters are computed with one product for all `A`.
    ///
    /// Several are computed with one product for all `A`.
    ///
    /// # Shapes
    /// `x`: `[.., d_in]`, any float dtype. Returns `[.., sum of the parts' widths]` in that dtype.
    ///
    /// # Errors
    /// What libtorch refuses, a width that does not fit above all.
    pub fn delta(&self, parts: &[FusedPart], x: &Tensor) -> Result<Option<Tensor>> {
        let pairs: Vec<_> = parts.iter().map(|p| self.get(p.projection)).collect();
        let adapted: Vec<&LoraPair> = pairs.iter().copied().flatten().collect();
        let Some(first) = adapted.first() else {
            return Ok(None);
        };
        if parts.len() == 1 {
            return first.apply(x, self.scale).map(Some);
        }
        let x_in = x.f_to_kind(first.a.f_kind()?)?;
        let low = x_in.f_linear(&self.stacked_a(parts, &adapted)?, None::<Tensor>)?;
        let n = i64::try_from(adapted.len()).unwrap_or(1);
        let mut lows = scaled(low, self.scale)?.f_chunk(n, -1)?.into_iter();
        let mut deltas = Vec::with_capacity(parts.len());
        for (part, pair) in parts.iter().zip(pairs) {
            if let Some((pair, low)) = pair.and_then(|pair| Some((pair, lows.next()?))) {
                deltas.push(low.f_linear(&pair.b, None::<Tensor>)?);
                continue;
            }
            let mut shape = x.size();
            shape.pop();
            shape.push(part.width);
            deltas.push(Tensor::f_zeros(&shape, (x_in.f_kind()?, x_in.device()))?);
        }
        Tensor::f_cat(&deltas, -1)?.f_to_kind(x.f_kind()?).map(Some)
    }

    fn stacked_a(&self, parts: &[FusedPart], adapted: &[&LoraPair]) -> Result<Tensor> {
        let first = parts.first().map(|part| part.projection);
        let groups = GROUPS.iter().zip(&self.stacked);
        let made = groups
            .filter(|(group, _)| group.first() == first.as_ref())
            .find_map(|(_, a)| a.as_ref());
        match made {
            Some(a) => Ok(a.shallow_clone()),
            None => Tensor::f_cat(&adapted.iter().map(|pair| &pair.a).collect::<Vec<_>>(), 0),
        }
    }

    pub(super) fn converted(&self, convert: impl Fn(&Tensor) -> Result<Tensor>) -> Result<Self> {
        let mut layer = self.try_map(&convert)?;
        for (new, old) in layer.stacked.iter_mut().zip(&self.stacked) {
            *new = old.as_ref().map(&convert).transpose()?;
        }
        Ok(layer)
    }

    /// Multiplies the scale into every `B` and puts the `A` of each group into one tensor.
    pub(super) fn prepare_for_serving(&mut self) -> Result<()> {
        for pair in self.pairs.iter_mut().flatten() {
            pair.b = pair.b.f_mul_scalar(self.scale)?;
        }
        self.scale = 1.0;
        self.stack()
    }

    fn stack(&mut self) -> Result<()> {
        for (group, stacked) in GROUPS.iter().zip(&mut self.stacked) {
            let a = group
                .iter()
                .filter_map(|&p| Some(&self.pairs[p as usize].as_ref()?.a));
            let a: Vec<&Tensor> = a.collect();
            if a.is_empty() {
                continue;
            }
            let all = Tensor::f_cat(&a, 0)?;
            let mut start = 0;
            for &projection in *group {
                if let Some(pair) = self.pairs[projection as usize].as_mut() {
                    let rank = pair.a.size2()?.0;
                    pair.a = all.f_narrow(0, start, rank)?;
                    start += rank;
                }
            }
            *stacked = Some(all);
        }
        Ok(())
    }

    /// All parameters: `A` before `B`, projections in order.
    ///
    /// # Shapes
    /// `[rank, d_in]`, then `[d_out, rank]` of each adapted projection, in the dtype of the set.
    pub fn params(&self) -> impl Iterator<Item = &Tensor> {
        let pairs = self.pairs.iter().flatten();
        pairs.flat_map(|pair| [&pair.a, &pair.b])
    }

    /// The same layer with each parameter replaced.
    ///
    /// # Shapes
    /// `f` is given, and must return, those of [`LayerLora::params`]; the dtype may change.
    ///
    /// # Errors
    /// The first that `f` returns.
    pub fn try_map<E>(&self, mut f: impl FnMut(&Tensor) -> Result<Tensor, E>) -> Result<Self, E> {
        let mut pairs = [const { None }; 7];
        for (new, old) in pairs.iter_mut().zip(&self.pairs) {
            if let Some(old) = old {
                *new = Some(old.try_map(&mut f)?);
            }
        }
        Ok(Self::new(self.scale, pairs))
    }
}

/// The scale multiplies the narrow tensor: `rank` numbers for a token instead of `d_out`. Served sets have it in `B`.
pub(super) fn scaled(low: Tensor, scale: f64) -> Result<Tensor> {
    if is_one(scale) {
        return Ok(low);
    }
    low.f_mul_scalar(scale)
}

fn is_one(scale: f64) -> bool {
    (scale - 1.0).abs() < f64::EPSILON
}
