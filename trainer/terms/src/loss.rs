//! The losses, by name.

use std::{collections::BTreeMap, str::FromStr};

/// `loss_fn_config`: a number for each key. The server defines its defaults and the allowed keys.
pub type LossConfig = BTreeMap<String, f64>;

/// The name of a loss. All are sums over tokens and datums, which training minimises.
///
/// With w = `weights`, l = log p(target), q = `logprobs`, A = `advantages`, r = exp(l - q); formulas after Tinker's
/// documentation. `clip` limits r to lo and hi, which are absolute bounds, not distances from 1.
///
/// # Examples
/// ```
/// use metaclaw_trainer_terms::LossFn;
///
/// assert_eq!("cispo".parse::<LossFn>()?, LossFn::Cispo);
/// assert_eq!(LossFn::CrossEntropy.as_str(), "cross_entropy");
/// # Ok::<(), metaclaw_trainer_terms::UnknownLoss>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, derive_more::Display)]
#[display("{}", self.as_str())]
pub enum LossFn {
    /// -sum w l; targets `[N]` or `[N, K]`, weights may be negative.
    CrossEntropy,
    ImportanceSampling,
    /// -sum min(r A, clip(r) A) (<https://arxiv.org/abs/1707.06347>).
    Ppo,
    /// -sum stop_gradient(clip(r)) l A (<https://arxiv.org/abs/2506.13585>): limits a token's gradient, and never
    /// removes it.
    Cispo,
    /// -sum (l A - beta/2 (l - q)^2) (<https://arxiv.org/abs/2405.19107>).
    Dro,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("loss_fn {value:?} is not known: one of {}", LossFn::names())]
pub struct UnknownLoss {
    pub value: String,
}

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

    /// Returns its name in requests.
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
}

impl FromStr for LossFn {
    type Err = UnknownLoss;

    fn from_str(value: &str) -> Result<Self, UnknownLoss> {
        let found = Self::ALL.into_iter().find(|loss| loss.as_str() == value);
        found.ok_or_else(|| UnknownLoss {
            value: value.to_owned(),
        })
    }
}

crate::serde_by_text!(LossFn);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_loss_is_told_the_known_ones() {
        insta::assert_snapshot!("gspo".parse::<LossFn>().unwrap_err(), @r#"loss_fn "gspo" is not known: one of cross_entropy, importance_sampling, ppo, cispo, dro"#);
    }
}
