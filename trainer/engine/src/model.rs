//! A whole model: embedding, layers, last norm, LM head.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::f64::consts::FRAC_1_SQRT_2;
use std::path::Path;

use tch::{Device, Kind, Tensor};

use crate::attention::{self, window};
use crate::by_layer::ByLayer;
use crate::delta::{Before, DeltaPlan, Run};
use crate::device::Devices;
use crate::head;
use crate::layer::{Attention, Mixer, layer_forward, rms_norm};
use crate::lora::{AdapterStack, Lora, Segment};
use crate::matrix::Quantization;
use crate::model_config::{KvHeads, ModelConfig};
use crate::pack::to_i64;
use crate::placement::{PerDevice, Placement};
use crate::rope::{Rope, RopeSlice};
use crate::torch::Result;
use crate::weights::{self, LoadError, Weights};

/// A base model on one device or several.
#[derive(Debug)]
pub struct Model {
    pub config: ModelConfig,
    /// Base weights; read-only memory where mapped.
    pub weights: Weights,
    /// Angles of every position up to the context.
    pub ropes: ByLayer<Rope>,
    /// How far each layer sees, as [`LayerSpec`](crate::model_config::LayerSpec) has it, and the heads of what it sees.
    pub sights: ByLayer<(Option<usize>, KvHeads)>,
    /// Dtype of weights and activations.
    pub kind: Kind,
    /// How its matrices are rounded, if they are.
    pub quantization: Option<Quantization>,
    /// The device of each layer.
    pub placement: Placement,
    /// Whether attention can be computed in parts on these devices (`attention::has_parts`).
    pub(crate) has_parts: bool,
    /// Whether batches are computed as on a GPU: attention of all sequences in one call, and the adapters of all rows stacked. Tests set
    /// it on a CPU.
    pub batches_as_gpu: bool,
    /// The weights of all head norms, `[layers, 1, heads, head_dim]`, if the layers have such norms and are on one GPU.
    pub(crate) head_norms: Option<Tensor>,
    /// The stacked adapters of the last batch, for the next one.
    pub(crate) stack: RefCell<Option<AdapterStack>>,
}

impl Model {
    /// Loads a Hugging Face directory; several devices share the layers.
    ///
    /// # Errors
    /// As [`ModelConfig::read`] and [`weights::load`].
    pub fn load(dir: &Path, kind: Kind, devices: &Devices) -> Result<Self, LoadError> {
        Self::load_as(dir, kind, devices, None)
    }

    /// As [`Model::load`], with matrices optionally rounded. Norms and biases are never rounded.
    ///
    /// # Errors
    /// As [`Model::load`].
    pub fn load_as(
        dir: &Path,
        kind: Kind,
        devices: &Devices,
        quantization: Option<Quantization>,
    ) -> Result<Self, LoadError> {
        let config = ModelConfig::read(dir)?;
        let placement = Placement::new(devices, config.n_layers);
        let is_apart =
            |layer: usize| placement.stage_of(config.kv_at(layer)) != placement.stage_of(layer);
        if (0..config.n_layers).any(is_apart) {
            return Err(LoadError::Setting {
                field: "devices",
                value: devices.to_string(),
                allowed: "one device: layers of this model attend to the keys and values of others",
            });
        }
        let weights = weights::load(dir, &config, kind, quantization, &placement)?;
        let turned = |heads: KvHeads| match config.gemma4 {
            Some(_) => heads.dim,
            None => config.rotary,
        };
        let layers = || config.layers.iter().zip(config.all_heads());
        let specs = ByLayer::new(layers().map(|(layer, heads)| (layer.rope, turned(heads))));
        let (first, context) = (placement.first(), config.context);
        let ropes =
            specs.try_map(|(spec, turned)| Rope::new(spec, *turned, context, kind, first))?;
        let widest = config.all_heads().map(|heads| heads.dim).max();
        let has_parts = attention::has_parts(first, kind, widest.unwrap_or(config.head_dim))?;
        let mut model = Self {
            sights: ByLayer::new(layers().map(|(layer, heads)| (layer.window, heads))),
            has_parts,
            batches_as_gpu: has_parts && placement.first() != Device::Cpu,
            config,
            weights,
            ropes,
            kind,
            quantization,
            placement,
            head_norms: None,
            stack: RefCell::default(),
        };
        if model.batches_as_gpu {
            model.collect_head_norms()?;
        }
        Ok(model)
    }

