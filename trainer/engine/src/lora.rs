//! Low-rank adapters on the seven projections of a layer.
//!
//! `y = W x + (alpha / rank) B A x` with `A: [rank, d_in]`, `B: [d_out, rank]` (LoRA, <https://arxiv.org/abs/2106.09685>).
//! The parameters of a set are *immutable*: an optimiser step makes a new set, so that a stream that
//! samples with the old one, or a training job that is half done, never sees a weight move.
//!
//! Masters are f32, and so is the branch, over a bf16 base too: it is a few percent of a step (SmolLM2, two
//! cores, 480 tokens: 2.5 s, and 2.5 s with the branch in bf16), and both sides of an importance ratio agree.

mod target;

use std::collections::BTreeMap;

use tch::{Kind, TchError, Tensor};

pub use self::target::{LayerDims, LoraError, Projection, Side, peft_name};
use crate::linear::Part;
use crate::rng::SplitMix64;

/// What a set of adapters looks like before it has weights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoraSpec {
    /// Width of the bottleneck; 1 or more.
    pub rank: i64,
    /// The numerator of the scale `alpha / rank`. Tinker and PEFT users know 32, whatever the rank.
    pub alpha: u32,
    /// The projections that get a pair, each once, in the order of [`Projection::ALL`].
    pub targets: Vec<Projection>,
}

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

/// The adapters of a whole model: the trainable parameters, and nothing else.
#[derive(Debug)]
pub struct Lora {
    /// Rank, alpha and targets.
    pub spec: LoraSpec,
    /// Base widths, kept for checks.
    pub dims: LayerDims,
    layers: Vec<LayerLora>,
}

// === impl LoraSpec ===

impl Default for LoraSpec {
    fn default() -> Self {
        Self {
            rank: 32,
            alpha: 32,
            targets: Projection::ALL.to_vec(),
        }
    }
}

impl LoraSpec {
    /// `alpha / rank`.
    pub fn scale(&self) -> f64 {
        f64::from(self.alpha) / self.rank as f64
    }

    /// Puts the targets in order, each once, and checks all against a model's widths.
    ///
    /// # Errors
    /// [`LoraError::Rank`], [`LoraError::Alpha`], [`LoraError::NoTargets`].
    pub fn checked(mut self, dims: &LayerDims) -> Result<Self, LoraError> {
        let (rank, max) = (self.rank, dims.narrowest());
        if !(1..=max).contains(&rank) {
            return Err(LoraError::Rank { rank, max });
        }
        if self.alpha == 0 {
            return Err(LoraError::Alpha);
        }
        self.targets.sort_unstable();
        self.targets.dedup();
        if self.targets.is_empty() {
            return Err(LoraError::NoTargets);
        }
        Ok(self)
    }
}

// === impl LoraPair ===

impl LoraPair {
    /// `scale * B A x`, computed in the dtype of the pair and returned in that of `x`.
    ///
    /// # Shapes
    /// `x`: `[.., d_in]`. Returns `[.., d_out]`.
    ///
    /// # Errors
    /// What libtorch refuses, a width that does not fit above all.
    pub fn apply(&self, x: &Tensor, scale: f64) -> Result<Tensor, TchError> {
        let low = x
            .f_to_kind(self.a.f_kind()?)?
            .f_linear(&self.a, None::<Tensor>)?;
        let delta = scaled(low, scale)?.f_linear(&self.b, None::<Tensor>)?;
        delta.f_to_kind(x.f_kind()?)
    }

    fn try_map<E>(&self, mut f: impl FnMut(&Tensor) -> Result<Tensor, E>) -> Result<Self, E> {
        Ok(Self {
            a: f(&self.a)?,
            b: f(&self.b)?,
        })
    }
}

// === impl LayerLora ===

impl LayerLora {
    /// The pair of a projection, if it is adapted.
    pub fn get(&self, projection: Projection) -> Option<&LoraPair> {
        self.pairs[projection as usize].as_ref()
    }

