//! Low-rank adapters on the projections of a layer, and on the LM head.
//!
//! `y = W x + (alpha / rank) B A x` with `A: [rank, d_in]`, `B: [d_out, rank]` (LoRA, <https://arxiv.org/abs/2106.09685>).
//! The parameters of a set are *immutable*: an optimiser step makes a new set, so that a stream that
//! samples with the old one, or a training job that is half done, never sees a weight move.
//!
//! Parameters, gradients and optimiser state are f32. On a CPU, the products `B A x` are also computed in f32, even
//! beside a bf16 base, because they are a few percent of a step (SmolLM2, two cores, 480 tokens: 2.5 s in f32 and in
//! bf16). On a GPU they are computed in the dtype of the base ([`Lora::with_layers_in`]), because a step in f32 took 1.2
//! times as long. Training and serving use the same dtype, so that both sides of an importance ratio agree.

mod error;
mod head;
mod layer;
mod param;
mod projection;
mod segment;
mod spec;
mod stack;
mod target;

use std::collections::BTreeMap;

use tch::{Kind, Tensor};

pub use self::error::LoraError;
pub use self::head::HeadLora;
pub use self::layer::{LayerLora, LoraPair, LowRank};
use self::param::Param;
pub use self::projection::{FusedPart, Projection};
use self::projection::{N_PROJECTIONS, PEFT_HEAD_BASE, Side};
pub use self::segment::Segment;
pub use self::spec::LoraSpec;
pub use self::stack::AdapterStack;
pub use self::target::{ALONE, BaseDims, IN_PART, LoraTargets};
use crate::placement::Placement;
use crate::rng::SplitMix64;
use crate::torch::Result;

/// The adapters of a whole model: the trainable parameters, and nothing else.
#[derive(Debug)]
pub struct Lora {
    /// Rank, alpha and targets.
    pub spec: LoraSpec,
    /// The base's dimensions, kept for checks.
    pub dims: BaseDims,
    layers: Vec<LayerLora>,
    head: Option<HeadLora>,
}

// === impl Lora ===

impl Lora {
    /// A fresh set: `A` uniform in `±1/sqrt(d_in)` (PEFT's default, `kaiming_uniform(a = sqrt 5)`), `B` zero, f32.
    ///
    /// Every matrix draws from a generator of its own, so a seed gives the same values whatever else is adapted.
    ///
    /// # Shapes
    /// `A`: `[rank, d_in]`, `B`: `[d_out, rank]` of each target, widths as [`BaseDims`] has them; f32, on the CPU.
    ///
    /// # Errors
    /// What [`LoraSpec::checked`] refuses, and libtorch.
    pub fn init(
        spec: LoraSpec,
        dims: BaseDims,
        n_layers: usize,
        seed: u64,
    ) -> Result<Self, LoraError> {
        Self::build(spec, dims, n_layers, |param, shape| {
            let Some(stream) = param.stream() else {
                return Ok(Tensor::f_zeros(shape, (Kind::Float, tch::Device::Cpu))?);
            };
            let bound = (1.0 / shape[1] as f64).sqrt();
            let mut rng = SplitMix64::stream(seed, stream);
            let n = shape[0] * shape[1];
            let values: Vec<f64> = (0..n).map(|_| rng.uniform(-bound, bound)).collect();
            let a = Tensor::f_from_slice(&values)?.f_reshape(shape)?;
            Ok(a.f_to_kind(Kind::Float)?)
        })
    }

