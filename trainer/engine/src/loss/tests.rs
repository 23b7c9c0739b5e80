use proptest::prelude::*;

use super::*;

fn new(loss: LossFn, config: &[(&str, f64)]) -> Result<Loss, LossError> {
    let config = config.iter().map(|&(key, value)| (key.into(), value));
    Loss::new(loss, &config.collect())
}

fn all() -> [Loss; 5] {
    LossFn::ALL.map(|loss| new(loss, &[]).unwrap())
}

fn term(loss: Loss, l: f64, weight: f32, sampled: f32) -> Term {
    loss.term(l, LossSignal { weight, sampled })
}

#[track_caller]
fn close(found: Term, loss: f64, grad: f64) {
    let near = |a: f64, b: f64| (a - b).abs() <= 1e-6 * b.abs().max(1.0);
    let is_close = near(found.loss, loss) && near(found.grad_logprob, grad);
    assert!(is_close, "{found:?} for {loss}, {grad}");
}

#[test]
fn values_by_hand() {
    let (ln2, q) = (std::f64::consts::LN_2, -1.0f32);
    let l = ln2 - 1.0; // ratio 2
    close(term(Loss::CrossEntropy, -3.0, 0.5, 0.0), 1.5, -0.5);
    close(term(Loss::ImportanceSampling, l, 3.0, q), -6.0, -6.0);
    let ppo = new(LossFn::Ppo, &[]).unwrap();
    close(term(ppo, l, 3.0, q), -3.6, 0.0); // above 1.2 with A > 0: clipped
    close(term(ppo, l, -3.0, q), 6.0, 6.0); // with A < 0: not
    close(term(ppo, -ln2 - 1.0, -3.0, q), 2.4, 0.0); // below 0.8 with A < 0: clipped
    close(term(ppo, -1.0, 3.0, q), -3.0, -3.0); // at 1: both
    let cispo = new(LossFn::Cispo, &[("clip_high_threshold", 1.5)]).unwrap();
    close(term(cispo, l, 3.0, q), -4.5 * l, -4.5); // clipped, still pulling
    let dro = new(LossFn::Dro, &[]).unwrap();
    let (loss, grad) = (3.0 + 0.5 * 0.05 * 0.25, -2.0 - 0.05 * 0.5);
    close(term(dro, -1.5, 2.0, q), loss, grad);
}

/// This is acceptance test 2 of OpenClaw-RL's specification: its clip of 0.2 below and 0.28 above.
#[test]
fn the_clip_table_of_openclaw_rl() {
    let bounds = [("clip_low_threshold", 0.8), ("clip_high_threshold", 1.28)];
    let ppo = new(LossFn::Ppo, &bounds).unwrap();
    for (advantage, ratio, loss, grad) in [
        (1.0, 1.5f64, -1.28, 0.0),
        (1.0, 0.5, -0.5, -0.5),
        (-1.0, 0.5, 0.8, 0.0),
        (-1.0, 1.5, 1.5, 1.5),
    ] {
        close(term(ppo, ratio.ln() - 2.0, advantage, -2.0), loss, grad);
    }
}

/// The product's bound for policy-gradient weights is min(exp(now - sampled), 2), which has no gradient itself.
#[test]
fn cispo_up_to_2_is_the_truncated_correction() {
    let bounds = [("clip_low_threshold", 0.0), ("clip_high_threshold", 2.0)];
    let cispo = new(LossFn::Cispo, &bounds).unwrap();
    for (l, sampled) in [(-0.1, -9.0f32), (-9.0, -0.1), (-1.0, -1.0), (-0.5, -1.0)] {
        let ratio = (l - f64::from(sampled)).exp().min(2.0);
        close(term(cispo, l, -0.5, sampled), 0.5 * ratio * l, 0.5 * ratio);
    }
}

#[test]
fn a_masked_target_gives_zero_where_exp_overflows() {
    for loss in all() {
        let found = term(loss, 1e4, 0.0, 0.0);
        assert_eq!(found, Term::new(0.0, 0.0), "{}", loss.loss_fn());
    }
    let overflow = term(Loss::ImportanceSampling, 1e4, 1.0, 0.0);
    // It is not hidden: the caller refuses it.
    assert!(overflow.grad_logprob.is_infinite());
}

/// A prompt has advantage 0, and may have log-probabilities.
#[test]
fn advantage_0_is_masked_whatever_the_loss() {
    for loss in all() {
        let (weight, sampled) = (0.0, -1.5);
        let prompt = LossSignal { weight, sampled };
        assert!(loss.is_masked(prompt), "{}", loss.loss_fn());
        assert!(loss.term(-3.0, prompt).grad_logprob.abs() == 0.0);
    }
}

#[test]
fn refuses_unknown_keys_and_values() {
    let text = |loss, config: &[_]| new(loss, config).unwrap_err().to_string();
    let unknown = "loss_fn_config \"beta\" is not a key of cross_entropy: allowed are none";
    assert_eq!(text(LossFn::CrossEntropy, &[("beta", 1.0)]), unknown);
    let swapped = "loss_fn_config of ppo: clip_high_threshold is 1.2, allowed: a number from clip_low_threshold up";
    assert_eq!(text(LossFn::Ppo, &[("clip_low_threshold", 2.0)]), swapped);
    assert!(text(LossFn::Ppo, &[("clip_low_threshold", f64::NAN)]).contains("is NaN"));
    assert!(text(LossFn::Dro, &[("beta", 0.0)]).ends_with("beta is 0, allowed: a number above 0"));
}

proptest! {
    /// The gradient is the derivative, except at the corners of a clip. For cispo the clipped ratio counts as a
    /// constant.
    #[test]
    fn gradients_are_finite_differences(l in -6.0..-0.05f64, q in -6.0..-0.05f32, weight in -3.0..3.0f32) {
        let (signal, h) = (LossSignal { weight, sampled: q }, 1e-6);
        let ratio = (l - f64::from(q)).exp();
        for loss in all() {
            let corner = matches!(loss, Loss::Ppo { clip }
                if [clip.low, clip.high].iter().any(|c| (ratio - c).abs() < 1e-4));
            if corner || weight == 0.0 {
                continue;
            }
            let at = |l: f64| match loss {
                Loss::Cispo { clip } => -clip.clamp(ratio) * l * f64::from(weight),
                _ => loss.term(l, signal).loss,
            };
            let measured = (at(l + h) - at(l - h)) / (2.0 * h);
            let grad = loss.term(l, signal).grad_logprob;
            prop_assert!((measured - grad).abs() <= 1e-4 * grad.abs().max(1.0),
                "{}: {measured} and {grad}", loss.loss_fn());
        }
    }
}
