//! Tests of what is kept, what is recomputed, and what is refused.

use super::*;
use crate::train::plan::bytes;

/// Returns the result for one sample of 30 tokens.
fn whole(model: &Model, lora: &Lora, sizes: SliceSizes) -> TrainOut {
    let (one, loss) = (&datums(true)[1..2], Loss::ImportanceSampling);
    let job = TrainJob::forward_backward(model, lora, one, loss, sizes).unwrap();
    job.finish(model).unwrap()
}

#[test]
fn what_is_computed_again_is_what_was_kept_to_the_bit() {
    let model = model();
    let lora = lora(&model, &LoraTargets::groups(true, true, true));
    for chunk_tokens in [40, 8] {
        let with = |memory| SliceSizes {
            chunk_tokens,
            memory: Some(memory),
            ..sizes()
        };
        let least = Costs::new(&model, 4, with(0)).recomputed(30);
        let kept = whole(&model, &lora, with(1 << 30));
        let recomputed = whole(&model, &lora, with(least));
        assert!((kept.loss - recomputed.loss).abs() == 0.0);
        let same = |(a, b): (&Tensor, &Tensor)| a.equal(b);
        assert!(kept.gradients.iter().zip(&recomputed.gradients).all(same));
        if chunk_tokens == 8 {
            // Keys exist in the forward pass, or have to be recomputed: 3 chunks of two layers.
            assert_eq!(recomputed.slices.count - kept.slices.count, 2 * 3);
        }
    }
}

/// Keys of a chunk come first, then everything that attends to them, forward and backward. No slice is longer than a
/// chunk, however long the row is.
#[test]
fn a_long_row_is_cut_in_every_part() {
    let model = model();
    let lora = lora(&model, &LoraTargets::groups(true, true, true));
    let sizes = SliceSizes {
        chunk_tokens: 8,
        memory: Some(1 << 30),
        ..sizes()
    };
    let one = &datums(false)[1..2];
    let loss = Loss::CrossEntropy;
    let job = TrainJob::forward_backward(&model, &lora, one, loss, sizes).unwrap();
    let out = job.finish(&model).unwrap();
    let (chunks, layers, head) = (3, 2, 5);
    assert_eq!(out.slices.count, 2 * layers * 2 * chunks + head);
}

#[test]
fn a_sample_that_cannot_fit_is_refused_with_the_sizes() {
    let model = model();
    let lora = lora(&model, &LoraTargets::groups(true, true, true));
    let sizes = SliceSizes {
        chunk_tokens: 8,
        ..sizes()
    };
    let costs = Costs::new(&model, 4, sizes);
    let (loss, batch) = (Loss::CrossEntropy, datums(false));
    let sizes = SliceSizes {
        memory: Some(costs.recomputed(29)),
        ..sizes
    };
    let error = TrainJob::forward_backward(&model, &lora, &batch, loss, sizes).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "datums[1] has 30 tokens, which need {} to train on, {} are free for training: at most 29 tokens fit",
            bytes(costs.recomputed(30)),
            bytes(costs.recomputed(29)),
        )
    );
    // With room for one more token, the same batch is trained on.
    let sizes = SliceSizes {
        memory: Some(costs.recomputed(30)),
        ..sizes
    };
    assert!(TrainJob::forward_backward(&model, &lora, &batch, loss, sizes).is_ok());
}

#[test]
fn as_many_positions_fit_as_the_memory_has_bytes_for() {
    let costs = Costs::new(&model(), 4, sizes());
    for t in [1, 39, 40, 41, 400] {
        let memory = costs.recomputed(t);
        assert_eq!(
            (costs.fitting(memory), costs.fitting(memory - 1)),
            (t, t - 1)
        );
    }
    assert_eq!(costs.fitting(0), 0);
}

#[test]
fn a_group_over_the_memory_goes_on_in_another_row() {
    let model = model();
    let lora = lora(&model, &LoraTargets::groups(true, true, true));
    let one = datums(false).remove(1);
    let other = changed(&one, |parts| parts.model_input_tokens[20..].fill(7));
    let batch = [one, other];
    let run = |memory| {
        let sizes = SliceSizes {
            memory: Some(memory),
            ..sizes()
        };
        let loss = Loss::CrossEntropy;
        let job = TrainJob::forward_backward(&model, &lora, &batch, loss, sizes).unwrap();
        job.finish(&model).unwrap()
    };
    let (together, apart) = (
        run(1 << 30),
        run(Costs::new(&model, 4, sizes()).recomputed(35)),
    );
    assert_eq!((together.n_tokens, apart.n_tokens), (40, 60));
    assert_same(&apart.gradients, &together.gradients, 2e-5);
}

#[test]
fn the_plan_says_what_training_takes() {
    let model = model();
    let spec = LoraSpec {
        rank: 4,
        targets: LoraTargets::groups(true, true, true),
        ..LoraSpec::default()
    };
    let sizes = SliceSizes {
        memory: Some(3_000_000),
        ..sizes()
    };
    let plan = Plan::new(&model, &spec, sizes, 5_000_000);
    let lora = lora(&model, &LoraTargets::groups(true, true, true));
    assert_eq!(
        plan.run,
        lora.n_params() * 4 * 4,
        "adapter, two moments, gradients"
    );
    assert!(plan.recomputed < plan.kept);
    let text = plan.to_string();
    assert!(text.contains("a row of 400 tokens"), "{text}");
    assert!(
        text.ends_with("activations at most 3 MB, cache 5 MB"),
        "{text}"
    );
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
