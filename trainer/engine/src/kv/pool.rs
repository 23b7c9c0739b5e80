//! The tensors behind the pages.

use tch::{Kind, Tensor};

use super::PAGE;
use super::states::LayerStates;
use crate::model_config::ModelConfig;
use crate::placement::Placement;
use crate::torch::Result;

/// Keys and values of one layer.
#[derive(Debug)]
pub struct LayerKv {
    /// Keys, then values: `[2 * n_kv_heads, n_positions, head_dim]`, the model's dtype.
    both: Tensor,
    /// `[n_kv_heads, n_positions, head_dim]`, a view.
    pub k: Tensor,
    /// As `k`.
    pub v: Tensor,
}

/// Keys and values of all layers, allocated once.
#[derive(Debug)]
pub struct KvPool {
    layers: Vec<LayerKv>,
    /// Of the layers that have no keys and values.
    states: Vec<Option<LayerStates>>,
    n_pages: usize,
    n_states: usize,
}

// === impl LayerKv ===

impl LayerKv {
    /// Writes new positions to their slots.
    ///
    /// # Shapes
    /// `new`: keys, then values, `[t, 2 * n_kv_heads, head_dim]`, the pool's dtype. `slots`: `[t]`, i64.
    ///
    /// # Errors
    /// When a slot is beyond the pool.
    pub fn write(&mut self, new: &Tensor, slots: &Tensor) -> Result<()> {
        let _written = self.both.f_index_copy_(1, slots, &new.f_transpose(0, 1)?)?;
        Ok(())
    }
}

// === impl KvPool ===

impl KvPool {
    /// Makes a pool of as many whole pages as fit into `budget` bytes, with each layer on its own device. The system
    /// provides memory only for pages that are written.
    ///
    /// # Shapes
    /// Of each layer keys and values `[n_kv_heads, positions, head_dim]`, in `kind`.
    ///
    /// # Errors
    /// What libtorch reports, such as lack of address space.
    pub fn new(
        config: &ModelConfig,
        budget: usize,
        kind: Kind,
        placement: &Placement,
    ) -> Result<Self> {
        let n_pages = budget / Self::position_bytes(config, kind).max(1) / PAGE;
        let n_positions = i64::try_from(n_pages * PAGE).unwrap_or(i64::MAX);
        let layer = |layer| {
            let n = if config.net_at(layer).is_some() {
                0
            } else {
                n_positions
            };
            let shape = [2 * config.n_kv_heads, n, config.head_dim];
            let both = Tensor::f_empty(shape, (kind, placement.of(layer)))?;
            let half = |first| both.f_narrow(0, first, config.n_kv_heads);
            let (k, v) = (half(0)?, half(config.n_kv_heads)?);
            Ok(LayerKv { both, k, v })
        };
        let layers = (0..config.n_layers).map(layer);
        Ok(Self {
            layers: layers.collect::<Result<_>>()?,
            states: (0..config.n_layers).map(|_| None).collect(),
            n_pages,
            n_states: 0,
        })
    }

    /// The same with room for `n` states of the layers that have no keys and values.
    ///
    /// # Errors
    /// What libtorch reports, such as lack of address space.
    pub fn with_states(
        mut self,
        config: &ModelConfig,
        n: usize,
        kind: Kind,
        placement: &Placement,
    ) -> Result<Self> {
        for (layer, states) in self.states.iter_mut().enumerate() {
            let net = config.net_at(layer);
            let made = net.map(|net| LayerStates::new(net, n, kind, placement.of(layer)));
            *states = made.transpose()?;
        }
        self.n_states = n;
        Ok(self)
    }

    /// Memory of one position in all layers, bytes.
    pub fn position_bytes(config: &ModelConfig, kind: Kind) -> usize {
        let numbers = usize::try_from(config.n_kv_heads * config.head_dim * 2).unwrap_or(0);
        numbers * config.n_attending() * kind.elt_size_in_bytes()
    }

    /// How many pages there are.
    pub fn n_pages(&self) -> usize {
        self.n_pages
    }

    /// How many states there is room for; 0 for a model that has keys and values alone.
    pub fn n_states(&self) -> usize {
        self.n_states
    }

    /// The layers in the order of the model.
    pub fn layers_mut(&mut self) -> &mut [LayerKv] {
        &mut self.layers
    }

    /// Keys and values, and states, of each layer.
    pub(crate) fn caches_mut(
        &mut self,
    ) -> impl Iterator<Item = (&mut LayerKv, Option<&mut LayerStates>)> {
        let states = self.states.iter_mut().map(Option::as_mut);
        self.layers.iter_mut().zip(states)
    }

    /// Memory that all pages and states would take, bytes; never more than the budget.
    pub fn bytes(&self) -> usize {
        let bytes = |t: &Tensor| t.numel() * t.kind().elt_size_in_bytes();
        let pages = self.layers.iter().map(|layer| bytes(&layer.both));
        let states = self.states.iter().flatten().map(LayerStates::bytes);
        pages.chain(states).sum()
    }
}