    /// Makes a set from tensors with PEFT's names, as f32.
    ///
    /// # Shapes
    /// `tensors`: as [`Lora::init`] makes them, in any float dtype. Returns f32. The copy of the base's LM head that PEFT
    /// puts beside an adapter of it is left out. A text model alone and as a part of a model of text and images name the
    /// same layers differently; both names are read.
    ///
    /// # Errors
    /// A missing, unexpected or misshaped tensor, by name.
    pub fn from_named(
        spec: LoraSpec,
        dims: BaseDims,
        n_layers: usize,
        mut tensors: BTreeMap<String, Tensor>,
    ) -> Result<Self, LoraError> {
        if spec.targets.lm_head
            && let Some(base) = tensors.remove(PEFT_HEAD_BASE)
        {
            check_shape(PEFT_HEAD_BASE.into(), &base, &[dims.vocab, dims.hidden])?;
        }
        let set = Self::build(spec, dims, n_layers, |param, wanted| {
            let names = [dims.layers_at, ALONE, IN_PART].map(|at| param.peft_name(at));
            let found = names.iter().find(|name| tensors.contains_key(*name));
            let tensor = take(&mut tensors, found.unwrap_or(&names[0]).clone(), &wanted)?;
            Ok(tensor.f_to_kind(Kind::Float)?)
        })?;
        match tensors.into_keys().next() {
            Some(name) => Err(LoraError::Unexpected { name }),
            None => Ok(set),
        }
    }

    fn build(
        spec: LoraSpec,
        dims: BaseDims,
        n_layers: usize,
        mut make: impl FnMut(Param, [i64; 2]) -> Result<Tensor, LoraError>,
    ) -> Result<Self, LoraError> {
        let spec = spec.checked(&dims)?;
        let (scale, rank) = (spec.scale(), spec.rank);
        let mut side = |param: Param| make(param, param.shape(&dims, rank));
        let mut pair = |of: &dyn Fn(Side) -> Param| {
            let (a, b) = (side(of(Side::A))?, side(of(Side::B))?);
            Ok::<_, LoraError>(LoraPair { a, b })
        };
        let mut layers = Vec::with_capacity(n_layers);
        for layer in 0..n_layers {
            let mut pairs = [const { None }; N_PROJECTIONS];
            let here = spec.targets.layers.iter();
            for &target in here.filter(|&&target| dims.has(layer, target)) {
                pairs[target as usize] = Some(pair(&|side| Param::Layer(layer, target, side))?);
            }
            layers.push(LayerLora::new(scale, pairs));
        }
        let head = spec
            .targets
            .lm_head
            .then(|| pair(&Param::Head))
            .transpose()?;
        let head = head.map(|pair| HeadLora { scale, pair });
        Ok(Self {
            spec,
            dims,
            layers,
            head,
        })
    }

    /// The adapters of layer `i`, if the model has that many layers.
    ///
    /// # Shapes
    /// As [`Lora::init`] makes them, in the dtype of the set.
    pub fn layer(&self, i: usize) -> Option<&LayerLora> {
        self.layers.get(i)
    }

    /// The adapter of the LM head, if it has one.
    ///
    /// # Shapes
    /// As [`Lora::init`] makes them, in the dtype of the set.
    pub fn head(&self) -> Option<&HeadLora> {
        self.head.as_ref()
    }

