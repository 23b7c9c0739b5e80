//! A reply that is no turn's: the base model's own, which the weights are to find as likely as it does.

use std::sync::Arc;

use metaclaw_trainer_api::{Datum, DatumError};

use serde::Serialize;

use super::{asked::Asked, datum};
use crate::methods::{reverse_kl, single};

/// A reply of the base model to a question of ours, with its wishes in the prompt.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Reply {
    /// The question without the wishes: what the student reads.
    pub(crate) prompt: Vec<u32>,
    pub(crate) ids: Vec<u32>,
    /// `[R][K]`: the ids that the base finds likeliest at each, told the wishes.
    pub(crate) likely: Vec<Vec<u32>>,
    /// `[R][K]`: their log-probabilities.
    pub(crate) logprobs: Vec<Vec<f32>>,
}

/// The same with its weight in a step.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Anchor {
    pub(crate) reply: Arc<Reply>,
    /// Of the divergence at one id, with its share of the batch.
    pub(crate) share: f32,
}

// === impl Anchor ===

impl Anchor {
    /// The sample as far as it is known before: no weights.
    ///
    /// # Errors
    /// [`DatumError`] when there is nothing to predict.
    pub(super) fn known(&self) -> Result<Datum, DatumError> {
        Ok(self.asked()?.datum)
    }

    /// What the student is to be asked.
    ///
    /// # Errors
    /// The same.
    pub(crate) fn asked(&self) -> Result<Asked, DatumError> {
        Asked::of(&self.reply.prompt, &self.reply.ids, &self.reply.likely)
    }

    /// The divergence of the student from the base, and cross_entropy with its gradient.
    ///
    /// # Shapes
    /// `now`: `[R · K]`, the student's log-probabilities in row-major order.
    ///
    /// # Errors
    /// The same, and where `now` is of another shape.
    pub(crate) fn at(&self, now: &[f32]) -> Result<(f64, Datum), DatumError> {
        let share = f64::from(self.share);
        let (mut loss, mut rest) = (0.0, now);
        let mut rows = Vec::new();
        for (ids, base_k) in self.reply.likely.iter().zip(&self.reply.logprobs) {
            let (now_k, further) = rest.split_at(ids.len().min(rest.len()));
            rest = further;
            let (kl, weights) = reverse_kl(now_k, base_k);
            loss += share * kl;
            let weights = weights.iter().map(|weight| single(share * weight));
            rows.push(ids.iter().copied().zip(weights).collect::<Vec<_>>());
        }
        let datum = datum::weighted(&self.reply.prompt, &self.reply.ids, &rows)?;
        Ok((loss, datum))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ln(p: &[f32]) -> Vec<f32> {
        p.iter().map(|p| p.ln()).collect()
    }

    fn anchor() -> Anchor {
        Anchor {
            reply: Arc::new(Reply {
                prompt: vec![1, 2],
                ids: vec![4, 5],
                likely: vec![vec![4, 6], vec![5, 7]],
                logprobs: vec![ln(&[0.5, 0.25]), ln(&[0.5, 0.25])],
            }),
            share: 2.0,
        }
    }

    #[test]
    fn what_has_become_too_likely_is_pushed_down_and_the_rest_up() {
        let (loss, datum) = anchor().at(&ln(&[0.5, 0.25, 0.9, 0.05])).unwrap();
        let parts = datum.parts();
        assert_eq!(parts.target_tokens.values(), [0, 0, 4, 6, 5, 7]);
        let weights = parts.weights.as_ref().unwrap().values();
        assert!(
            weights[..4].iter().all(|it| it.abs() < 1e-5),
            "where both agree: {weights:?}"
        );
        assert!(weights[4] < 0.0 && weights[5] > 0.0, "{weights:?}");
        // 2 (0.9 ln 1.8 + 0.05 ln 0.2 + 0.05 ln 0.2)
        assert!((loss - 0.736_12).abs() < 1e-3, "{loss}");
        assert!(anchor().at(&ln(&[0.5, 0.25])).is_err(), "a row is missing");
    }
}