    pub(crate) fn collect_head_norms(&mut self) -> Result<()> {
        let norms = self.weights.layers.iter().map(|layer| match &layer.mixer {
            Mixer::Attention(attention) => attention.qk_norm.as_ref(),
            Mixer::Delta(_) => None,
        });
        let norms: Option<Vec<&Tensor>> = norms.collect();
        let is_on_one = self.placement.first() == self.placement.last();
        let turns_whole = self.config.rotary == self.config.head_dim;
        let are_alike = self.config.gemma4.is_none();
        if let Some(norms) =
            norms.filter(|it| is_on_one && turns_whole && are_alike && !it.is_empty())
        {
            self.head_norms = Some(Tensor::f_stack(&norms, 0)?.f_unsqueeze(1)?);
        }
        Ok(())
    }

    /// The embeddings of ids, which begin the residual stream.
    ///
    /// # Shapes
    /// `ids`: `[b, t]`, i64, on the first device. Returns `[b, t, d]`, f32.
    ///
    /// # Errors
    /// When an id is not below `vocab`.
    pub fn embed(&self, ids: &Tensor) -> Result<Tensor> {
        let mut shape = ids.size();
        shape.push(self.config.hidden);
        let rows = self.weights.embed.rows(&ids.f_reshape([-1])?)?;
        self.scaled(rows, self.config.embed_scale)?
            .f_view(shape.as_slice())
    }