    /// How many parameters the layers before `i` have.
    pub fn n_params_before(&self, i: usize) -> usize {
        let before = self.layers.iter().take(i);
        before.map(|layer| layer.params().count()).sum()
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
    /// Of each adapted map `[rank, d_in]`, then `[d_out, rank]`, the LM head last; f32.
    pub fn params(&self) -> impl Iterator<Item = &Tensor> {
        let head = self.head.iter().flat_map(|h| [&h.pair.a, &h.pair.b]);
        self.layers.iter().flat_map(LayerLora::params).chain(head)
    }

    /// The PEFT names, in the order of [`Lora::params`].
    pub fn names(&self) -> Vec<String> {
        const SIDES: [Side; 2] = [Side::A, Side::B];
        let of_layer = |layer| {
            let of_target =
                move |&target: &Projection| SIDES.map(|side| Param::Layer(layer, target, side));
            let here = self.spec.targets.layers.iter();
            here.filter(move |&&target| self.dims.has(layer, target))
                .flat_map(of_target)
        };
        let layers = (0..self.layers.len()).flat_map(of_layer);
        let head = self.head.iter().flat_map(|_| SIDES.map(Param::Head));
        let all = layers.chain(head);
        all.map(|param| param.peft_name(self.dims.layers_at))
            .collect()
    }

    /// The same set with each parameter replaced, in the order of [`Lora::params`].
    ///
    /// # Shapes
    /// `f` is given, and must return, those of [`Lora::params`]; the dtype may change. For a set that serves it is also given the
    /// tensors that hold several `A`.
    ///
    /// # Errors
    /// The first that `f` returns.
    pub fn try_map<E>(&self, mut f: impl FnMut(&Tensor) -> Result<Tensor, E>) -> Result<Self, E> {
        self.try_map_parts(|_, tensor| f(tensor))
    }

    /// As [`Lora::try_map`]. `f` is also given the layer; `None` is the LM head.
    fn try_map_parts<E>(
        &self,
        mut f: impl FnMut(Option<usize>, &Tensor) -> Result<Tensor, E>,
    ) -> Result<Self, E> {
        let layers = self.layers.iter().enumerate();
        let layers = layers.map(|(i, layer)| layer.try_map(|tensor| f(Some(i), tensor)));
        let layers = layers.collect::<Result<_, E>>()?;
        let head = self
            .head
            .as_ref()
            .map(|head| head.try_map(|tensor| f(None, tensor)));
        Ok(Self {
            spec: self.spec.clone(),
            dims: self.dims,
            layers,
            head: head.transpose()?,
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

    /// A copy for serving: no gradients, f32, each layer where the model's is, the scale multiplied into every `B`.
    ///
    /// # Shapes
    /// As they are, f32.
    ///
    /// # Errors
    /// What libtorch refuses.
    pub fn for_serving(&self, placement: &Placement) -> Result<Self> {
        let mut served = self.placed(placement)?;
        for layer in &mut served.layers {
            layer.prepare_for_serving()?;
        }
        if let Some(head) = &mut served.head {
            head.prepare_for_serving()?;
        }
        Ok(served)
    }

    /// A copy for products: the adapters of layers in `kind`, that of the LM head in f32 as its logits are.
    ///
    /// # Shapes
    /// As they are.
    ///
    /// # Errors
    /// What libtorch refuses.
    pub fn with_layers_in(&self, kind: Kind) -> Result<Self> {
        self.try_map_parts(|layer, tensor| match layer {
            Some(_) => tensor.f_to_kind(kind),
            None => Ok(tensor.shallow_clone()),
        })
    }

    /// The same set without gradients, in f32, with each layer on its device. Tensors that already fit are shared by
    /// new handles.
    ///
    /// # Shapes
    /// As they are, f32.
    ///
    /// # Errors
    /// What libtorch refuses.
    pub fn placed(&self, placement: &Placement) -> Result<Self> {
        self.try_map_parts(|layer, tensor| {
            let device = layer.map_or_else(|| placement.last(), |layer| placement.of(layer));
            let there = tensor.f_detach()?.f_to_device(device)?;
            there.f_to_kind(Kind::Float)
        })
    }

    /// New handles on the same tensors, without gradients. Two threads must not share one handle.
    ///
    /// # Shapes
    /// As they are.
    ///
    /// # Errors
    /// What libtorch refuses.
    pub fn handles(&self) -> Result<Self> {
        self.try_map(Tensor::f_detach)
    }
}

/// Takes a tensor of a shape out of those of a file.
///
/// # Errors
/// [`LoraError::Missing`] and [`LoraError::Shape`].
pub(crate) fn take(
    tensors: &mut BTreeMap<String, Tensor>,
    name: String,
    wanted: &[i64],
) -> Result<Tensor, LoraError> {
    let Some(tensor) = tensors.remove(&name) else {
        return Err(LoraError::Missing { name });
    };
    check_shape(name, &tensor, wanted)?;
    Ok(tensor)
}

fn check_shape(name: String, tensor: &Tensor, wanted: &[i64]) -> Result<(), LoraError> {
    let found = tensor.size();
    if found == wanted {
        return Ok(());
    }
    let wanted = wanted.to_vec();
    Err(LoraError::Shape {
        name,
        found,
        wanted,
    })
}

#[cfg(test)]
mod tests;
