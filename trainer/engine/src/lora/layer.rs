//! The adapters of one layer.

use tch::Tensor;

use super::projection::{FusedPart, N_PROJECTIONS, Projection};
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
    pairs: [Option<LoraPair>; N_PROJECTIONS],
    /// The `A` matrices of each of [`GROUPS`], one under the other. A set that serves has them, and its pairs are views of them.
    stacked: [Option<Tensor>; GROUPS.len()],
}

/// What adapters add to an output, as a product that was not computed yet: `low bᵀ`, in the dtype of the adapters.
#[derive(Debug)]
pub struct LowRank {
    /// `[n, rank]`, multiplied by the scale.
    low: Tensor,
    /// `[d_out, rank]`.
    b: Tensor,
}

/// Projections that read the same input.
const GROUPS: [&[Projection]; 3] = [
    &[Projection::Q, Projection::K, Projection::V],
    &[Projection::Gate, Projection::Up],
    &[
        Projection::NetA,
        Projection::NetB,
        Projection::NetQkv,
        Projection::NetZ,
    ],
];

// === impl LoraPair ===

impl LoraPair {
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

// === impl LowRank ===

impl LowRank {
    /// Adds it to an output in place; differentiable. The output must be fresh and no view: a weight may never be given.
    ///
    /// # Shapes
    /// `y`: `[n, d_out]`, any float dtype.
    ///
    /// # Errors
    /// What libtorch refuses.
    pub fn add_to(&self, y: &mut Tensor) -> Result<()> {
        let (b, kind) = (self.b.f_tr()?, y.f_kind()?);
        let _sum = if kind == self.low.f_kind()? {
            y.f_addmm_(&self.low, &b)?
        } else {
            y.f_add_(&self.low.f_mm(&b)?.f_to_kind(kind)?)?
        };
        Ok(())
    }
}

// === impl LayerLora ===

impl LayerLora {
    pub(super) fn new(scale: f64, pairs: [Option<LoraPair>; N_PROJECTIONS]) -> Self {
        Self {
            scale,
            pairs,
            stacked: [const { None }; GROUPS.len()],
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

    /// What the adapters of some projections add to their base outputs side by side; `None` without adapters.
    ///
    /// Several are computed with one product for all `A`, and one for all `B`, in blocks.
    ///
    /// # Shapes
    /// `x`: `[n, d_in]`, any float dtype. The sum is `[n, sum of the parts' widths]`.
    ///
    /// # Errors
    /// What libtorch refuses, a width that does not fit above all.
    pub fn delta(&self, parts: &[FusedPart], x: &Tensor) -> Result<Option<LowRank>> {
        let Some([a, b]) = self.matrices(parts)? else {
            return Ok(None);
        };
        let low = x.f_to_kind(a.f_kind()?)?.f_linear(&a, None::<Tensor>)?;
        let low = scaled(low, self.scale)?;
        Ok(Some(LowRank { low, b }))
    }

    /// The `A` matrices of some projections one under the other, `[rank, d_in]`, and their `B` matrices in blocks,
    /// `[sum of widths, rank]`. `None` if none of them has an adapter.
    pub(super) fn matrices(&self, parts: &[FusedPart]) -> Result<Option<[Tensor; 2]>> {
        let pairs: Vec<_> = parts.iter().map(|p| self.get(p.projection)).collect();
        let adapted: Vec<&LoraPair> = pairs.iter().copied().flatten().collect();
        let Some(first) = adapted.first() else {
            return Ok(None);
        };
        if parts.len() == 1 {
            return Ok(Some([first.a.shallow_clone(), first.b.shallow_clone()]));
        }
        let a = match adapted.as_slice() {
            [one] => one.a.shallow_clone(),
            _ => self.stacked_a(parts, &adapted)?,
        };
        let b = blocks(parts, &pairs, a.size2()?.0)?;
        Ok(Some([a, b]))
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
    /// `f` is given, and must return, those of [`LayerLora::params`], and then those of the stacked `A`, if the set serves; the
    /// dtype may change.
    ///
    /// # Errors
    /// The first that `f` returns.
    pub fn try_map<E>(&self, mut f: impl FnMut(&Tensor) -> Result<Tensor, E>) -> Result<Self, E> {
        let mut new = Self::new(self.scale, [const { None }; N_PROJECTIONS]);
        for (new, old) in new.pairs.iter_mut().zip(&self.pairs) {
            *new = old.as_ref().map(|old| old.try_map(&mut f)).transpose()?;
        }
        for (new, old) in new.stacked.iter_mut().zip(&self.stacked) {
            *new = old.as_ref().map(&mut f).transpose()?;
        }
        Ok(new)
    }
}

/// The `B` of some projections, each in its rows and in the columns of its rank; zeros elsewhere.
fn blocks(parts: &[FusedPart], pairs: &[Option<&LoraPair>], rank: i64) -> Result<Tensor> {
    let mut column = 0;
    let mut like = None;
    let mut blocks = Vec::with_capacity(parts.len());
    for pair in pairs.iter().copied().flatten() {
        let own = pair.b.size2()?.1;
        let padding = [column, rank - column - own];
        blocks.push(pair.b.f_constant_pad_nd(padding)?);
        column += own;
        like = Some((pair.b.f_kind()?, pair.b.device()));
    }
    let mut blocks = blocks.into_iter();
    let rows = parts
        .iter()
        .zip(pairs)
        .map(|(part, pair)| match (pair, like) {
            (None, Some(like)) => Tensor::f_zeros([part.width, rank], like).map(Some),
            _ => Ok(blocks.next()),
        });
    let rows: Vec<Option<Tensor>> = rows.collect::<Result<_>>()?;
    let rows: Vec<&Tensor> = rows.iter().flatten().collect();
    Tensor::f_cat(&rows, 0)
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
