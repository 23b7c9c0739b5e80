//! Keys and values of a row that several layers attend to (Gemma 4).
//!
//! On the way up, the layer that makes them leaves them here. On the way down, the layers that attend to them add up their
//! gradients, which that layer takes further, because it comes last.

use std::collections::BTreeMap;

use tch::{Kind, TchError, Tensor};

use crate::model::Model;
use crate::torch::Result;

/// Keys and values, `[1, kv_heads, t, e]` each, by the layer that makes them.
#[derive(Debug, Default)]
pub(super) struct SharedKeys {
    keys: BTreeMap<usize, [Tensor; 2]>,
    /// The gradients by them so far, f32.
    grads: BTreeMap<usize, [Tensor; 2]>,
}

/// Whether keys and values are not a layer's alone.
pub(super) fn has(model: &Model, layer: usize) -> bool {
    model.config.kv_at(layer) != layer || model.config.is_shared(layer)
}

// === impl SharedKeys ===

impl SharedKeys {
    /// The keys and values that a layer attends to: its `own`, or another's.
    pub(super) fn of(
        &mut self,
        model: &Model,
        layer: usize,
        own: impl FnOnce() -> Result<[Tensor; 2]>,
    ) -> Result<[Tensor; 2]> {
        let at = model.config.kv_at(layer);
        let handles = |keys: &[Tensor; 2]| [keys[0].shallow_clone(), keys[1].shallow_clone()];
        if at != layer {
            let missing = || TchError::Torch(format!("layer {at} has left no keys"));
            return self.keys.get(&at).map(handles).ok_or_else(missing);
        }
        let own = own()?;
        if model.config.is_shared(layer) {
            self.keys.insert(layer, handles(&own));
        }
        Ok(own)
    }

    /// Takes the gradients by `keys` so far, to which a layer adds its own.
    pub(super) fn take_grads(
        &mut self,
        model: &Model,
        layer: usize,
        keys: &[Tensor; 2],
    ) -> Result<[Tensor; 2]> {
        let zeros = |t: &Tensor| Tensor::f_zeros(t.size(), (Kind::Float, t.device()));
        match self.grads.remove(&model.config.kv_at(layer)) {
            Some(grads) => Ok(grads),
            None => Ok([zeros(&keys[0])?, zeros(&keys[1])?]),
        }
    }

    /// Gives back the gradients by the keys of another layer.
    pub(super) fn put_grads(&mut self, model: &Model, layer: usize, grads: [Tensor; 2]) {
        let at = model.config.kv_at(layer);
        if at != layer {
            self.grads.insert(at, grads);
        }
    }
}
