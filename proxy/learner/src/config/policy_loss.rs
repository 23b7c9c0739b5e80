//! The loss for advantages from verdicts: `rl.loss_fn`, `rl.clip_low`, `rl.clip_high`.

use metaclaw_trainer_api::{LossConfig, LossFn};

use super::rl::{RlConfig, Teacher};
use crate::{
    formulas::RatioClip,
    methods::{Method, Objective, PolicyLoss, TrainingSignal},
};

/// The default bounds of the ratio: a token that has become more probable since it was sampled counts at most twice.
/// Without a bound, a token whose log-probability rose from -9 to -0.1 would count 7,300 times. Tinker's own upper
/// bound is 4.
const CISPO: [f64; 2] = [0.0, 2.0];
/// OpenClaw-RL's bounds, given there as distances from 1: 0.2 below and 0.28 above.
const PPO: [f64; 2] = [0.8, 1.28];

/// Settings of `rl.*` that contradict each other.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum RlConfigError {
    /// A loss that cannot be used with advantages.
    #[error("rl.loss_fn is {loss}, allowed: cispo, ppo, importance_sampling; {why}")]
    Loss { loss: LossFn, why: &'static str },
    /// OpenClaw-RL's method `hybrid` has one loss.
    #[error(
        "rl.loss_fn is {loss}, and rl.method hybrid is made of ppo: leave rl.loss_fn out, or set it to ppo"
    )]
    NotHybrids { loss: LossFn },
    /// A teacher that a method cannot use.
    #[error("rl.teacher is {teacher:?} with rl.method {methods}: {allowed}")]
    Teacher {
        teacher: Teacher,
        /// The methods that the teacher was set for.
        methods: String,
        allowed: &'static str,
    },
    /// A bound for a loss that has none.
    #[error("{key} is {value}: rl.loss_fn {loss} has no bounds, only cispo and ppo have")]
    Unbounded {
        key: &'static str,
        value: f64,
        loss: LossFn,
    },
    /// A lower bound above the upper one.
    #[error(
        "rl.clip_low is {low} and rl.clip_high {high}, with rl.loss_fn {loss}; allowed: 0 or more, low no more than high, high above 0"
    )]
    Bounds {
        /// The lower bound that would be used.
        low: f64,
        high: f64,
        loss: LossFn,
    },
}

// === impl RlConfig ===

impl RlConfig {
    /// Checks the settings that depend on each other.
    ///
    /// # Errors
    /// Returns [`RlConfigError`] with the field, its value and what is allowed.
    pub fn check(&self) -> Result<(), RlConfigError> {
        self.objective()?;
        if self.teacher == Teacher::Current && self.method.has(TrainingSignal::Target) {
            return Err(RlConfigError::Teacher {
                teacher: self.teacher,
                methods: self.method.to_string(),
                allowed: "redo is taught by base; current is for opd and hybrid",
            });
        }
        Ok(())
    }

    /// Returns the settings that the examples of a step depend on.
    ///
    /// # Errors
    /// Returns the errors of [`RlConfig::check`].
    pub(crate) fn objective(&self) -> Result<Objective, RlConfigError> {
        Ok(Objective {
            w_redo: self.w_redo,
            w_opd: self.w_opd,
            w_rl: self.w_rl,
            anchor: self.anchor,
            policy_loss: self.policy_loss()?,
            rollout_loss: self.loss(self.loss_fn.unwrap_or(LossFn::Cispo))?,
            clip: self.surrogate_clip()?,
        })
    }

    fn usual_loss(&self) -> LossFn {
        let method = self.method.of(TrainingSignal::Verdict);
        method.map_or(LossFn::Cispo, Method::usual_loss)
    }

    /// Returns the bounds of the ratio in hybrid and opd; opd always uses the bounds of ppo.
    ///
    /// # Errors
    /// Returns the errors of [`RlConfig::check`].
    fn surrogate_clip(&self) -> Result<RatioClip, RlConfigError> {
        let [low, high] = if self.usual_loss() == LossFn::Ppo {
            self.checked_bounds(LossFn::Ppo, PPO)?
        } else {
            PPO
        };
        Ok(RatioClip { low, high })
    }

    /// Returns the loss for advantages from verdicts.
    ///
    /// # Errors
    /// Returns the errors of [`RlConfig::check`].
    fn policy_loss(&self) -> Result<PolicyLoss, RlConfigError> {
        let usual = self.usual_loss();
        let loss = self.loss_fn.unwrap_or(usual);
        if usual == LossFn::Ppo && loss != usual {
            return Err(RlConfigError::NotHybrids { loss });
        }
        self.loss(loss)
    }

