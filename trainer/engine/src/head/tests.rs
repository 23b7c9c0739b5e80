use super::*;
use crate::lora::{BaseDims, Lora, LoraTargets};
use crate::tests::{DIMS, OPTIONS, is_near, lora_spec, zeros};

#[test]
fn gradient_is_that_of_autograd() {
    let (hidden, lm_head) = (
        Tensor::randn([3, 5], OPTIONS),
        Tensor::randn([11, 5], OPTIONS),
    );
    // The second position has the same target twice, so its gradients must add up.
    let targets = Tensor::from_slice(&[1i64, 2, 7, 7, 0, 10]).reshape([3, 2]);
    let gradients = Tensor::from_slice(&[0.5f32, -1.0, 2.0, 1.0, 0.0, 0.25]).reshape([3, 2]);

    let leaf = hidden.copy().set_requires_grad(true);
    let logprobs = leaf.matmul(&lm_head.tr()).log_softmax(-1, Kind::Float);
    (logprobs.gather(1, &targets, false) * &gradients)
        .sum(Kind::Float)
        .backward();

    let chunk = LogProbs::new(&hidden, &lm_head.shallow_clone().into(), &[], None).unwrap();
    let by_logits = chunk.gradient(&targets, &gradients).unwrap();
    let found = backward(&by_logits, &lm_head.shallow_clone().into()).unwrap();
    assert!(found.allclose(&leaf.grad(), 1e-5, 1e-6, false));
}

#[test]
fn the_likeliest_logits_are_exact_over_a_narrow_lm_head() {
    let lm_head = Tensor::randn([300, 16], OPTIONS).to_kind(Kind::BFloat16);
    let hidden = Tensor::randn([3, 16], OPTIONS) * 8.0;
    let exact = hidden.matmul(&lm_head.to_kind(Kind::Float).tr());
    let found = logits(&hidden, &lm_head.shallow_clone().into(), &[], None).unwrap();
    let (wanted, ids) = exact.topk(20, -1, true, true);
    assert!(is_near(&found.gather(1, &ids, false), &wanted, 1e-5));
    assert!(found.allclose(&exact, 2e-2, 0.3, false));
}

#[test]
fn rows_have_their_own_adapters_of_the_lm_head_in_f32() {
    let (hidden, vocab) = (16, 300);
    let dims = BaseDims {
        hidden,
        vocab,
        ..DIMS
    };
    let spec = lora_spec(2, 4, LoraTargets::groups(false, true, true));
    let adapter = |seed| {
        let fresh = Lora::init(spec.clone(), dims, 1, seed).unwrap();
        fresh.try_map(Tensor::f_randn_like).unwrap()
    };
    let (one, two) = (adapter(1), adapter(2));
    let hidden = Tensor::randn([5, 16], OPTIONS);
    // The second row has only the base model.
    let part = |start, len, lora| Segment { start, len, lora };
    let segments = [part(0, 1, &one), part(2, 3, &two)];
    let delta = |lora: &Lora| {
        let pair = &lora.head().unwrap().pair;
        hidden.matmul(&pair.a.tr()).matmul(&pair.b.tr()) * 2.0
    };
    let (first, last) = (delta(&one).narrow(0, 0, 1), delta(&two).narrow(0, 2, 3));
    let deltas = [first, zeros([1, 300]), last];
    let base = Tensor::randn([300, 16], OPTIONS);
    for kind in [Kind::Float, Kind::BFloat16] {
        let lm_head = base.to_kind(kind);
        let exact = hidden.matmul(&lm_head.to_kind(Kind::Float).tr());
        let exact = exact + Tensor::cat(&deltas, 0);
        let found = logits(&hidden, &lm_head.shallow_clone().into(), &segments, None).unwrap();
        let (wanted, ids) = exact.topk(20, -1, true, true);
        let likeliest = found.gather(1, &ids, false);
        assert!(likeliest.allclose(&wanted, 1e-5, 1e-4, false), "{kind:?}");
        assert!(found.allclose(&exact, 2e-2, 0.1, false), "{kind:?}");
    }
}

#[test]
fn the_likeliest_come_first() {
    let hidden = Tensor::from_slice(&[1f32, 0.0, 0.0, 2.0]).reshape([2, 2]);
    let lm_head = Tensor::from_slice(&[0f32, 1.0, 3.0, 0.0, 1.0, 2.0]).reshape([3, 2]);
    let chunk = LogProbs::new(&hidden, &lm_head.shallow_clone().into(), &[], None).unwrap();
    let top = chunk.top(2).unwrap();
    assert_eq!(top.ids, [1, 2, 2, 0]);
    let wanted = chunk.of(&Tensor::from_slice(&[1i64, 2, 2, 0]).reshape([2, 2]));
    assert_eq!(top.logprobs, wanted.unwrap());
}
