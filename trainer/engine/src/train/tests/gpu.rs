//! Tests of the path that a GPU takes: whole rows at once, attention without masks, adapters in the model's dtype, sizes that follow
//! from memory.

use serde_json::json;

use super::*;
use crate::device::Devices;
use crate::tests::watch::watched;
use crate::tests::{model_folder, tiny_with};

const GB: usize = 1 << 30;

/// Makes samples of these lengths; those of one group begin alike.
fn samples(groups: &[&[usize]]) -> Vec<Datum> {
    let mut rng = SplitMix64::new(4);
    let mut ids = |n: usize| -> Vec<u32> { (0..n).map(|_| rng.next_u64() as u32 % 259).collect() };
    let mut all = Vec::new();
    for group in groups {
        let prompt = ids(if group.len() > 1 { group[0] / 2 } else { 0 });
        for n in *group {
            let whole = [prompt.clone(), ids(n + 1 - prompt.len())].concat();
            let datum =
                Datum::cross_entropy(whole[..*n].to_vec(), whole[1..].to_vec(), vec![1.0; *n]);
            all.push(datum.unwrap());
        }
    }
    all
}

fn load(kind: Kind) -> Model {
    let fields = [("model_type", json!("qwen3")), ("head_dim", json!(16))];
    let dir = model_folder(&tiny_with(&fields), 7);
    Model::load(dir.path(), kind, &Devices::cpu()).unwrap()
}

#[test]
fn gradients_are_those_of_rows_in_chunks() {
    let loss = Loss::CrossEntropy;
    let batches: [&[&[usize]]; 3] = [
        &[&[20], &[20], &[20]],
        &[&[30], &[7], &[19]],
        &[&[24, 30, 28], &[9], &[16, 16]],
    ];
    for (kind, tolerance) in [(Kind::Float, 2e-5), (Kind::BFloat16, 0.1)] {
        let model = load(kind);
        let lora = lora(&model);
        for batch in batches {
            let batch = samples(batch);
            let found = train(&model, &lora, &batch, loss, SliceSizes::of_gpu(&model, GB));
            let in_chunks = train(&model, &lora, &batch, loss, sizes(8, None));
            assert!((found.loss - in_chunks.loss).abs() <= tolerance * in_chunks.loss);
            assert!(
                found
                    .gradients
                    .iter()
                    .all(|grad| grad.kind() == Kind::Float)
            );
            assert_same(&found.gradients, &in_chunks.gradients, tolerance);
            assert_eq!(found.n_tokens, in_chunks.n_tokens);
        }
    }
}

#[test]
fn a_row_is_one_call_a_layer_and_has_no_mask() {
    let model = load(Kind::Float);
    let lora = lora(&model);
    for (batch, joined) in [
        (samples(&[&[20], &[20], &[20]]), false),
        (samples(&[&[24, 30, 28], &[9]]), true),
    ] {
        let sizes = SliceSizes::of_gpu(&model, GB);
        let mut slices = 0;
        let seen = watched(|| {
            let out = train(&model, &lora, &batch, Loss::CrossEntropy, sizes);
            slices = out.slices.count;
        });
        // Up and down each layer, and the LM head once.
        assert_eq!(slices, 2 * model.config.n_layers + 1);
        for masks in [
            "full",
            "triu",
            "tril",
            "masked_fill",
            "_scaled_dot_product_attention_math",
        ] {
            assert!(!seen.has(masks), "{masks}");
        }
        assert!(seen.has("_scaled_dot_product_flash_attention_for_cpu"));
        assert!(seen.has("_scaled_dot_product_flash_attention_for_cpu_backward"));
        assert_eq!(seen.has("logsumexp"), joined);
        let is_whole = |name: &&&str| **name == "scaled_dot_product_attention";
        let n_whole = seen.computed().iter().filter(is_whole).count();
        assert_eq!(n_whole, if joined { 0 } else { model.config.n_layers });
    }
}

#[test]
fn sizes_follow_from_memory() {
    let model = load(Kind::Float);
    let of = |memory| SliceSizes::of_gpu(&model, memory);
    let costs = |sizes| Costs::new(&model, 4, sizes);
    let (much, some, little) = (of(8 * GB), of(64 << 20), of(1 << 20));
    assert_eq!((much.chunk_tokens, much.pack_tokens), (16_384, 16_384));
    assert!(some.pack_tokens < some.chunk_tokens, "{some:?}");
    let all = model.config.n_layers;
    assert!(
        costs(some).n_kept(some.pack_tokens, 0, 64 << 20) >= all,
        "every layer is kept"
    );
    assert_eq!((little.chunk_tokens, little.pack_tokens), (2048, 2048));
    assert!(much.as_gpu);
}

#[test]
fn a_row_takes_what_was_planned_at_most() {
    let fields = [
        ("hidden_size", json!(128)),
        ("intermediate_size", json!(512)),
        ("num_hidden_layers", json!(3)),
        ("head_dim", json!(32)),
        ("max_position_embeddings", json!(4096)),
    ];
    let dir = model_folder(&tiny_with(&fields), 7);
    let model = Model::load(dir.path(), Kind::Float, &Devices::cpu()).unwrap();
    let lora = lora(&model);
    for batch in [
        samples(&[&[400]]),
        samples(&[&[128], &[128], &[128]]),
        samples(&[&[300, 350, 320]]),
    ] {
        let sizes = SliceSizes::of_gpu(&model, GB);
        let costs = Costs::new(&model, 4, sizes);
        let mut n = 0;
        let kept = watched(|| n = train(&model, &lora, &batch, Loss::CrossEntropy, sizes).n_tokens);
        let least = SliceSizes {
            memory: Some(costs.recomputed(n)),
            ..sizes
        };
        let recomputed = watched(|| drop(train(&model, &lora, &batch, Loss::CrossEntropy, least)));
        let planned = [costs.kept(n), costs.recomputed(n)];
        let taken = [kept.most_bytes, recomputed.most_bytes];
        println!("{n} positions: taken {taken:?} of {planned:?}");
        for (taken, planned) in taken.into_iter().zip(planned) {
            assert!(
                planned / 3 < taken && taken <= planned,
                "{n} positions took {taken} of {planned} bytes"
            );
        }
    }
}
