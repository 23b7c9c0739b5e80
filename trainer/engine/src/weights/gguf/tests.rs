#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_possible_wrap,
    clippy::needless_for_each,
    reason = "small numbers of test files"
)]

mod writer;

use self::writer::Gguf;
use super::*;
use crate::model_config::ModelConfig;
use crate::testing::tiny_model_config;
use tch::Kind;

fn metadata(model_config: &ModelConfig, pre: &str) -> Gguf {
    let mut gguf = Gguf::default();
    gguf.text("general.architecture", "llama");
    gguf.int("llama.block_count", model_config.n_layers as i64);
    gguf.int("llama.context_length", model_config.context as i64);
    gguf.int("llama.embedding_length", model_config.hidden);
    gguf.int("llama.feed_forward_length", model_config.intermediate);
    gguf.int("llama.attention.head_count", model_config.n_heads);
    gguf.int("llama.attention.head_count_kv", model_config.n_kv_heads);
    gguf.key("llama.attention.layer_norm_rms_epsilon", 6)
        .extend(1e-5_f32.to_le_bytes());
    gguf.text("tokenizer.ggml.model", "gpt2");
    gguf.text("tokenizer.ggml.pre", pre);
    let mut tokens: Vec<String> = (0..model_config.vocab).map(|id| format!("t{id}")).collect();
    tokens[258] = "<|im_end|>".into();
    gguf.texts("tokenizer.ggml.tokens", &tokens);
    let mut types = vec![1; tokens.len()];
    types[258] = 3;
    gguf.ints("tokenizer.ggml.token_type", &types);
    gguf.texts("tokenizer.ggml.merges", &[]);
    gguf.int("tokenizer.ggml.eos_token_id", 258);
    gguf.text("tokenizer.chat_template", "{{ messages }}");
    gguf
}

/// All tensors, each element its own number; `kind` is the type that the table claims for one layer's v.
fn model(pre: &str, kind: u32) -> Gguf {
    let model_config = tiny_model_config();
    let mut gguf = metadata(&model_config, pre);
    let (d, m) = (model_config.hidden, model_config.intermediate);
    let kv = model_config.n_kv_heads * model_config.head_dim;
    let counted = |n: i64| (0..n).map(|i| (i % 256) as f32).collect::<Vec<_>>();
    let vocab = model_config.vocab;
    gguf.tensor("token_embd.weight", &[vocab, d], 0, &counted(vocab * d));
    for i in 0..model_config.n_layers {
        let mut put = |name: &str, shape: &[i64], kind: u32| {
            let values = counted(shape.iter().product());
            gguf.tensor(&format!("blk.{i}.{name}.weight"), shape, kind, &values);
        };
        put("attn_norm", &[d], 0);
        put("attn_q", &[d, d], 0);
        put("attn_k", &[kv, d], 0);
        put("attn_v", &[kv, d], kind);
        put("attn_output", &[d, d], 0);
        put("ffn_norm", &[d], 0);
        put("ffn_gate", &[m, d], 0);
        put("ffn_up", &[m, d], 0);
        put("ffn_down", &[d, m], 0);
    }
    gguf.tensor("output_norm.weight", &[d], 0, &counted(d));
    gguf
}

struct Place(tempfile::TempDir);

impl Place {
    fn convert(&self) -> Result<PathBuf> {
        directory(&self.0.path().join("m.gguf"), self.0.path())
    }
}

fn place(bytes: &[u8]) -> Place {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("m.gguf"), bytes).unwrap();
    Place(dir)
}

fn converted(gguf: &Gguf) -> (Place, PathBuf) {
    let place = place(&gguf.bytes());
    let out = place.convert().unwrap();
    (place, out)
}

fn error(bytes: &[u8]) -> String {
    let place = place(bytes);
    let message = place.convert().unwrap_err().to_string();
    message.replace(&place.0.path().display().to_string(), "DIR")
}