    /// Returns a loss for advantages with its bounds.
    fn loss(&self, loss: LossFn) -> Result<PolicyLoss, RlConfigError> {
        let config = match loss {
            LossFn::Cispo => self.bounds(loss, CISPO)?,
            LossFn::Ppo => self.bounds(loss, PPO)?,
            LossFn::ImportanceSampling => self.no_bounds(loss)?,
            LossFn::CrossEntropy => {
                let why = "cross_entropy knows no log-probability that a token was sampled at";
                return Err(RlConfigError::Loss { loss, why });
            }
            LossFn::Dro => {
                let why =
                    "the square in dro is not weighted, so that long replies would count more";
                return Err(RlConfigError::Loss { loss, why });
            }
        };
        Ok(PolicyLoss { loss, config })
    }

    fn bounds(&self, loss: LossFn, usual: [f64; 2]) -> Result<LossConfig, RlConfigError> {
        let [low, high] = self.checked_bounds(loss, usual)?;
        let bounds = [("clip_low_threshold", low), ("clip_high_threshold", high)];
        Ok(bounds.map(|(key, value)| (key.to_owned(), value)).into())
    }

    fn checked_bounds(&self, loss: LossFn, usual: [f64; 2]) -> Result<[f64; 2], RlConfigError> {
        let low = self.clip_low.unwrap_or(usual[0]);
        let high = self.clip_high.unwrap_or(usual[1]);
        if !(low >= 0.0 && high > 0.0 && low <= high && high.is_finite()) {
            return Err(RlConfigError::Bounds { low, high, loss });
        }
        Ok([low, high])
    }

    fn no_bounds(&self, loss: LossFn) -> Result<LossConfig, RlConfigError> {
        let given = [
            ("rl.clip_low", self.clip_low),
            ("rl.clip_high", self.clip_high),
        ];
        let mut given = given
            .into_iter()
            .filter_map(|(key, value)| Some((key, value?)));
        match given.next() {
            Some((key, value)) => Err(RlConfigError::Unbounded { key, value, loss }),
            None => Ok(LossConfig::new()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn loss(rl: Value) -> Result<(LossFn, Vec<f64>), String> {
        let rl: RlConfig = serde_json::from_value(rl).unwrap();
        let loss = rl.policy_loss().map_err(|error| error.to_string())?;
        let mut bounds: Vec<f64> = loss.config.into_values().collect();
        bounds.reverse();
        Ok((loss.loss, bounds))
    }

    #[test]
    fn each_loss_has_bounds_of_its_own_unless_others_are_given() {
        for (rl, expected) in [
            (json!({}), (LossFn::Cispo, vec![0.0, 2.0])),
            (json!({"clip_high": 4}), (LossFn::Cispo, vec![0.0, 4.0])),
            (json!({"loss_fn": "ppo"}), (LossFn::Ppo, vec![0.8, 1.28])),
            (
                json!({"loss_fn": "ppo", "clip_low": 0.5, "clip_high": 1.5}),
                (LossFn::Ppo, vec![0.5, 1.5]),
            ),
            (
                json!({"loss_fn": "importance_sampling"}),
                (LossFn::ImportanceSampling, vec![]),
            ),
            (
                json!({"method": "metaclaw"}),
                (LossFn::ImportanceSampling, vec![]),
            ),
            (
                json!({"method": "metaclaw", "loss_fn": "cispo"}),
                (LossFn::Cispo, vec![0.0, 2.0]),
            ),
            (json!({"method": "hybrid"}), (LossFn::Ppo, vec![0.8, 1.28])),
        ] {
            assert_eq!(loss(rl).unwrap(), expected);
        }
    }

    #[test]
    fn each_method_has_teachers_of_its_own() {
        for (method, teacher, is_fine) in [
            ("redo+opd", "base", true),
            ("hybrid", "current", true),
            ("redo+opd", "current", false),
        ] {
            let rl = json!({"method": method, "teacher": teacher});
            let rl: RlConfig = serde_json::from_value(rl).unwrap();
            assert_eq!(rl.check().is_ok(), is_fine, "{method} {teacher}");
        }
    }

    #[test]
    fn what_does_not_go_together_is_refused_in_words() {
        for (rl, said) in [
            (
                json!({"clip_low": 3}),
                "rl.clip_low is 3 and rl.clip_high 2, with rl.loss_fn cispo",
            ),
            (json!({"clip_high": 0}), "high above 0"),
            (
                json!({"loss_fn": "importance_sampling", "clip_high": 2}),
                "rl.clip_high is 2: rl.loss_fn importance_sampling has no bounds",
            ),
            (
                json!({"loss_fn": "dro"}),
                "rl.loss_fn is dro, allowed: cispo, ppo, importance_sampling",
            ),
            (json!({"loss_fn": "cross_entropy"}), "allowed: cispo"),
            (
                json!({"method": "hybrid", "loss_fn": "cispo"}),
                "hybrid is made of ppo",
            ),
            (
                json!({"method": "metaclaw", "clip_high": 2}),
                "importance_sampling has no bounds",
            ),
        ] {
            let error = loss(rl.clone()).unwrap_err();
            assert!(error.contains(said), "{rl}: {error}");
        }
    }
}