    /// Embeddings times a factor, which is rounded to the dtype of the weights, as in the model's own training.
    fn scaled(&self, rows: Tensor, scale: f64) -> Result<Tensor> {
        #[expect(
            clippy::float_cmp,
            reason = "1 is the absence of a scale, not a result"
        )]
        if scale == 1.0 {
            return Ok(rows);
        }
        let scale = Tensor::f_from_slice(&[scale])?;
        let rounded = scale.f_to_kind(Kind::Float)?.f_to_kind(self.kind)?;
        rows.f_mul_scalar(rounded.f_double_value(&[0])?)
    }

    /// What all layers take from the token ids beside the residual stream, if they do (Gemma 4).
    ///
    /// # Shapes
    /// `ids`: `[b, t]`, i64; `embedded`: `[b, t, d]`, as [`Self::embed`] gives it. Returns `[b, t, layers, own]` in the dtype of the
    /// weights, on the first device.
    ///
    /// # Errors
    /// When an id is not below the vocabulary of these inputs.
    pub fn own_inputs(&self, ids: &Tensor, embedded: &Tensor) -> Result<Option<Tensor>> {
        let Some(own) = &self.weights.own else {
            return Ok(None);
        };
        let (b, t) = ids.size2()?;
        let width = own.norm.size1()?;
        let by_layer = |x: Tensor| x.f_view([b, t, -1, width]);
        let rows = own.embed.rows(&ids.f_reshape([-1])?)?;
        let of_ids = by_layer(self.scaled(rows, (width as f64).sqrt())?)?;
        let mapped = own
            .map
            .product_to_serve(&embedded.f_to_kind(self.kind)?, None)?;
        let mapped = by_layer(mapped.f_mul_scalar((self.config.hidden as f64).powf(-0.5))?)?;
        let mapped = rms_norm(&mapped, &own.norm, self.config.norm_eps, self.kind)?;
        let both = mapped.f_add(&of_ids.f_to_kind(self.kind)?)?;
        both.f_mul_scalar(FRAC_1_SQRT_2).map(Some)
    }

    /// A layer's part of [`Self::own_inputs`], where the layer is.
    ///
    /// # Shapes
    /// `all`: `[b, t, layers, own]`. Returns `[b, t, own]`.
    ///
    /// # Errors
    /// What libtorch reports.
    pub fn own_input(&self, all: Option<&Tensor>, layer: usize) -> Result<Option<Tensor>> {
        let own = all.map(|all| {
            self.placement
                .moved(&all.f_select(2, to_i64(layer))?, layer)
        });
        own.transpose()
    }

    /// Angles of given positions for every layer, where the layer is.
    ///
    /// # Shapes
    /// `positions`: `[t]` or `[b, t]`, i64, on the first device. The angles: as [`Rope::at`] gives them.
    ///
    /// # Errors
    /// What libtorch reports.
    pub fn angles(&self, positions: &Tensor) -> Result<ByLayer<PerDevice<RopeSlice>>> {
        self.ropes.try_map(|rope| {
            let here = rope.at(positions)?;
            self.placement.each(|device| here.to_device(device))
        })
    }

    /// Runs whole rows through all layers; differentiable with respect to `lora`.
    ///
    /// # Shapes
    /// `ids`: `[b, t]`, i64, on the first device, positions from 0. Returns the hidden states before the last norm,
    /// `[b, t, d]`, f32, on the last device.
    ///
    /// # Errors
    /// When an id is not below `vocab` or a row is beyond the context.
    pub fn forward(&self, ids: &Tensor, lora: Option<&Lora>) -> Result<Tensor> {
        let (b, t) = ids.size2()?;
        let t = usize::try_from(t).unwrap_or(0);
        let ropes = self.ropes.try_map(|rope| {
            let here = rope.range(0, t)?;
            self.placement.each(|device| here.to_device(device))
        })?;
        let masks = self.sights.try_map(|&(window, _)| {
            let mask = |device| window::of_whole_rows(t, window, self.kind, device);
            self.placement.each(mask)
        })?;
        let nets = self.config.delta.map(|net| {
            let (state, tail) = (0, 0);
            let before = Before::Past { state, tail };
            let runs: Vec<Run> = (0..b).map(|_| Run { len: t, before }).collect();
            let plan = DeltaPlan::new(&runs, &[], net.kernel, 1, self.placement.first())?;
            self.placement.each(|device| plan.to_device(device))
        });
        let nets = nets.transpose()?;
        let mut x = self.embed(ids)?;
        let own = self.own_inputs(ids, &x)?;
        let mut kept = BTreeMap::new();
        for (i, w) in self.weights.layers.iter().enumerate() {
            let lora = lora.and_then(|l| l.layer(i));
            let mask = masks.of(i)?.of(&self.placement, i)?.as_ref();
            let at = self.config.kv_at(i);
            let mut kv = kept.remove(&at);
            let attention = match (&nets, &w.mixer) {
                (Some(nets), Mixer::Delta(_)) => Attention::Delta {
                    plan: nets.of(&self.placement, i)?,
                    states: None,
                },
                _ => Attention::Causal { mask, kv: &mut kv },
            };
            let rope = ropes.of(i)?.of(&self.placement, i)?;
            x = self.placement.moved(&x, i)?;
            let own = self.own_input(own.as_ref(), i)?;
            x = layer_forward(&self.config, w, lora, (&x, own.as_ref()), rope, attention)?;
            if let Some(kv) = kv.filter(|_| self.config.is_shared(at)) {
                kept.insert(at, kv);
            }
        }
        Ok(x)
    }

    /// The last norm.
    ///
    /// # Shapes
    /// `hidden`: `[.., d]`, f32; returns the same.
    ///
    /// # Errors
    /// When the last axis is not `d`.
    pub fn last_norm(&self, hidden: &Tensor) -> Result<Tensor> {
        let eps = self.config.norm_eps;
        rms_norm(hidden, &self.weights.norm, eps, Kind::Float)
    }

    /// The logits of hidden states. The last norm is applied first; `lora` is the adapter of the LM head.
    ///
    /// # Shapes
    /// `hidden`: `[.., d]`, before the last norm, f32. Returns `[.., vocab]`, f32.
    ///
    /// # Errors
    /// When the last axis is not `d`.
    pub fn logits(&self, hidden: &Tensor, lora: Option<&Lora>) -> Result<Tensor> {
        let mut shape = hidden.size();
        let (d, vocab) = (self.config.hidden, self.config.vocab);
        let hidden_nd = hidden.f_reshape([-1, d])?;
        if let Some(last) = shape.last_mut() {
            *last = vocab;
        }
        let whole = Segment::whole(hidden_nd.size2()?.0, lora);
        self.logits_of_rows(&hidden_nd, whole.as_slice())?
            .f_reshape(&shape)
    }

    /// The logits of rows of several adapters. The last norm is applied first.
    ///
    /// # Shapes
    /// `hidden_nd`: `[n, d]`, before the last norm, f32. Returns `[n, vocab]`, f32.
    ///
    /// # Errors
    /// When the last axis is not `d`, or a segment lies beyond the rows.
    pub fn logits_of_rows(&self, hidden_nd: &Tensor, adapters: &[Segment<'_>]) -> Result<Tensor> {
        let hidden_nd = self.last_norm(hidden_nd)?;
        let cap = self.config.logit_cap;
        head::logits(&hidden_nd, &self.weights.lm_head, adapters, cap)
    }
}

#[cfg(test)]
mod tests;
