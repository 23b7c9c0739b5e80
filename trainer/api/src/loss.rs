//! The losses of the training API and their settings.

use std::{collections::BTreeMap, fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// `loss_fn_config` as it is on the wire: a number per key.
pub type LossConfig = BTreeMap<String, f64>;

/// The name of a loss. All are sums over tokens and datums, to be minimised.
///
/// With l = log p(target), q = `logprobs`, A = `advantages`, r = exp(l - q); formulas after
/// Tinker's documentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LossFn {
    /// -sum w l; targets `[N]` or `[N, K]`.
    CrossEntropy,
    /// -sum r A.
    ImportanceSampling,
    /// -sum min(r A, clip(r, lo, hi) A).
    Ppo,
    /// -sum stop_gradient(clip(r, lo, hi)) l A.
    Cispo,
    /// -sum (l A - beta/2 (l - q)^2).
    Dro,
}

/// A loss with its settings read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Loss {
    /// [`LossFn::CrossEntropy`].
    CrossEntropy,
    /// [`LossFn::ImportanceSampling`].
    ImportanceSampling,
    /// [`LossFn::Ppo`]; `low` and `high` are bounds of the ratio itself.
    Ppo {
        /// `clip_low_threshold`, 0.8.
        low: f64,
        /// `clip_high_threshold`, 1.2.
        high: f64,
    },
    /// [`LossFn::Cispo`]; `low` and `high` are bounds of the ratio itself.
    Cispo {
        /// `clip_low_threshold`, 0.
        low: f64,
        /// `clip_high_threshold`, 4.
        high: f64,
    },
    /// [`LossFn::Dro`].
    Dro {
        /// `beta`, 0.05: the example of Tinker's documentation, which states no default.
        beta: f64,
    },
}

/// Why a loss or its settings are refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum LossError {
    /// No such loss.
    #[error("loss_fn {value:?} is not known: one of {}", LossFn::names())]
    Unknown {
        /// What was given.
        value: String,
    },
    /// The loss has no such setting.
    #[error("loss_fn_config.{key} is not known to {loss}: {allowed}")]
    Key {
        /// What was given.
        key: String,
        /// The loss.
        loss: LossFn,
        /// The settings it has, in words.
        allowed: &'static str,
    },
    /// A setting is out of its range.
    #[error("loss_fn_config.{key} is {value}: {allowed}")]
    Value {
        /// Which setting.
        key: &'static str,
        /// What was given.
        value: f64,
        /// The range, in words.
        allowed: &'static str,
    },
}

const LOW: &str = "clip_low_threshold";
const HIGH: &str = "clip_high_threshold";
const BETA: &str = "beta";

// === impl LossFn ===

impl LossFn {
    /// Every loss of the API.
    pub const ALL: [Self; 5] = [
        Self::CrossEntropy,
        Self::ImportanceSampling,
        Self::Ppo,
        Self::Cispo,
        Self::Dro,
    ];

    /// The name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::CrossEntropy => "cross_entropy",
            Self::ImportanceSampling => "importance_sampling",
            Self::Ppo => "ppo",
            Self::Cispo => "cispo",
            Self::Dro => "dro",
        }
    }

    fn names() -> String {
        Self::ALL.map(Self::as_str).join(", ")
    }

    /// The settings of this loss, in words.
    fn settings(self) -> &'static str {
        match self {
            Self::CrossEntropy | Self::ImportanceSampling => "it has no settings",
            Self::Ppo | Self::Cispo => "it has clip_low_threshold and clip_high_threshold",
            Self::Dro => "it has beta",
        }
    }

    /// Reads the settings, filling in the defaults.
    ///
    /// # Errors
    /// [`LossError`] when a key is unknown to this loss or a value is out of range.
    pub fn configure(self, config: &LossConfig) -> Result<Loss, LossError> {
        let known: &[&str] = match self {
            Self::CrossEntropy | Self::ImportanceSampling => &[],
            Self::Ppo | Self::Cispo => &[LOW, HIGH],
            Self::Dro => &[BETA],
        };
        if let Some(key) = config.keys().find(|key| !known.contains(&key.as_str())) {
            return Err(LossError::Key {
                key: key.clone(),
                loss: self,
                allowed: self.settings(),
            });
        }
        match self {
            Self::CrossEntropy => Ok(Loss::CrossEntropy),
            Self::ImportanceSampling => Ok(Loss::ImportanceSampling),
            Self::Ppo => clip(config, 0.8, 1.2).map(|(low, high)| Loss::Ppo { low, high }),
            Self::Cispo => clip(config, 0.0, 4.0).map(|(low, high)| Loss::Cispo { low, high }),
            Self::Dro => {
                let beta = at_least_zero(config, BETA, 0.05)?;
                Ok(Loss::Dro { beta })
            }
        }
    }
}

fn at_least_zero(config: &LossConfig, key: &'static str, default: f64) -> Result<f64, LossError> {
    let value = config.get(key).copied().unwrap_or(default);
    if value.is_finite() && value >= 0.0 {
        return Ok(value);
    }
    let allowed = "a finite number of at least 0";
    Err(LossError::Value {
        key,
        value,
        allowed,
    })
}

fn clip(config: &LossConfig, low: f64, high: f64) -> Result<(f64, f64), LossError> {
    let low = at_least_zero(config, LOW, low)?;
    let high = at_least_zero(config, HIGH, high)?;
    if low <= high {
        return Ok((low, high));
    }
    Err(LossError::Value {
        key: HIGH,
        value: high,
        allowed: "at least clip_low_threshold",
    })
}

impl fmt::Display for LossFn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for LossFn {
    type Err = LossError;

    fn from_str(value: &str) -> Result<Self, LossError> {
        let found = Self::ALL.into_iter().find(|loss| loss.as_str() == value);
        found.ok_or_else(|| LossError::Unknown {
            value: value.to_owned(),
        })
    }
}

impl Serialize for LossFn {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for LossFn {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(pairs: &[(&str, f64)]) -> LossConfig {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), *v)).collect()
    }

    #[test]
    fn settings_have_tinkers_defaults() {
        let none = LossConfig::new();
        assert_eq!(
            LossFn::Ppo.configure(&none),
            Ok(Loss::Ppo {
                low: 0.8,
                high: 1.2
            })
        );
        assert_eq!(
            LossFn::Cispo.configure(&none),
            Ok(Loss::Cispo {
                low: 0.0,
                high: 4.0
            })
        );
        assert_eq!(
            LossFn::Dro.configure(&config(&[("beta", 0.1)])),
            Ok(Loss::Dro { beta: 0.1 })
        );
    }

    #[test]
    fn a_setting_of_another_loss_is_refused() {
        let refused = |loss: LossFn, pairs: &[(&str, f64)]| {
            loss.configure(&config(pairs)).unwrap_err().to_string()
        };
        insta::assert_snapshot!(refused(LossFn::Dro, &[("clip_low_threshold", 0.8)]), @"loss_fn_config.clip_low_threshold is not known to dro: it has beta");
        insta::assert_snapshot!(refused(LossFn::Ppo, &[("clip_high_threshold", 0.5)]), @"loss_fn_config.clip_high_threshold is 0.5: at least clip_low_threshold");
        insta::assert_snapshot!(refused(LossFn::Dro, &[("beta", f64::NAN)]), @"loss_fn_config.beta is NaN: a finite number of at least 0");
        insta::assert_snapshot!("gspo".parse::<LossFn>().unwrap_err(), @r#"loss_fn "gspo" is not known: one of cross_entropy, importance_sampling, ppo, cispo, dro"#);
    }
}
