use tch::Device;
use tch::nn::{AdamW, OptimizerConfig, VarStore};

use super::*;
use crate::lora::Projection;
use crate::tests::{DIMS, OPTIONS, are_equal, lora_spec};

fn lora() -> Lora {
    Lora::init(lora_spec(2, 32, vec![Projection::Q]), DIMS, 1, 1).unwrap()
}

#[test]
fn steps_are_those_of_torch() {
    for clip in [0.0, 0.7] {
        let config = AdamConfig {
            learning_rate: 0.01,
            eps: 1e-8,
            weight_decay: 0.1,
            grad_clip_norm: clip,
            ..AdamConfig::default()
        };
        let mut ours = lora();
        let store = VarStore::new(Device::Cpu);
        let copy = |(i, p)| store.root().var_copy(&format!("p{i}"), p);
        let theirs: Vec<Tensor> = ours.params().enumerate().map(copy).collect();
        let mut torch = AdamW {
            beta1: 0.9,
            beta2: 0.95,
            wd: 0.1,
            eps: 1e-8,
            amsgrad: false,
        }
        .build(&store, 0.01)
        .unwrap();
        let mut state = AdamState::new(&ours).unwrap();
        for _ in 0..5 {
            let noise = ours.params().map(|p| Tensor::randn(p.size(), OPTIONS));
            let grads: Vec<Tensor> = noise.collect();
            torch.zero_grad();
            let pairs = theirs.iter().zip(&grads);
            let terms: Vec<Tensor> = pairs.map(|(p, g)| (p * g).sum(Kind::Float)).collect();
            Tensor::stack(&terms, 0).sum(Kind::Float).backward();
            if clip > 0.0 {
                torch.clip_grad_norm(clip);
            }
            torch.step();
            let stepped = state.step(&ours, &grads, &config).unwrap();
            assert!((stepped.grad_norm - norm(&grads).unwrap()).abs() < 1e-12);
            (ours, state) = (stepped.lora, stepped.state);
        }
        assert_eq!(state.steps, 5);
        for (a, b) in ours.params().zip(&theirs) {
            assert!(a.allclose(b, 1e-5, 1e-7, false), "clip {clip}");
        }
    }
}

#[test]
fn the_old_parameters_do_not_move() {
    let lora = lora();
    let before: Vec<Tensor> = lora.params().map(Tensor::copy).collect();
    let grads: Vec<Tensor> = lora.params().map(Tensor::ones_like).collect();
    let state = AdamState::new(&lora).unwrap();
    let stepped = state.step(&lora, &grads, &AdamConfig::default()).unwrap();
    assert!(are_equal(lora.params(), &before));
    assert!(stepped.lora.params().zip(&before).all(|(a, b)| !a.equal(b)));
}

#[test]
fn refuses_what_would_ruin_the_adapter() {
    let lora = lora();
    let state = AdamState::new(&lora).unwrap();
    let error = |grads: &[Tensor], config: AdamConfig| {
        state.step(&lora, grads, &config).unwrap_err().to_string()
    };
    let mut grads: Vec<Tensor> = lora.params().map(Tensor::ones_like).collect();
    let plain = AdamConfig::default();
    assert!(error(&[], plain).starts_with("there are no gradients"));
    let beta2 = AdamConfig {
        beta2: 1.0,
        ..plain
    };
    assert!(error(&grads, beta2).starts_with("beta2 is 1, allowed: 0 to below 1"));
    let learning_rate = f64::NAN;
    let nan = AdamConfig {
        learning_rate,
        ..plain
    };
    assert!(error(&grads, nan).starts_with("learning_rate is NaN, allowed: a number above 0"));
    grads[1] = grads[1].full_like(f64::INFINITY);
    assert!(error(&grads, plain).starts_with("the gradient is not finite (norm inf"));
    // The value is finite, but its square is not, and would freeze the parameter forever.
    grads[1] = grads[1].full_like(1e20);
    assert!(error(&grads, plain).starts_with("the gradient is not finite (norm"));
    let clipped = AdamConfig {
        grad_clip_norm: 1.0,
        ..plain
    };
    let stepped = state.step(&lora, &grads, &clipped).unwrap();
    let finite = |t: &Tensor| t.isfinite().all().int64_value(&[]) == 1;
    assert!(stepped.state.exp_avg_sq.iter().all(finite));
}
