//! A Qwen3.5 of 20 million random numbers on disk: no weights of the family could be had, and its mechanics need none.
//!
//! Its parts are real: configuration, safetensors in the names of a model of text and images, a tokenizer of bytes with
//! the family's tokens, and a chat template that does what the family's does.

use std::{fs, path::Path};

use metaclaw_trainer_text::testing::write_tiny_text;
use serde_json::{Value, json};

use crate::questions::split_mix;

/// The family's, shortened. Thinking is off unless it is asked for, as for the sizes 0.8B and 2B.
const TEMPLATE: &str = include_str!("../../trainer/text/src/tokenizer/testdata/qwen35.jinja");
/// Tokens of the family that are no special ones.
const PLAIN: [&str; 4] = ["<think>", "</think>", "<tool_call>", "</tool_call>"];
/// More than the tokenizer knows, as in the family.
const VOCABULARY: usize = 320;
const HIDDEN: usize = 512;
const MLP: usize = 1024;
/// Three of four layers are gated delta nets.
const LAYERS: usize = 8;
const HEAD: usize = 64;
const HEADS: usize = 8;
const KV_HEADS: usize = 2;
const NET_KEY_HEADS: usize = 4;
const NET_VALUE_HEADS: usize = 8;
const KERNEL: usize = 4;

/// Writes the model into a folder.
///
/// # Panics
/// Panics if the folder cannot be written.
pub fn write(folder: &Path) {
    write_tiny_text(folder).expect("a writable folder");
    let file = folder.join("tokenizer.json");
    let mut tokenizer: Value =
        serde_json::from_slice(&fs::read(&file).expect("written")).expect("JSON");
    let added = tokenizer["added_tokens"].as_array_mut().expect("a list");
    for content in PLAIN {
        let mut token = added[0].clone();
        // All bytes come before.
        token["id"] = json!(256 + added.len());
        token["content"] = json!(content);
        token["special"] = json!(false);
        added.push(token);
    }
    for (name, text) in [
        ("tokenizer.json", tokenizer.to_string()),
        ("chat_template.jinja", TEMPLATE.to_owned()),
        ("config.json", config().to_string()),
        (
            "generation_config.json",
            json!({"eos_token_id": [258, 256]}).to_string(),
        ),
    ] {
        fs::write(folder.join(name), text).expect("a writable folder");
    }
    fs::write(folder.join("model.safetensors"), weights()).expect("a writable folder");
}

fn config() -> Value {
    let kind = |layer| match layer % 4 {
        3 => "full_attention",
        _ => "linear_attention",
    };
    json!({
        "architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": "qwen3_5", "tie_word_embeddings": true,
        "text_config": {
            "model_type": "qwen3_5_text", "vocab_size": VOCABULARY, "hidden_size": HIDDEN, "intermediate_size": MLP,
            "num_hidden_layers": LAYERS, "layer_types": (0..LAYERS).map(kind).collect::<Vec<_>>(),
            "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": HEAD,
            "linear_num_key_heads": NET_KEY_HEADS, "linear_num_value_heads": NET_VALUE_HEADS,
            "linear_key_head_dim": HEAD, "linear_value_head_dim": HEAD, "linear_conv_kernel_dim": KERNEL,
            "max_position_embeddings": 16384, "rms_norm_eps": 1e-6, "hidden_act": "silu", "tie_word_embeddings": true,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25},
            "eos_token_id": 258, "dtype": "float32",
        },
    })
}

/// Name, sides, and the middle of the numbers. A norm's weight is added to one, but that of a net's output is not.
fn tensors() -> Vec<(String, Vec<usize>, f32)> {
    let mut all = vec![(
        "embed_tokens.weight".to_owned(),
        vec![VOCABULARY, HIDDEN],
        0.0,
    )];
    let (keys, values) = (NET_KEY_HEADS * HEAD, NET_VALUE_HEADS * HEAD);
    for layer in 0..LAYERS {
        let mixer: &[(&str, &[usize], f32)] = if layer % 4 == 3 {
            &[
                ("self_attn.q_proj.weight", &[2 * HEADS * HEAD, HIDDEN], 0.0),
                ("self_attn.k_proj.weight", &[KV_HEADS * HEAD, HIDDEN], 0.0),
                ("self_attn.v_proj.weight", &[KV_HEADS * HEAD, HIDDEN], 0.0),
                ("self_attn.o_proj.weight", &[HIDDEN, HEADS * HEAD], 0.0),
                ("self_attn.q_norm.weight", &[HEAD], 0.0),
                ("self_attn.k_norm.weight", &[HEAD], 0.0),
            ]
        } else {
            &[
                (
                    "linear_attn.in_proj_qkv.weight",
                    &[2 * keys + values, HIDDEN],
                    0.0,
                ),
                ("linear_attn.in_proj_z.weight", &[values, HIDDEN], 0.0),
                (
                    "linear_attn.in_proj_b.weight",
                    &[NET_VALUE_HEADS, HIDDEN],
                    0.0,
                ),
                (
                    "linear_attn.in_proj_a.weight",
                    &[NET_VALUE_HEADS, HIDDEN],
                    0.0,
                ),
                ("linear_attn.out_proj.weight", &[HIDDEN, values], 0.0),
                (
                    "linear_attn.conv1d.weight",
                    &[2 * keys + values, 1, KERNEL],
                    0.5,
                ),
                ("linear_attn.A_log", &[NET_VALUE_HEADS], -3.0),
                ("linear_attn.dt_bias", &[NET_VALUE_HEADS], 0.0),
                ("linear_attn.norm.weight", &[HEAD], 1.0),
            ]
        };
        let shared: &[(&str, &[usize], f32)] = &[
            ("input_layernorm.weight", &[HIDDEN], 0.0),
            ("post_attention_layernorm.weight", &[HIDDEN], 0.0),
            ("mlp.gate_proj.weight", &[MLP, HIDDEN], 0.0),
            ("mlp.up_proj.weight", &[MLP, HIDDEN], 0.0),
            ("mlp.down_proj.weight", &[HIDDEN, MLP], 0.0),
        ];
        let named = |(name, sides, middle): &(&str, &[usize], f32)| {
            (format!("layers.{layer}.{name}"), sides.to_vec(), *middle)
        };
        all.extend(mixer.iter().chain(shared).map(named));
    }
    all.push(("norm.weight".to_owned(), vec![HIDDEN], 0.0));
    all
}

/// The bytes of a safetensors file in f32.
fn weights() -> Vec<u8> {
    let (mut header, mut data) = (json!({"__metadata__": {"format": "pt"}}), Vec::new());
    let mut state = 5;
    for (name, sides, middle) in tensors() {
        let start = data.len();
        for _ in 0..sides.iter().product() {
            // Uniform from -0.1 to 0.1.
            let unit = (split_mix(&mut state) >> 40) as f32 / (1 << 24) as f32;
            data.extend((middle + 0.2 * (unit - 0.5)).to_le_bytes());
        }
        let offsets = [start, data.len()];
        header[format!("model.language_model.{name}")] =
            json!({"dtype": "F32", "shape": sides, "data_offsets": offsets});
    }
    let header = header.to_string();
    let length = (header.len() as u64).to_le_bytes();
    [&length[..], header.as_bytes(), &data].concat()
}