    /// What the adapters of some projections add to their base outputs, side by side; `None` where there are none.
    ///
    /// Several are computed with one product for all `A` (P6 of the plan: 18 small kernels become 9).
    ///
    /// # Shapes
    /// `x`: `[.., d_in]`. Returns `[.., sum of the parts' widths]` in the dtype of `x`.
    ///
    /// # Errors
    /// What libtorch refuses, a width that does not fit above all.
    pub fn delta(&self, parts: &[Part], x: &Tensor) -> Result<Option<Tensor>, TchError> {
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
            let low = pair.and_then(|pair| Some((pair, lows.next()?)));
            deltas.push(match low {
                Some((pair, low)) => low.f_linear(&pair.b, None::<Tensor>)?,
                None => {
                    let mut shape = x.size();
                    shape.pop();
                    shape.push(part.width);
                    Tensor::f_zeros(&shape, (x_in.f_kind()?, x_in.device()))?
                }
            });
        }
        Tensor::f_cat(&deltas, -1)?.f_to_kind(x.f_kind()?).map(Some)
    }

    fn stacked_a(&self, parts: &[Part], adapted: &[&LoraPair]) -> Result<Tensor, TchError> {
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

    /// Puts the `A` of each group into one tensor.
    fn stack(&mut self) -> Result<(), TchError> {
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

    /// All parameters, `A` before `B`, projections in order.
    pub fn params(&self) -> impl Iterator<Item = &Tensor> {
        self.pairs
            .iter()
            .flatten()
            .flat_map(|pair| [&pair.a, &pair.b])
    }

    /// How many of [`LayerLora::params`] belong to attention; those come first.
    pub fn n_attention(&self) -> usize {
        let [q, k, v, o, _, _, _] = &self.pairs;
        [q, k, v, o].into_iter().flatten().count() * 2
    }

    /// The same layer with every parameter replaced.
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
        Ok(Self {
            scale: self.scale,
            pairs,
            stacked: [None, None],
        })
    }
}

// === impl Lora ===

impl Lora {
    /// A fresh set: `A` uniform in `±1/sqrt(d_in)` (PEFT's default, `kaiming_uniform(a = sqrt 5)`), `B` zero, f32.
    ///
    /// Every matrix draws from a generator of its own, so a seed gives the same values whatever else is adapted.
    ///
    /// # Errors
    /// What [`LoraSpec::checked`] refuses, and libtorch.
    pub fn init(
        spec: LoraSpec,
        dims: LayerDims,
        n_layers: usize,
        seed: u64,
    ) -> Result<Self, LoraError> {
        Self::build(spec, dims, n_layers, |layer, projection, side, shape| {
            let size = shape[0] * shape[1];
            match side {
                Side::B => Ok(Tensor::f_zeros(shape, (Kind::Float, tch::Device::Cpu))?),
                Side::A => {
                    let bound = (1.0 / shape[1] as f64).sqrt();
                    let stream = (layer as u64) << 8 | projection as u64;
                    let mut rng = SplitMix64::stream(seed, stream);
                    let values: Vec<f64> = (0..size).map(|_| rng.uniform(-bound, bound)).collect();
                    let a = Tensor::f_from_slice(&values)?.f_reshape(shape)?;
                    Ok(a.f_to_kind(Kind::Float)?)
                }
            }
        })
    }

    /// A set from tensors by their PEFT names, as f32.
    ///
    /// # Errors
    /// A missing, unexpected or misshaped tensor, by name.
    pub fn from_named(
        spec: LoraSpec,
        dims: LayerDims,
        n_layers: usize,
        mut tensors: BTreeMap<String, Tensor>,
    ) -> Result<Self, LoraError> {
        let set = Self::build(spec, dims, n_layers, |layer, projection, side, wanted| {
            let name = peft_name(layer, projection, side);
            let Some(tensor) = tensors.remove(&name) else {
                return Err(LoraError::Missing { name });
            };
            let found = tensor.size();
            if found != wanted {
                return Err(LoraError::Shape {
                    name,
                    found,
                    wanted: wanted.to_vec(),
                });
            }
            Ok(tensor.f_to_kind(Kind::Float)?)
        })?;
        match tensors.into_keys().next() {
            Some(name) => Err(LoraError::Unexpected { name }),
            None => Ok(set),
        }
    }

