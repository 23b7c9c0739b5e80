//! The required content of a model's files.

use crate::model_config::{DeltaSpec, ModelConfig};

pub(super) const EMBED: &str = "model.embed_tokens.weight";
pub(super) const NORM: &str = "model.norm.weight";
pub(super) const LM_HEAD: &str = "lm_head.weight";

/// Returns the names and shapes that a directory must have for this family, in file order.
pub fn expected(config: &ModelConfig) -> Vec<(String, Vec<i64>)> {
    let d = config.hidden;
    let mut all = vec![(EMBED.to_owned(), vec![config.vocab, d])];
    for i in 0..config.n_layers {
        let named = layer_shapes(config, i).into_iter();
        all.extend(named.map(|(part, shape)| (format!("model.layers.{i}.{part}"), shape)));
    }
    all.push((NORM.to_owned(), vec![d]));
    if !config.tied {
        all.push((LM_HEAD.to_owned(), vec![config.vocab, d]));
    }
    all
}

type Shapes = Vec<(&'static str, Vec<i64>)>;

fn layer_shapes(config: &ModelConfig, layer: usize) -> Shapes {
    let (d, m) = (config.hidden, config.intermediate);
    let (q, kv) = (
        config.n_heads * config.head_dim,
        config.n_kv_heads * config.head_dim,
    );
    let queries = if config.output_gate { 2 * q } else { q };
    let net = config.net_at(layer);
    let mut shapes = vec![("input_layernorm.weight", vec![d])];
    shapes.extend(match net {
        Some(net) => net_shapes(net, d),
        None => vec![
            ("self_attn.q_proj.weight", vec![queries, d]),
            ("self_attn.k_proj.weight", vec![kv, d]),
            ("self_attn.v_proj.weight", vec![kv, d]),
            ("self_attn.o_proj.weight", vec![d, q]),
        ],
    });
    shapes.extend([
        ("post_attention_layernorm.weight", vec![d]),
        ("mlp.gate_proj.weight", vec![m, d]),
        ("mlp.up_proj.weight", vec![m, d]),
        ("mlp.down_proj.weight", vec![d, m]),
    ]);
    if config.qkv_bias && net.is_none() {
        shapes.extend([
            ("self_attn.q_proj.bias", vec![queries]),
            ("self_attn.k_proj.bias", vec![kv]),
            ("self_attn.v_proj.bias", vec![kv]),
        ]);
    }
    if config.o_bias && net.is_none() {
        shapes.push(("self_attn.o_proj.bias", vec![d]));
    }
    if config.qk_norm && net.is_none() {
        shapes.push(("self_attn.q_norm.weight", vec![config.head_dim]));
        shapes.push(("self_attn.k_norm.weight", vec![config.head_dim]));
    }
    if config.added_norms {
        shapes.push((mlp_norm(config), vec![d]));
        shapes.push(("post_feedforward_layernorm.weight", vec![d]));
    }
    shapes
}

fn net_shapes(net: DeltaSpec, d: i64) -> Shapes {
    let heads = net.n_v_heads;
    vec![
        ("linear_attn.in_proj_a.weight", vec![heads, d]),
        ("linear_attn.in_proj_b.weight", vec![heads, d]),
        ("linear_attn.in_proj_qkv.weight", vec![net.qkv(), d]),
        ("linear_attn.in_proj_z.weight", vec![net.values(), d]),
        ("linear_attn.out_proj.weight", vec![d, net.values()]),
        ("linear_attn.conv1d.weight", vec![net.qkv(), 1, net.kernel]),
        ("linear_attn.A_log", vec![heads]),
        ("linear_attn.dt_bias", vec![heads]),
        ("linear_attn.norm.weight", vec![net.v_dim]),
    ]
}

/// Returns the name of the norm before the MLP. If the output of attention has a norm, that one has the name which this
/// norm has otherwise.
pub(super) const fn mlp_norm(config: &ModelConfig) -> &'static str {
    if config.added_norms {
        "pre_feedforward_layernorm.weight"
    } else {
        "post_attention_layernorm.weight"
    }
}
