//! Low-rank adapters on the seven projections of a layer.
//!
//! `y = W x + (alpha / rank) B A x` with `A: [rank, d_in]`, `B: [d_out, rank]` (LoRA, <https://arxiv.org/abs/2106.09685>).
//! The parameters of a set are *immutable*: an optimiser step makes a new set, so that a stream that
//! samples with the old one, or a training job that is half done, never sees a weight move.
//!
//! Masters are f32, and so is the branch, over a bf16 base too: it is a few percent of a step (SmolLM2, two
//! cores, 480 tokens: 2.5 s, and 2.5 s with the branch in bf16), and both sides of an importance ratio agree.

mod layer;
mod target;

use std::collections::BTreeMap;

use metaclaw_trainer_terms::{DEFAULT_ALPHA, DEFAULT_RANK};
use tch::{Kind, TchError, Tensor};

pub use self::layer::{LayerLora, LoraPair};
pub use self::target::{LayerDims, LoraError, Part, Projection, Side, peft_name};
use crate::rng::SplitMix64;

/// What a set of adapters looks like before it has weights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoraSpec {
    /// Width of the bottleneck; 1 or more.
    pub rank: i64,
    /// The numerator of the scale `alpha / rank`.
    pub alpha: u32,
    /// The projections that get a pair, each once, in the order of [`Projection::ALL`].
    pub targets: Vec<Projection>,
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
            rank: DEFAULT_RANK.into(),
            alpha: DEFAULT_ALPHA,
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

// === impl Lora ===

impl Lora {
    /// A fresh set: `A` uniform in `±1/sqrt(d_in)` (PEFT's default, `kaiming_uniform(a = sqrt 5)`), `B` zero, f32.
    ///
    /// Every matrix draws from a generator of its own, so a seed gives the same values whatever else is adapted.
    ///
    /// # Shapes
    /// `A`: `[rank, d_in]`, `B`: `[d_out, rank]` of each target, widths as [`LayerDims`] has them; f32, on the CPU.
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
    /// # Shapes
    /// `tensors`: as [`Lora::init`] makes them, in any float dtype. Returns f32.
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
            layers.push(LayerLora::new(spec.scale(), pairs));
        }
        Ok(Self { spec, dims, layers })
    }

    /// The adapters of layer `i`, if the model has that many layers.
    ///
    /// # Shapes
    /// As [`Lora::init`] makes them, in the dtype of the set.
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
    ///
    /// # Shapes
    /// Of each adapted projection `[rank, d_in]`, then `[d_out, rank]`; f32 but for what [`Lora::to_kind`] made.
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
    /// # Shapes
    /// `f` is given, and must return, those of [`Lora::params`]; the dtype may change.
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
    ///
    /// # Shapes
    /// As they are.
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
    /// # Shapes
    /// As they are, f32.
    ///
    /// # Errors
    /// What libtorch refuses.
    pub fn for_serving(&self, device: tch::Device) -> Result<Self, TchError> {
        let mut served = self.to_kind(Kind::Float, device)?;
        for layer in &mut served.layers {
            layer.prepare_for_serving()?;
        }
        Ok(served)
    }

    /// A copy without gradients, in another dtype or on another device.
    ///
    /// # Shapes
    /// As they are, in `kind`.
    ///
    /// # Errors
    /// What libtorch refuses.
    pub fn to_kind(&self, kind: Kind, device: tch::Device) -> Result<Self, TchError> {
        let convert = |t: &Tensor| t.f_detach()?.f_to_device(device)?.f_to_kind(kind);
        let layers = self.layers.iter().map(|layer| layer.converted(convert));
        Ok(Self {
            spec: self.spec.clone(),
            dims: self.dims,
            layers: layers.collect::<Result<_, _>>()?,
        })
    }
}

#[cfg(test)]
mod tests;