    fn build(
        spec: LoraSpec,
        dims: LayerDims,
        n_layers: usize,
        mut make: impl FnMut(usize, Projection, Side, [i64; 2]) -> Result<Tensor, LoraError>,
    ) -> Result<Self, LoraError> {
        let spec = spec.checked(&dims)?;
        let mut layers = Vec::with_capacity(n_layers);
        for layer in 0..n_layers {
            let mut pairs = [const { None }; 7];
            for &target in &spec.targets {
                let mut side =
                    |side| make(layer, target, side, dims.shape(target, side, spec.rank));
                pairs[target as usize] = Some(LoraPair {
                    a: side(Side::A)?,
                    b: side(Side::B)?,
                });
            }
            let scale = spec.scale();
            layers.push(LayerLora {
                scale,
                pairs,
                stacked: [None, None],
            });
        }
        Ok(Self { spec, dims, layers })
    }

    /// The adapters of layer `i`, if the model has that many layers.
    pub fn layer(&self, i: usize) -> Option<&LayerLora> {
        self.layers.get(i)
    }

    /// How many layers there are.
    pub fn n_layers(&self) -> usize {
        self.layers.len()
    }

    /// How many numbers are trained.
    pub fn n_params(&self) -> usize {
        self.params().map(Tensor::numel).sum()
    }

    /// Every parameter in the one order that gradients and optimiser state share.
    pub fn params(&self) -> impl Iterator<Item = &Tensor> {
        self.layers.iter().flat_map(LayerLora::params)
    }

    /// The PEFT names, in the order of [`Lora::params`].
    pub fn names(&self) -> Vec<String> {
        let of_layer = |layer| {
            let of_target = move |&target: &Projection| {
                [Side::A, Side::B].map(|side| peft_name(layer, target, side))
            };
            self.spec.targets.iter().flat_map(of_target)
        };
        (0..self.layers.len()).flat_map(of_layer).collect()
    }

    /// The same set with every parameter replaced, in the order of [`Lora::params`].
    ///
    /// # Errors
    /// The first that `f` returns.
    pub fn try_map<E>(&self, mut f: impl FnMut(&Tensor) -> Result<Tensor, E>) -> Result<Self, E> {
        let layers = self.layers.iter().map(|layer| layer.try_map(&mut f));
        Ok(Self {
            spec: self.spec.clone(),
            dims: self.dims,
            layers: layers.collect::<Result<_, E>>()?,
        })
    }

    /// A second handle on the same storage.
    #[must_use]
    pub fn shallow_clone(&self) -> Self {
        let clone = |t: &Tensor| Ok::<_, std::convert::Infallible>(t.shallow_clone());
        match self.try_map(clone) {
            Ok(set) => set,
            Err(never) => match never {},
        }
    }

    /// A copy for serving: no gradients, f32, the scale multiplied into every `B`.
    ///
    /// # Errors
    /// What libtorch refuses.
    pub fn for_serving(&self, device: tch::Device) -> Result<Self, TchError> {
        let mut served = self.to_kind(Kind::Float, device)?;
        for layer in &mut served.layers {
            for pair in layer.pairs.iter_mut().flatten() {
                pair.b = pair.b.f_mul_scalar(layer.scale)?;
            }
            layer.scale = 1.0;
            layer.stack()?;
        }
        Ok(served)
    }

    /// A copy without gradients, in another dtype or on another device.
    ///
    /// # Errors
    /// What libtorch refuses.
    pub fn to_kind(&self, kind: Kind, device: tch::Device) -> Result<Self, TchError> {
        let convert = |t: &Tensor| t.f_detach()?.f_to_device(device)?.f_to_kind(kind);
        let mut set = self.try_map(convert)?;
        for (new, old) in set.layers.iter_mut().zip(&self.layers) {
            for (new, old) in new.stacked.iter_mut().zip(&old.stacked) {
                *new = old.as_ref().map(convert).transpose()?;
            }
        }
        Ok(set)
    }
}

/// The scale goes on the narrow tensor: rank numbers a token rather than `d_out`. Served sets have it in `B`.
fn scaled(low: Tensor, scale: f64) -> Result<Tensor, TchError> {
    if (scale - 1.0).abs() < f64::EPSILON {
        return Ok(low);
    }
    low.f_mul_scalar(scale)
}

#[cfg(test)]
mod tests;
