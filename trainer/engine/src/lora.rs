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
}

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
        // The scale goes on the narrow tensor: rank numbers a token rather than d_out. Served sets have it in B.
        let low = if (scale - 1.0).abs() < f64::EPSILON {
            low
        } else {
            low.f_mul_scalar(scale)?
        };
        let delta = low.f_linear(&self.b, None::<Tensor>)?;
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

    /// Adds a projection's adapter to its base output `y = W x`.
    ///
    /// # Shapes
    /// `x`: `[.., d_in]`, `y`: `[.., d_out]`; returns `y`'s shape and dtype.
    ///
    /// # Errors
    /// What libtorch refuses.
    pub fn add(&self, projection: Projection, x: &Tensor, y: Tensor) -> Result<Tensor, TchError> {
        match self.get(projection) {
            Some(pair) => y.f_add(&pair.apply(x, self.scale)?),
            None => Ok(y),
        }
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
        let scale = self.scale;
        Ok(Self { scale, pairs })
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
            layers.push(LayerLora { scale, pairs });
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
        }
        Ok(served)
    }

    /// A copy without gradients, in another dtype or on another device.
    ///
    /// # Errors
    /// What libtorch refuses.
    pub fn to_kind(&self, kind: Kind, device: tch::Device) -> Result<Self, TchError> {
        self.try_map(|t| t.f_detach()?.f_to_device(device)?.f_to_kind(kind))
    }
}

#[cfg(test)]
mod tests;
