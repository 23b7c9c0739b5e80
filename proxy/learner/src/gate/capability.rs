//! Measures what a model knows: asks the base model or a run the capability probes.

use metaclaw_trainer_api::BackendError;
use serde::{Deserialize, Serialize};

use super::{
    measures::mean,
    probes::{Probes, user_says},
};
use crate::policy::{By, PolicyModel, ScoredPair};

/// A capability probe as ids.
#[derive(Debug)]
pub(super) struct CapabilityPrompt {
    prompt: Vec<u32>,
    right: Vec<u32>,
    wrong: Vec<u32>,
}

/// The result of the capability probes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct CapabilityScore {
    /// The number of right answers that were more probable than the wrong ones.
    pub(super) n_right: usize,
    /// The mean difference, in nats per token.
    pub(super) margin: f64,
}

/// Renders the capability probes.
pub(super) async fn render(
    policy: &PolicyModel,
    probes: &Probes,
) -> Result<Vec<CapabilityPrompt>, BackendError> {
    let mut asked = Vec::with_capacity(probes.capability.len());
    for probe in &probes.capability {
        asked.push(CapabilityPrompt {
            prompt: policy
                .render(vec![user_says(&probe.question)], None)
                .await?,
            right: policy.encode(&probe.right).await?,
            wrong: policy.encode(&probe.wrong).await?,
        });
    }
    Ok(asked)
}

/// Asks a model the capability probes.
pub(super) async fn capability(
    policy: &PolicyModel,
    by: By<'_>,
    asked: &[CapabilityPrompt],
) -> Result<CapabilityScore, BackendError> {
    let pairs: Vec<ScoredPair<'_>> = asked.iter().flat_map(CapabilityPrompt::answers).collect();
    let scores = policy.score(by, &pairs, usize::MAX).await?;
    let margins = scores.chunks_exact(2).map(|both| both[0] - both[1]);
    Ok(CapabilityScore::of(&margins.collect::<Vec<f64>>()))
}

// === impl CapabilityPrompt ===

impl CapabilityPrompt {
    /// Returns the right answer first.
    fn answers(&self) -> [ScoredPair<'_>; 2] {
        let prompt = &self.prompt;
        [&self.right, &self.wrong].map(|reply| ScoredPair { prompt, reply })
    }
}

// === impl CapabilityScore ===

impl CapabilityScore {
    fn of(margins: &[f64]) -> Self {
        Self {
            n_right: margins.iter().filter(|margin| **margin > 0.0).count(),
            margin: mean(margins),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_right_that_is_likelier_than_the_wrong_one() {
        let CapabilityScore { n_right, margin } = CapabilityScore::of(&[0.5, -0.25, 0.0, 0.75]);
        assert_eq!(n_right, 2);
        assert!((margin - 0.25).abs() < 1e-9);
    }
}
