//! Gated delta nets, as config.json describes them.

use super::fields::ConfigFields;
use super::rope::FULL;
use crate::model_config::fields::Result;

/// The sizes of a model's gated delta nets, and which layers they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeltaSpec {
    /// Heads of queries and keys.
    pub n_k_heads: i64,
    /// Heads of values, each with a state of its own; a multiple of `n_k_heads`.
    pub n_v_heads: i64,
    /// Size of a query or key head.
    pub k_dim: i64,
    /// Size of a value head.
    pub v_dim: i64,
    /// Positions that the convolution sees, a position itself included.
    pub kernel: i64,
    /// Bit `i` says whether layer `i` is one.
    layers: u128,
}

const LINEAR: &str = "linear_attention";

// === impl DeltaSpec ===

impl DeltaSpec {
    pub(super) fn read(c: &ConfigFields, n_layers: usize) -> Result<Self> {
        let n_k_heads = c.size("linear_num_key_heads")?;
        let n_v_heads = c.size("linear_num_value_heads")?;
        if n_v_heads % n_k_heads != 0 {
            let allowed = format!("a multiple of linear_num_key_heads ({n_k_heads})");
            return Err(c.wrong("linear_num_value_heads", &allowed));
        }
        let kernel = c.size("linear_conv_kernel_dim")?;
        if kernel < 2 {
            return Err(c.wrong("linear_conv_kernel_dim", "2 or more"));
        }
        if n_layers > u128::BITS as usize {
            return Err(c.wrong("num_hidden_layers", "1 to 128 with linear attention"));
        }
        Ok(Self {
            n_k_heads,
            n_v_heads,
            k_dim: c.size("linear_key_head_dim")?,
            v_dim: c.size("linear_value_head_dim")?,
            kernel,
            layers: layers(c, n_layers)?,
        })
    }

    /// Whether a layer is one.
    pub const fn is_at(&self, layer: usize) -> bool {
        layer < u128::BITS as usize && self.layers >> layer & 1 == 1
    }

    /// How many layers are.
    pub const fn n_layers(&self) -> usize {
        self.layers.count_ones() as usize
    }

    /// Width of all keys, and of all queries.
    pub const fn keys(&self) -> i64 {
        self.n_k_heads * self.k_dim
    }

    /// Width of all values.
    pub const fn values(&self) -> i64 {
        self.n_v_heads * self.v_dim
    }

    /// Width of queries, keys and values side by side, which the convolution goes over.
    pub const fn qkv(&self) -> i64 {
        2 * self.keys() + self.values()
    }

    /// Numbers of all states of a layer.
    pub const fn state(&self) -> i64 {
        self.values() * self.k_dim
    }
}

fn layers(c: &ConfigFields, n_layers: usize) -> Result<u128> {
    const FIELD: &str = "layer_types";
    let nets: Vec<bool> = if let Some(names) = c.texts(FIELD)? {
        let kinds = names.iter().map(|name| match name.as_str() {
            LINEAR => Some(true),
            FULL => Some(false),
            _ => None,
        });
        let kinds: Option<Vec<bool>> = kinds.collect();
        let kinds = kinds.filter(|kinds| kinds.len() == n_layers);
        let allowed = || format!("one of {FULL}, {LINEAR} for each of {n_layers} layers");
        kinds.ok_or_else(|| c.wrong(FIELD, &allowed()))?
    } else {
        let interval = usize::try_from(c.size("full_attention_interval")?).unwrap_or(1);
        (1..=n_layers).map(|nth| nth % interval != 0).collect()
    };
    let bits = nets.iter().rev();
    Ok(bits.fold(0, |bits, &is_net| bits << 1 | u128::from(is_net)))
}
