//! Builds training sequences from samples.
//!
//! The alignment is the API's: of a whole sequence, the model reads all but the last id and predicts all but the first,
//! so entry i is about id i + 1. The prompt's entries have weight 0.

use metaclaw_trainer_api::{Datum, DatumError, DatumParts, ShapeError, Tensor2};
use metaclaw_turns::Tokens;

/// Returns a cross_entropy datum for `reply` after `prompt`.
///
/// # Shapes
/// `prompt`: P ids, `reply`: R ids, both at least 1. The datum has N = P + R - 1 entries, the last R
/// of which have weight `each`.
///
/// # Errors
/// Returns [`DatumError`] if there is nothing to predict.
pub(crate) fn target(prompt: &[u32], reply: &[u32], each: f32) -> Result<Datum, DatumError> {
    let (input, targets) = shifted(prompt, reply);
    let weights = on_reply(prompt, &vec![each; reply.len()]);
    Datum::cross_entropy(input, targets, weights)
}

/// Returns a cross_entropy datum with the `likely` ids at each id of `reply`: K ids with their probabilities, with the
/// same K everywhere.
///
/// # Shapes
/// The shapes are those of [`target`], with `[N, K]` targets and weights; the weights at one id of the reply sum up to
/// `each`.
///
/// # Errors
/// Returns [`DatumError`] if there is nothing to predict, or the lists do not have the same length, with one entry for
/// each id.
pub(crate) fn soft_target(
    prompt: &[u32],
    reply: &[u32],
    likely: &[Vec<(u32, f32)>],
    each: f32,
) -> Result<Datum, DatumError> {
    let weigh = |row: &Vec<(u32, f32)>| row.iter().map(|(id, p)| (*id, p * each)).collect();
    let rows: Vec<Vec<(u32, f32)>> = likely.iter().map(weigh).collect();
    weighted(prompt, reply, &rows)
}

/// Returns a cross_entropy datum with each row's ids in place of one id of `reply`; each has a weight, which may be
/// negative.
///
/// # Shapes
/// `rows`: `[R][K]`, with the same K everywhere. The datum has `[N, K]` targets and weights, where [`target`] has
/// `[N]`.
///
/// # Errors
/// Returns [`DatumError`] if there is nothing to predict, the rows do not have the same length (one entry for each id),
/// or a weight is not finite.
pub(crate) fn weighted(
    prompt: &[u32],
    reply: &[u32],
    rows: &[Vec<(u32, f32)>],
) -> Result<Datum, DatumError> {
    let (input, _) = shifted(prompt, reply);
    let width = rows.first().map_or(1, Vec::len).max(1);
    let n_before = prompt.len().saturating_sub(1);
    let (mut ids, mut weights) = (vec![0; n_before * width], vec![0.0; n_before * width]);
    for (id, weight) in rows.iter().flatten() {
        ids.push(*id);
        weights.push(*weight);
    }
    let shape = [input.len(), width];
    let uneven = |_: ShapeError| DatumError::Shape {
        field: "target_tokens",
        given: vec![n_before + rows.len(), width],
        expected: shape.to_vec(),
    };
    Datum::new(DatumParts {
        target_tokens: Tensor2::shaped(ids, &shape).map_err(uneven)?,
        weights: Some(Tensor2::shaped(weights, &shape).map_err(uneven)?),
        model_input_tokens: input,
        logprobs: None,
        advantages: None,
    })
}

/// Returns a datum of a policy loss on a turn's own ids, with the log-probabilities (T = 1) that they were sampled
/// with.
///
/// # Shapes
/// The shapes are those of [`target`], with the turn's ids as the reply. `advantages`: `[R]`, one for each id.
///
/// # Errors
/// Returns [`DatumError`] if there is nothing to predict, or log-probabilities or advantages do not fit the ids.
pub(crate) fn verdict(tokens: &Tokens, advantages: &[f32]) -> Result<Datum, DatumError> {
    let (prompt, reply) = (&tokens.prompt_ids, &tokens.ids);
    let (input, targets) = shifted(prompt, reply);
    Datum::policy(
        input,
        targets,
        on_reply(prompt, &tokens.logprobs),
        on_reply(prompt, advantages),
    )
}

fn shifted(prompt: &[u32], reply: &[u32]) -> (Vec<u32>, Vec<u32>) {
    let all = [prompt, reply].concat();
    let n = all.len().saturating_sub(1);
    (all[..n].to_vec(), all.get(1..).unwrap_or_default().to_vec())
}

fn on_reply(prompt: &[u32], reply: &[f32]) -> Vec<f32> {
    let mut values = vec![0.0; prompt.len().saturating_sub(1)];
    values.extend(reply);
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_reply_counts() {
        let datum = target(&[1, 2, 3], &[4, 5], 0.125).unwrap();
        let parts = datum.parts();
        assert_eq!(parts.model_input_tokens, [1, 2, 3, 4]);
        assert_eq!(parts.target_tokens.values(), [2, 3, 4, 5]);
        assert_eq!(
            parts.weights.as_ref().unwrap().values(),
            [0.0, 0.0, 0.125, 0.125]
        );
    }

    #[test]
    fn what_was_likely_shares_the_weight_of_each_id() {
        let likely = vec![vec![(4, 0.75), (9, 0.25)], vec![(5, 0.5), (8, 0.5)]];
        let datum = soft_target(&[1, 2], &[4, 5], &likely, 0.5).unwrap();
        let parts = datum.parts();
        assert_eq!(parts.model_input_tokens, [1, 2, 4]);
        assert_eq!(parts.target_tokens.shape(), [3, 2]);
        assert_eq!(parts.target_tokens.values(), [0, 0, 4, 9, 5, 8]);
        let weights = parts.weights.as_ref().unwrap().values();
        assert_eq!(weights, [0.0, 0.0, 0.375, 0.125, 0.25, 0.25]);
        assert!(soft_target(&[1, 2], &[4, 5], &likely[..1], 1.0).is_err());
    }

    #[test]
    fn a_turn_is_pushed_at_the_log_probabilities_it_was_sampled_at() {
        let tokens = Tokens {
            prompt_ids: vec![7],
            ids: vec![8, 9],
            logprobs: vec![-0.5, -1.5],
            sampling_logprobs: vec![-0.1, -0.2],
            ..Tokens::default()
        };
        let datum = verdict(&tokens, &[-0.25, -0.5]).unwrap();
        let parts = datum.parts();
        assert_eq!(parts.model_input_tokens, [7, 8]);
        assert_eq!(parts.target_tokens.values(), [8, 9]);
        assert_eq!(parts.logprobs.as_deref(), Some(&[-0.5, -1.5][..]));
        assert_eq!(parts.advantages.as_deref(), Some(&[-0.25, -0.5][..]));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        assert!(target(&[1], &[], 1.0).is_err());
        let uneven = Tokens {
            prompt_ids: vec![1],
            ids: vec![2, 3],
            logprobs: vec![-1.0],
            ..Tokens::default()
        };
        assert!(verdict(&uneven, &[1.0, 1.0]).is_err());
    }
}