#[test]
fn converts_once_and_puts_query_rows_back_in_order() {
    let (place, out) = converted(&model("smollm", 0));
    let model_config = ModelConfig::read(&out).unwrap();
    assert!(model_config.tied);
    assert_eq!(model_config.norm_eps.to_bits(), 1e-5_f64.to_bits());
    assert_eq!(model_config.eos_ids, [258]);
    let placement = crate::placement::Placement::on(tch::Device::Cpu);
    let weights = crate::weights::load(&out, &model_config, Kind::Float, None, &placement).unwrap();
    // Row r of a head of 8 was stored at 2r (first half) or 2(r - 4) + 1: each row starts with its own number.
    let crate::layer::Mixer::Attention(attention) = &weights.layers[0].mixer else {
        panic!("it attends")
    };
    let qkv = &attention.qkv;
    let k = qkv.weight_of(crate::lora::Projection::K).unwrap();
    let v = qkv.weight_of(crate::lora::Projection::V).unwrap();
    let first = |row: i64| k.double_value(&[row, 0]) as i64;
    let order: Vec<i64> = (0..8).map(|row| first(row) / 32).collect();
    assert_eq!(order, [0, 2, 4, 6, 1, 3, 5, 7]);
    let value = |row: i64| v.double_value(&[row, 0]) as i64 / 32;
    assert!((0..8).all(|row| value(row) == row));
    let modified = || {
        fs::metadata(out.join("model.safetensors"))
            .unwrap()
            .modified()
    };
    let before = modified().unwrap();
    assert_eq!(place.convert().unwrap(), out);
    assert_eq!(modified().unwrap(), before);
}

#[test]
fn what_an_interrupted_run_left_is_replaced() {
    let (place, out) = converted(&model("smollm", 0));
    let partial = out.to_str().unwrap().replace("-v3", ".partial");
    fs::rename(&out, partial).unwrap();
    let again = place.convert().unwrap();
    assert!(again.join("model.safetensors").exists());
    let entries = fs::read_dir(again.parent().unwrap()).unwrap();
    assert_eq!(entries.count(), 2, "result and lock");
}

#[test]
fn every_truncation_is_an_error_that_names_the_file() {
    let bytes = model("smollm", 0).bytes();
    let (half, most) = (bytes.len() / 2, bytes.len() - 200);
    for n in [0, 3, 8, 20, 30, 100, 1000, 9000, half, most] {
        let message = error(&bytes[..n]);
        let wanted = "DIR/m.gguf is damaged or no model file: ";
        assert!(message.starts_with(wanted), "{n}: {message}");
    }
    insta::assert_snapshot!(error(&bytes[..bytes.len() - 200]), @"DIR/m.gguf is damaged or no model file: tensor blk.1.ffn_down.weight ends beyond the file (113240 bytes): truncated, fetch it again");
    insta::assert_snapshot!(error(&bytes[..30]), @"DIR/m.gguf is damaged or no model file: a count of 20 at byte 16 of 30");
}

#[test]
fn garbage_is_an_error() {
    insta::assert_snapshot!(error(b"<html>"), @"DIR/m.gguf is damaged or no model file: it does not begin with GGUF");
    let mut bytes = model("smollm", 0).bytes();
    bytes[8..16].copy_from_slice(&u64::MAX.to_le_bytes());
    assert!(error(&bytes).contains("a count of 18446744073709551615"));
    for seed in 0..200_usize {
        let mut bytes = model("smollm", 0).bytes();
        for i in 0..8 {
            let at = (seed * 7919 + i * 104_729) % 6000;
            bytes[at] ^= (seed + i * 31) as u8;
        }
        // Either outcome is right; a panic or an endless allocation is not.
        let _ = place(&bytes).convert();
    }
}

#[test]
fn types_and_cuts_that_cannot_be_read_are_named() {
    insta::assert_snapshot!(error(&model("smollm", 20).bytes()), @"DIR/m.gguf: the type of tensor blk.0.attn_v.weight is IQ4_NL, allowed: F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K");
    let error = error(&model("deepseek-r1", 0).bytes());
    assert!(error.contains("tokenizer.ggml.pre is deepseek-r1, allowed: smollm"));
}

