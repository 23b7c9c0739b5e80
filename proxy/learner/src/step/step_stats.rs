//! What the passes of an attempt measured.

use std::{collections::BTreeMap, time::Duration};

use metaclaw_trainer_api::wire::{ForwardBackwardReply, LossFnOutput, OptimStepReply};

use crate::{
    lineage::{Drift, Numbers},
    methods::Example,
};

/// What the passes so far measured.
#[derive(Debug, Default)]
pub(crate) struct StepStats {
    loss: f64,
    losses: BTreeMap<String, f64>,
    n_tokens: usize,
    time: Duration,
    /// Of log p now - log p when sampled: how many, the sum, the sum of what each is without its sign.
    moved: (usize, f64, f64),
}

// === impl StepStats ===

impl StepStats {
    /// Adds a call of one method.
    pub(crate) fn add(
        &mut self,
        method: &str,
        examples: &[Example],
        reply: &ForwardBackwardReply,
        time: Duration,
    ) {
        self.loss += reply.loss;
        *self.losses.entry(method.to_owned()).or_default() += reply.loss;
        self.n_tokens += examples.iter().map(Example::n_tokens).sum::<usize>();
        self.time += time;
        for (example, output) in examples.iter().zip(&reply.loss_fn_outputs) {
            for moved in moved(example, output) {
                self.moved.0 += 1;
                self.moved.1 += moved;
                self.moved.2 += moved.abs();
            }
        }
    }

    /// All of it, after the step.
    pub(crate) fn numbers(self, stepped: &OptimStepReply, learning_rate: f64) -> Numbers {
        let (n, sum, absolute) = self.moved;
        let drift = Drift {
            logprob_abs_diff: absolute / n.max(1) as f64,
            kl: -sum / n.max(1) as f64,
        };
        Numbers {
            loss: self.loss,
            losses: self.losses,
            grad_norm: stepped.grad_norm,
            learning_rate,
            skipped: stepped.skipped,
            n_tokens: self.n_tokens,
            train_seconds: self.time.as_secs_f64(),
            drift: (n > 0).then_some(drift),
        }
    }
}

/// How far each sampled id that an example pushes has moved; nothing of an example that is no policy's.
fn moved<'a>(example: &'a Example, output: &'a LossFnOutput) -> impl Iterator<Item = f64> + 'a {
    let parts = example.datum.parts();
    let sampled = parts.logprobs.iter().flatten();
    let pushed = parts.advantages.iter().flatten();
    let all = sampled.zip(pushed).zip(&output.logprobs);
    all.filter_map(|((sampled, advantage), now)| {
        let now = now.filter(|_| *advantage != 0.0)?;
        Some(f64::from(now) - f64::from(*sampled))
    })
}

#[cfg(test)]
mod tests {
    use metaclaw_trainer_api::Datum;

    use super::*;

    fn reply(loss: f64, logprobs: &[Option<f32>]) -> ForwardBackwardReply {
        ForwardBackwardReply {
            status: "ok".to_owned(),
            loss,
            total_tokens: 1,
            num_datums: 1,
            loss_fn_outputs: vec![LossFnOutput {
                logprobs: logprobs.to_vec(),
            }],
        }
    }

    fn stepped() -> OptimStepReply {
        serde_json::from_str(r#"{"step": 1, "grad_norm": 0.5, "skipped": true}"#).unwrap()
    }

    #[test]
    fn losses_are_told_apart_and_only_what_is_pushed_has_moved() {
        let sampled = vec![0.0, -1.0, -2.0];
        let advantages = vec![0.0, 0.5, 0.5];
        let datum = Datum::policy(vec![1, 2, 3], vec![2, 3, 4], sampled, advantages).unwrap();
        let pushed = [Example {
            datum,
            turns: Vec::new(),
            state: None,
        }];
        let datum = Datum::cross_entropy(vec![1], vec![2], vec![1.0]).unwrap();
        let target = [Example {
            datum,
            turns: Vec::new(),
            state: None,
        }];
        let mut passes = StepStats::default();
        let now = [Some(-9.0), Some(-1.5), Some(-1.75)];
        passes.add("binary_rl", &pushed, &reply(0.5, &now), Duration::ZERO);
        passes.add("redo", &target, &reply(2.0, &[Some(-3.0)]), Duration::ZERO);
        passes.add("redo", &target, &reply(1.0, &[]), Duration::from_secs(2));
        let numbers = passes.numbers(&stepped(), 0.1);
        assert!((numbers.loss - 3.5).abs() < 1e-9 && numbers.skipped);
        assert!((numbers.losses["redo"] - 3.0).abs() < 1e-9);
        assert!((numbers.losses["binary_rl"] - 0.5).abs() < 1e-9);
        assert_eq!((numbers.n_tokens, numbers.train_seconds), (5, 2.0));
        // -0.5 and +0.25; the prompt's has no advantage.
        let drift = numbers.drift.unwrap();
        assert!((drift.kl - 0.125).abs() < 1e-6, "{drift:?}");
        assert!((drift.logprob_abs_diff - 0.375).abs() < 1e-6, "{drift:?}");
    }

    #[test]
    fn a_server_that_says_no_log_probabilities_is_no_drift_of_zero() {
        let numbers = StepStats::default().numbers(&stepped(), 0.1);
        assert_eq!(numbers.drift, None);
    }
}
