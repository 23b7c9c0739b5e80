//! The required content of a model's files.

use crate::lora::{BaseDims, Projection};
use crate::model_config::{DeltaSpec, Gemma4Spec, ModelConfig};
use crate::pack::to_i64;

pub(super) const EMBED: &str = "model.embed_tokens.weight";
pub(super) const NORM: &str = "model.norm.weight";
pub(super) const OWN_EMBED: &str = "model.embed_tokens_per_layer.weight";
pub(super) const OWN_MAP: &str = "model.per_layer_model_projection.weight";
pub(super) const OWN_NORM: &str = "model.per_layer_projection_norm.weight";
pub(super) const LM_HEAD: &str = "lm_head.weight";

/// Returns the names and shapes that a directory must have for this family, in file order.
pub fn expected(config: &ModelConfig) -> Vec<(String, Vec<i64>)> {
    let d = config.hidden;
    let mut all = vec![(EMBED.to_owned(), vec![config.vocab, d])];
    for i in 0..config.n_layers {
        let named = layer_shapes(config, i).into_iter();
        all.extend(named.map(|(part, shape)| (format!("model.layers.{i}.{part}"), shape)));
    }
    if let Some(own) = own_inputs(config) {
        let width = to_i64(config.n_layers) * own.own_input;
        all.push((OWN_EMBED.to_owned(), vec![own.own_vocab, width]));
        all.push((OWN_MAP.to_owned(), vec![width, d]));
        all.push((OWN_NORM.to_owned(), vec![own.own_input]));
    }
    all.push((NORM.to_owned(), vec![d]));
    if !config.tied {
        all.push((LM_HEAD.to_owned(), vec![config.vocab, d]));
    }
    all
}

/// Number of weights, the tied LM head counted once.
pub fn n_params(config: &ModelConfig) -> u64 {
    let sizes = expected(config).into_iter();
    sizes
        .map(|(_, shape)| shape.iter().product::<i64>().unsigned_abs())
        .sum()
}

/// What layers take from the token ids beside the residual stream, if they take something.
pub(super) fn own_inputs(config: &ModelConfig) -> Option<Gemma4Spec> {
    config.gemma4.filter(|it| it.own_input > 0)
}

type Shapes = Vec<(&'static str, Vec<i64>)>;

fn layer_shapes(config: &ModelConfig, layer: usize) -> Shapes {
    let (d, m) = (config.hidden, config.mlp_at(layer));
    let dims = BaseDims::of(config);
    let q = config.n_heads * config.heads_at(layer).dim;
    let into = [
        (
            Projection::Q,
            "self_attn.q_proj.weight",
            "self_attn.q_proj.bias",
        ),
        (
            Projection::K,
            "self_attn.k_proj.weight",
            "self_attn.k_proj.bias",
        ),
        (
            Projection::V,
            "self_attn.v_proj.weight",
            "self_attn.v_proj.bias",
        ),
    ];
    let into = into.iter().filter(|it| dims.has(layer, it.0));
    let into = into.map(|&(it, weight, bias)| (dims.widths(layer, it).1, weight, bias));
    let net = config.net_at(layer);
    let mut shapes = vec![("input_layernorm.weight", vec![d])];
    if let Some(net) = net {
        shapes.extend(net_shapes(net, d));
    } else {
        let into = into.clone().map(|(out, weight, _)| (weight, vec![out, d]));
        shapes.extend(into.chain([("self_attn.o_proj.weight", vec![d, q])]));
    }
    shapes.extend([
        ("post_attention_layernorm.weight", vec![d]),
        ("mlp.gate_proj.weight", vec![m, d]),
        ("mlp.up_proj.weight", vec![m, d]),
        ("mlp.down_proj.weight", vec![d, m]),
    ]);
    if config.qkv_bias && net.is_none() {
        shapes.extend(into.map(|(out, _, bias)| (bias, vec![out])));
    }
    if config.o_bias && net.is_none() {
        shapes.push(("self_attn.o_proj.bias", vec![d]));
    }
    if config.qk_norm && net.is_none() {
        let e = config.heads_at(layer).dim;
        shapes.push(("self_attn.q_norm.weight", vec![e]));
        if config.kv_at(layer) == layer {
            shapes.push(("self_attn.k_norm.weight", vec![e]));
        }
    }
    if config.added_norms {
        shapes.push((mlp_norm(config), vec![d]));
        shapes.push(("post_feedforward_layernorm.weight", vec![d]));
    }
    if config.gemma4.is_some() {
        shapes.push(("layer_scalar", vec![1]));
    }
    if let Some(own) = own_inputs(config) {
        shapes.push(("per_layer_input_gate.weight", vec![own.own_input, d]));
        shapes.push(("per_layer_projection.weight", vec![d, own.own_input]));
        shapes.push(("post_per_layer_input_norm.weight", vec![d]));
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
