//! Tests of samples with common beginnings, which are computed once. The gradient equals the sum of those of each
//! alone.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::testing::tiny_gemma4;
use crate::tests::{tiny_nets, tiny_with};

/// Makes one conversation's turns as samples from random numbers.
struct Maker {
    rng: SplitMix64,
    policy: bool,
    targets: usize,
}

impl Maker {
    fn below(&mut self, n: u64) -> usize {
        usize::try_from(self.rng.next_u64() % n).unwrap()
    }

    fn ids(&mut self, least: usize, spread: u64) -> Vec<u32> {
        let n = least + self.below(spread);
        (0..n).map(|_| self.below(259) as u32).collect()
    }

    /// Turns continue one another. Thinking is removed from earlier ones, sometimes the system prompt changes, and
    /// sometimes two replies answer one prompt.
    fn conversation(&mut self, system: &[u32], n_turns: usize) -> Vec<Datum> {
        let mut history = system.to_vec();
        let mut turns = Vec::new();
        for _ in 0..n_turns {
            if self.below(6) == 0 {
                history[0] = (history[0] + 1) % 259;
            }
            history.extend(self.ids(1, 6));
            let (thinking, answer) = (self.ids(0, 4), self.ids(1, 8));
            let reply = [thinking, answer.clone()].concat();
            turns.push(self.turn(&history, &reply));
            if self.below(3) == 0 {
                let sibling = self.ids(1, 8);
                turns.push(self.turn(&history, &sibling));
            }
            history.extend(answer);
        }
        turns
    }

    /// A turn whose reply counts 1 whatever its length, sampled by the adapter of that time.
    fn turn(&mut self, prompt: &[u32], reply: &[u32]) -> Datum {
        let whole = [prompt, reply].concat();
        let n = whole.len() - 1;
        let masked = prompt.len() - 1;
        let sign = if self.below(2) == 0 { 1.0 } else { -1.0 };
        let share = sign / reply.len() as f32;
        let k = self.targets;
        let mut weights = vec![0.0; masked * k];
        weights.resize(n * k, share);
        if k > 1 {
            // A target within a position may also have no loss.
            weights[masked * k] = 0.0;
        }
        let targets = |i: usize| (0..k).map(move |j| (i + j * 7) % 259);
        let target_ids = whole[1..].iter().flat_map(|&id| targets(id as usize));
        let target_ids = target_ids.map(|id| id as u32).collect();
        let shape: &[usize] = if k > 1 { &[n, k] } else { &[n] };
        let mut logprob = |_| self.rng.uniform(-6.0, -4.0) as f32;
        let sampled = (0..n).map(&mut logprob).collect();
        let made = Datum::new(DatumParts {
            model_input_tokens: whole[..n].to_vec(),
            target_tokens: Tensor2::shaped(target_ids, shape).unwrap(),
            weights: (!self.policy).then(|| Tensor2::shaped(weights.clone(), shape).unwrap()),
            logprobs: self.policy.then_some(sampled),
            advantages: self.policy.then_some(weights),
        });
        made.unwrap()
    }
}

fn load(family: usize) -> Model {
    if family == 3 {
        return make_model(&tiny_nets(3));
    }
    if family == 4 {
        return make_model(&tiny_gemma4());
    }
    let (name, head_dim) = [("llama", 8), ("qwen2", 8), ("qwen3", 16)][family];
    make_model(&tiny_with(&[
        ("model_type", json!(name)),
        ("head_dim", json!(head_dim)),
    ]))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]
    #[test]
    fn a_tree_has_the_gradient_of_its_samples(
        seed: u64, family in 0usize..5, loss in 0usize..3, chunk_tokens in 5usize..64, row_tokens in 100usize..400,
        little_memory: bool,
    ) {
        let model = load(family);
        let lora = lora(&model);
        let (policy, targets) = [(false, 1), (false, 3), (true, 1)][loss];
        let loss = if policy { Loss::ImportanceSampling } else { Loss::CrossEntropy };
        let mut maker = Maker { rng: SplitMix64::new(seed), policy, targets };
        let system = maker.ids(5, 20);
        let mut batch = maker.conversation(&system, 4);
        batch.extend(maker.conversation(&system, 2));
        // The same sample twice counts twice.
        batch.push(batch[0].clone());
        let longest = batch.iter().map(Datum::n_tokens).max().unwrap();
        let mut sizes = SliceSizes { row_tokens, ..sizes(chunk_tokens, None) };
        if little_memory {
            sizes.memory = Some(Costs::new(&model, 4, sizes).recomputed(longest + 10));
        }
        let (total, wanted) = by_autograd(&model, &lora, &batch, loss);
        let out = train(&model, &lora, &batch, loss, sizes);
        // In 160 cases gated delta nets were up to 1.6e-4 apart, all others up to 3.3e-5.
        let limit = if model.config.delta.is_some() { 5e-4 } else { 1e-4 };
        prop_assert!((out.loss - total).abs() <= 1e-4 * total.abs().max(1.0), "{} {total}", out.loss);
        for (i, (found, wanted)) in out.gradients.iter().zip(&wanted).enumerate() {
            let distance = distance(found, wanted);
            prop_assert!(distance <= limit, "parameter {i}: {distance:e}");
        }
        let apart: usize = batch.iter().map(Datum::n_tokens).sum();
        prop_assert!(little_memory || out.n_tokens < apart, "{} of {apart}", out.n_tokens);
        for (datum, logprobs) in batch.iter().zip(&out.logprobs) {
            let parts = datum.parts();
            let weights = parts.weights.as_ref().map(Tensor2::values);
            let signals = weights.or(parts.advantages.as_deref()).unwrap();
            for (signal, logprob) in signals.iter().zip(logprobs) {
                prop_assert!(*signal == 0.0 || logprob.is_some());
            }
        }
    }
}

#[test]
fn a_session_is_computed_once() {
    let model = load(0);
    let lora = lora(&model);
    let mut maker = Maker {
        rng: SplitMix64::new(3),
        policy: false,
        targets: 1,
    };
    let (mut history, mut turns) = (maker.ids(20, 1), Vec::new());
    for _ in 0..5 {
        history.extend(maker.ids(4, 1));
        let reply = maker.ids(6, 1);
        turns.push(maker.turn(&history, &reply));
        history.extend(reply);
    }
    let loss = Loss::CrossEntropy;
    let out = train(&model, &lora, &turns, loss, sizes(40, None));
    // As many as its last turn has.
    assert_eq!(out.n_tokens, 20 + 5 * 10 - 1);
    assert_eq!(out.n_loss_tokens, 5 * 6);
    let (_, wanted) = by_autograd(&model, &lora, &turns, loss);
    assert_same(&out.gradients, &wanted, 2e-5);
}