/// Llama 3.2's divisors, as its converter writes them (in wavelengths).
fn llama3_divisors(factor: f64) -> Vec<f32> {
    let (low, high, original) = (1.0, 4.0, 8192.0);
    let divisor = |pair: i32| {
        let wavelength = std::f64::consts::TAU * 500_000_f64.powf(f64::from(pair) / 4.0);
        if wavelength < original / high {
            1.0
        } else if wavelength > original / low {
            factor
        } else {
            let smooth = (original / wavelength - low) / (high - low);
            1.0 / ((1.0 - smooth) / factor + smooth)
        }
    };
    (0..4).map(|pair| divisor(pair) as f32).collect()
}

#[test]
fn llama3s_divisors_become_its_scaling() {
    let with = |divisors: &[f32]| {
        let mut gguf = model("llama-bpe", 0);
        gguf.key("llama.rope.freq_base", 6)
            .extend(500_000_f32.to_le_bytes());
        gguf.tensor("rope_freqs.weight", &[4], 0, divisors);
        gguf
    };
    let (_place, out) = converted(&with(&llama3_divisors(32.0)));
    let expected = crate::model_config::RopeScaling::Llama3 {
        factor: 32.0,
        low: 1.0,
        high: 4.0,
        original: 8192.0,
    };
    let config = ModelConfig::read(&out).unwrap();
    assert_eq!(config.layers[0].rope.scaling, expected);
    insta::assert_snapshot!(error(&with(&[1.0, 2.0, 3.0, 4.0]).bytes()), @"DIR/m.gguf: divisor 1 of rope_freqs.weight is 2, allowed: 1 as in Llama 3 (low 1, high 4, original 8192; for others use the model's Hugging Face folder)");
}

#[test]
fn linear_and_yarn_are_read_and_other_scalings_named() {
    let scaled = |kind: &str| {
        let mut gguf = model("smollm", 0);
        gguf.text("llama.rope.scaling.type", kind);
        gguf.key("llama.rope.scaling.factor", 6)
            .extend(4_f32.to_le_bytes());
        gguf.int("llama.rope.scaling.original_context_length", 512);
        gguf
    };
    let of = |kind: &str| {
        let (_place, out) = converted(&scaled(kind));
        let text = fs::read_to_string(out.join("config.json")).unwrap();
        let config: serde_json::Value = serde_json::from_str(&text).unwrap();
        let context = ModelConfig::read(&out).unwrap().context;
        (config["rope_scaling"].to_string(), context)
    };
    let linear = r#"{"rope_type":"linear","factor":4.0}"#;
    assert_eq!(of("linear"), (linear.into(), 512));
    let yarn = r#"{"rope_type":"yarn","factor":4.0,"original_max_position_embeddings":512}"#;
    assert_eq!(of("yarn"), (yarn.into(), 2048));
    insta::assert_snapshot!(error(&scaled("longrope").bytes()), @"DIR/m.gguf: llama.rope.scaling.type is longrope, allowed: none, linear, yarn (for others use the model's Hugging Face folder)");
}

#[test]
fn every_id_that_ends_a_turn_is_read() {
    let mut gguf = model("smollm", 0);
    gguf.int("tokenizer.ggml.eot_token_id", 7);
    gguf.int("tokenizer.ggml.eom_token_id", 9);
    let (_place, out) = converted(&gguf);
    // 258 is `<|im_end|>`, a control token.
    assert_eq!(ModelConfig::read(&out).unwrap().eos_ids, [258, 7, 9]);
}

#[test]
fn a_number_that_is_none_is_named_by_its_tensor() {
    let mut gguf = model("smollm", 0);
    let at = gguf.data.len() - 4;
    gguf.data[at..].copy_from_slice(&f32::INFINITY.to_le_bytes());
    insta::assert_snapshot!(error(&gguf.bytes()), @"DIR/m.gguf is damaged or no model file: tensor output_norm.weight holds inf at 31");
}

#[test]
fn a_part_of_a_model_is_named_as_one_of_several() {
    for (no, part) in [(0, "part 1"), (2, "part 3")] {
        let mut gguf = model("smollm", 0);
        gguf.int("split.count", 3);
        gguf.int("split.no", no);
        let told = error(&gguf.bytes());
        let has_both = told.contains(part) && told.contains("several files");
        assert!(has_both, "{told}");
    }
    // One that was written as a single part is whole.
    let mut gguf = model("smollm", 0);
    gguf.int("split.count", 1);
    converted(&gguf);
}
