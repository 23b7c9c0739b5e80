//! Tests of what is kept, what is recomputed, and what is refused.

use super::*;
use crate::tests::tiny_nets;
use crate::train::plan::bytes;

/// Returns the result for one sample of 30 tokens.
fn whole(model: &Model, lora: &Lora, sizes: SliceSizes) -> TrainOut {
    let (one, loss) = (&datums(true)[1..2], Loss::ImportanceSampling);
    train(model, lora, one, loss, sizes)
}

#[test]
fn what_is_computed_again_is_what_was_kept_to_the_bit() {
    for model in [model(), make_model(&tiny_nets(2))] {
        is_the_same_to_the_bit(&model);
    }
}

fn is_the_same_to_the_bit(model: &Model) {
    let lora = lora(model);
    for chunk_tokens in [40, 8] {
        let with = |memory| sizes(chunk_tokens, Some(memory));
        let least = Costs::new(model, 4, with(0)).recomputed(30);
        let kept = whole(model, &lora, with(1 << 30));
        let recomputed = whole(model, &lora, with(least));
        assert!((kept.loss - recomputed.loss).abs() == 0.0);
        assert!(are_equal(&kept.gradients, &recomputed.gradients));
        if chunk_tokens == 8 {
            // Keys exist in the forward pass, or have to be recomputed: 3 chunks of two layers. So do states, but for those that the
            // last chunk leaves.
            let nets = model.config.delta.map_or(0, |net| net.n_layers());
            assert_eq!(recomputed.slices.count - kept.slices.count, 2 * 3 - nets);
        }
    }
}

/// Keys of a chunk come first, then everything that attends to them, forward and backward. No slice is longer than a
/// chunk, however long the row is.
#[test]
fn a_long_row_is_cut_in_every_part() {
    let model = model();
    let lora = lora(&model);
    let (one, loss) = (&datums(false)[1..2], Loss::CrossEntropy);
    let out = train(&model, &lora, one, loss, sizes(8, Some(1 << 30)));
    let (chunks, layers, head) = (3, 2, 5);
    assert_eq!(out.slices.count, 2 * layers * 2 * chunks + head);
}

#[test]
fn a_sample_that_cannot_fit_is_refused_with_the_sizes() {
    let model = model();
    let lora = lora(&model);
    let costs = Costs::new(&model, 4, sizes(8, None));
    let [least, enough] = [29, 30].map(|n| costs.recomputed(n));
    let job = |memory| {
        let (loss, batch) = (Loss::CrossEntropy, datums(false));
        let sizes = sizes(8, Some(memory));
        TrainJob::forward_backward(&model, &lora, &batch, loss, sizes).map(|_| ())
    };
    let (needed, free) = (bytes(enough), bytes(least));
    let wanted = format!(
        "datums[1] has 30 tokens, which need {needed} to train on, {free} are free for training: at most 29 tokens fit"
    );
    assert_eq!(job(least).unwrap_err().to_string(), wanted);
    // With room for one more token, the same batch is trained on.
    assert!(job(enough).is_ok());
}

#[test]
fn as_many_positions_fit_as_the_memory_has_bytes_for() {
    let costs = Costs::new(&model(), 4, sizes(40, None));
    for t in [1, 39, 40, 41, 400] {
        let memory = costs.recomputed(t);
        let fitting = [memory, memory - 1].map(|bytes| costs.fitting(bytes));
        assert_eq!(fitting, [t, t - 1]);
    }
    assert_eq!(costs.fitting(0), 0);
}

#[test]
fn a_group_over_the_memory_goes_on_in_another_row() {
    let model = model();
    let lora = lora(&model);
    let one = datums(false).remove(1);
    let other = changed(&one, |parts| parts.model_input_tokens[20..].fill(7));
    let batch = [one, other];
    let loss = Loss::CrossEntropy;
    let run = |memory| train(&model, &lora, &batch, loss, sizes(40, Some(memory)));
    let least = Costs::new(&model, 4, sizes(40, None)).recomputed(35);
    let (together, apart) = (run(1 << 30), run(least));
    assert_eq!((together.n_tokens, apart.n_tokens), (40, 60));
    assert_same(&apart.gradients, &together.gradients, 2e-5);
}

#[test]
fn the_plan_says_what_training_takes() {
    let model = model();
    let spec = lora_spec(4, 32, all_targets());
    let plan = Plan::new(&model, &spec, sizes(40, Some(3_000_000)), 5_000_000);
    // The adapter, its two moments and the gradients.
    assert_eq!(plan.run, lora(&model).n_params() * 4 * 4);
    assert!(plan.recomputed < plan.kept);
    let text = plan.to_string();
    assert!(text.contains("a row of 400 tokens"), "{text}");
    let ends = "activations at most 3 MB, cache 5 MB";
    assert!(text.ends_with(ends), "{text}");
}

#[test]
fn a_batch_that_lacks_memory_is_cut_smaller_only_so_often() {
    let mut sizes = SliceSizes::default();
    let mut n = 0;
    while let Some(smaller) = sizes.smaller() {
        assert!(smaller.chunk_tokens <= sizes.chunk_tokens);
        assert!(smaller.head_positions <= sizes.head_positions);
        (sizes, n) = (smaller, n + 1);
    }
    assert_eq!((sizes.chunk_tokens, sizes.head_positions, n), (8, 8, 5));
}
