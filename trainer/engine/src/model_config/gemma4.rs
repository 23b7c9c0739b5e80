//! What the layers of a Gemma 4 differ in, as config.json describes it.

use super::fields::ConfigFields;
use super::layers::LayerSpec;
use crate::model_config::fields::Result;

/// Key and value heads of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvHeads {
    /// How many; divides the number of query heads.
    pub n: i64,
    /// Size of a head, and of a query head; even.
    pub dim: i64,
}

/// What the layers of a Gemma 4 differ in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gemma4Spec {
    /// Bit `i` says whether layer `i` sees all positions.
    full: u128,
    /// The heads of those layers.
    pub full_heads: KvHeads,
    /// Those layers have no map for values: values are keys before the weights of their norm and before their rotation.
    pub keys_are_values: bool,
    /// This layer and those above it have no keys and values of their own.
    first_sharing: usize,
    /// The width of the MLP in layers above that; 0 if it is that of the others.
    wide_mlp: i64,
    /// Width of what each layer takes from the token ids; 0 for nothing.
    pub own_input: i64,
    /// Tokens that this is known of.
    pub own_vocab: i64,
}

/// Layers are bits of a number.
const MOST_LAYERS: usize = u128::BITS as usize;

// === impl Gemma4Spec ===

impl Gemma4Spec {
    pub(super) fn read(c: &ConfigFields, layers: &[LayerSpec], n_heads: i64) -> Result<Self> {
        let n_layers = layers.len();
        if n_layers > MOST_LAYERS {
            let allowed = format!("1 to {MOST_LAYERS} in Gemma 4");
            return Err(c.wrong("num_hidden_layers", &allowed));
        }
        let full: Vec<bool> = layers.iter().map(|layer| layer.window.is_none()).collect();
        if full.last() != Some(&true) {
            return Err(c.wrong("layer_types", "full_attention as the last one"));
        }
        let n_sharing = c.count_or("num_kv_shared_layers", 0)?;
        let first_sharing = n_layers.saturating_sub(n_sharing);
        let (own, sharing) = full.split_at(first_sharing);
        if first_sharing == 0 || !sharing.iter().all(|kind| own.contains(kind)) {
            let allowed = "so few that a layer of each kind below them has keys and values";
            return Err(c.wrong("num_kv_shared_layers", allowed));
        }
        let keys_are_values = c.flag("attention_k_eq_v", false)?;
        let is_wide = c.flag("use_double_wide_mlp", false)?;
        let own_input = c.count_or("hidden_size_per_layer_input", 0)?;
        Ok(Self {
            full: full
                .iter()
                .rev()
                .fold(0, |bits, &is| bits << 1 | u128::from(is)),
            full_heads: full_heads(c, &full, keys_are_values, n_heads)?,
            keys_are_values,
            first_sharing,
            wide_mlp: if is_wide {
                2 * c.size("intermediate_size")?
            } else {
                0
            },
            own_input: i64::try_from(own_input).unwrap_or(0),
            own_vocab: c.size("vocab_size_per_layer_input")?,
        })
    }

    const fn is_full(&self, layer: usize) -> bool {
        layer < MOST_LAYERS && self.full >> layer & 1 == 1
    }

    /// The heads of a layer, if they are not those of most.
    pub fn heads_at(&self, layer: usize) -> Option<KvHeads> {
        self.is_full(layer).then_some(self.full_heads)
    }

    /// The layer whose keys and values a layer attends to: itself, or the last of its kind that has some.
    pub fn kv_at(&self, layer: usize) -> usize {
        if layer < self.first_sharing {
            return layer;
        }
        let is_alike = |&it: &usize| self.is_full(it) == self.is_full(layer);
        (0..self.first_sharing).rfind(is_alike).unwrap_or(layer)
    }

    /// Whether a layer has a map for values.
    pub fn has_values(&self, layer: usize) -> bool {
        self.kv_at(layer) == layer && !(self.keys_are_values && self.is_full(layer))
    }

    /// The width of a layer's MLP, if it is not that of most.
    pub fn mlp_at(&self, layer: usize) -> Option<i64> {
        (self.wide_mlp > 0 && layer >= self.first_sharing).then_some(self.wide_mlp)
    }
}

/// Heads of the layers that see everything. Transformers 5 writes them for each layer; the published files have them once.
fn full_heads(
    c: &ConfigFields,
    full: &[bool],
    keys_are_values: bool,
    n_heads: i64,
) -> Result<KvHeads> {
    const BY_LAYER: &str = "per_layer_config";
    const N: &str = "num_key_value_heads";
    const DIM: &str = "head_dim";
    let n_usual = c.size(N)?;
    let read = |from: &ConfigFields, n: &str, dim: &str, dim_usual: i64| {
        let heads = KvHeads {
            n: from.size_or(n, n_usual)?,
            dim: from.size_or(dim, dim_usual)?,
        };
        if n_heads % heads.n != 0 {
            let allowed = format!("a divisor of num_attention_heads ({n_heads})");
            return Err(from.wrong(n, &allowed));
        }
        if heads.dim % 2 != 0 {
            return Err(from.wrong(dim, "an even number above 0"));
        }
        Ok(heads)
    };
    let Some(by_layer) = c.object(BY_LAYER)? else {
        let n = if keys_are_values {
            "num_global_key_value_heads"
        } else {
            N
        };
        return read(c, n, "global_head_dim", 512);
    };
    let dim_usual = c.size(DIM)?;
    let mut found = Vec::new();
    for (layer, _) in full.iter().enumerate().filter(|(_, is_full)| **is_full) {
        let Some(own) = by_layer.object(&layer.to_string())? else {
            continue;
        };
        let known = [N, DIM].iter().filter(|name| own.has(name)).count();
        if known == own.len() {
            found.push(read(&own, N, DIM, dim_usual)?);
        }
    }
    let n_full = full.iter().filter(|is_full| **is_full).count();
    let are_alike = |one: &KvHeads| found.iter().all(|it| it == one) && found.len() == n_full;
    match found.first() {
        None if by_layer.len() == 0 => Ok(KvHeads {
            n: n_usual,
            dim: dim_usual,
        }),
        Some(one) if by_layer.len() == n_full && are_alike(one) => Ok(*one),
        _ => {
            let allowed = "head_dim and num_key_value_heads, the same for every layer with full_attention, and for no other";
            Err(c.wrong(BY_LAYER, allowed))
        }
    }
}
