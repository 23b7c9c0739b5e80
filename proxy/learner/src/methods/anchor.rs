//! `rl.anchor`: keeps the weights near replies that the base model gives with the wishes in its prompt.
//!
//! The loss is the reverse KL divergence of the student from the base, at the ids that the base finds most probable.

use std::sync::Arc;

use futures_util::{FutureExt as _, future::BoxFuture};
use metaclaw_trainer_api::{BackendError, Datum, DatumError};
use metaclaw_turns::Turn;

use super::method::{
    AnchorTerm, Example, ExampleState, Group, LogprobClient, Method, NotAnExample, Objective,
    TrainingSignal, Want, sum,
};
use crate::{
    formulas::{reverse_kl, single},
    sample::{Batch, ExcludeReason, LogprobQuery, Teaching, datum},
};

#[derive(Debug)]
pub(crate) struct Anchor;

// === impl Anchor ===

impl Method for Anchor {
    fn name(&self) -> &'static str {
        "anchor"
    }

    fn signals(&self) -> &'static [TrainingSignal] {
        &[]
    }

    fn wants(&self, _turn: &Turn, _teaching: Teaching<'_>) -> Want {
        Want::Never(ExcludeReason::NoUse)
    }

    /// Each reply has an equal share of `rl.anchor`.
    fn group(&self, batch: &Batch, objective: &Objective) -> Result<Group, NotAnExample> {
        let n = batch.anchors.len().max(1) as f32;
        let examples = batch.anchors.iter().map(|reply| {
            let term = AnchorTerm {
                share: objective.anchor / (n * reply.ids.len().max(1) as f32),
                reply: Arc::clone(reply),
            };
            let example = Example::new(Vec::new(), term.known())?;
            Ok(example.refreshed_by(ExampleState::Anchor(term)))
        });
        Ok(Group::weighted(
            &Self,
            examples.collect::<Result<_, NotAnExample>>()?,
        ))
    }

    fn refresh<'a>(
        &'a self,
        examples: &'a mut [Example],
        policy: LogprobClient<'a>,
    ) -> BoxFuture<'a, Result<Option<f64>, BackendError>> {
        refresh(examples, policy).boxed()
    }
}

async fn refresh(
    examples: &mut [Example],
    policy: LogprobClient<'_>,
) -> Result<Option<f64>, BackendError> {
    let terms = examples.iter().filter_map(|example| match &example.state {
        Some(ExampleState::Anchor(term)) => Some(term.clone()),
        Some(ExampleState::Distil(_) | ExampleState::Surrogate(_)) | None => None,
    });
    let terms: Vec<AnchorTerm> = terms.collect();
    let now = policy.now(terms.iter().map(AnchorTerm::query)).await?;
    let each = terms.iter().zip(&now);
    let (loss, datums) = sum(each.map(|(term, now)| term.at(&now.logprobs)))?;
    for (example, datum) in examples.iter_mut().zip(datums) {
        example.datum = datum;
    }
    Ok(Some(loss))
}

// === impl AnchorTerm ===

impl AnchorTerm {
    /// Returns the sample without weights, which are not known yet.
    ///
    /// # Errors
    /// Returns [`DatumError`] if there is nothing to predict.
    fn known(&self) -> Result<Datum, DatumError> {
        Ok(self.query()?.datum)
    }

    /// Returns the sequence whose log-probabilities the student is asked for.
    ///
    /// # Errors
    /// Returns [`DatumError`] if there is nothing to predict.
    fn query(&self) -> Result<LogprobQuery, DatumError> {
        LogprobQuery::for_ids(&self.reply.prompt, &self.reply.ids, &self.reply.likely)
    }

    /// Returns the divergence of the student from the base, and the cross_entropy with the same gradient.
    ///
    /// # Shapes
    /// `now`: `[R · K]`, the student's log-probabilities in row-major order.
    ///
    /// # Errors
    /// Returns the same error, also if `now` has another shape.
    fn at(&self, now: &[f32]) -> Result<(f64, Datum), DatumError> {
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
    use crate::sample::AnchorReply;

    fn ln(p: &[f32]) -> Vec<f32> {
        p.iter().map(|p| p.ln()).collect()
    }

    fn anchor() -> AnchorTerm {
        AnchorTerm {
            reply: Arc::new(AnchorReply {
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
        let is_so = weights[..4].iter().all(|weight| weight.abs() < 1e-5);
        assert!(is_so, "where both agree: {weights:?}");
        assert!(weights[4] < 0.0 && weights[5] > 0.0, "{weights:?}");
        // This is 2 (0.9 ln 1.8 + 0.05 ln 0.2 + 0.05 ln 0.2).
        assert!((loss - 0.736_12).abs() < 1e-3, "{loss}");
        assert!(anchor().at(&ln(&[0.5, 0.25])).is_err(), "a row is missing");
    }
}
