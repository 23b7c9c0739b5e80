//! Pairs of a prompt and a reply, for scoring.

use metaclaw_trainer_api::{BackendError, Datum};

/// The number of tokens of one forward call: some seconds on two cores, so that chats and other agents' steps run in
/// between.
const MOST_TOKENS: usize = 4_096;

/// A prompt and a reply.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScoredPair<'a> {
    pub(crate) prompt: &'a [u32],
    pub(crate) reply: &'a [u32],
}

/// How much better a reply fits its own question than others: its mean log-probability per token there, minus the mean
/// of those after other questions. A reply that would answer anything has a relevance of 0.
///
/// # Units
/// Nats per token.
pub(crate) fn relevance(own: f64, others: &[f64]) -> f64 {
    own - others.iter().sum::<f64>() / others.len().max(1) as f64
}

/// Returns the mean of log-probabilities, or 0 for none.
pub(crate) fn mean(values: &[f32]) -> f64 {
    let sum: f64 = values.iter().copied().map(f64::from).sum();
    sum / values.len().max(1) as f64
}

/// Returns what is wrong with a call that scores.
pub(super) fn unreadable(why: String) -> BackendError {
    BackendError::Unreadable {
        call: "forward",
        url: "the policy server".to_owned(),
        why,
    }
}

/// Returns the order in which pairs are scored: those of one prompt together, because the server computes their prompt
/// once.
pub(super) fn by_prompt(pairs: &[ScoredPair<'_>]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..pairs.len()).collect();
    order.sort_by_key(|at| pairs[*at].prompt);
    order
}

/// Splits pairs, ordered [by their prompts](by_prompt), into calls of at most [`MOST_TOKENS`] tokens to compute; a
/// longer pair has a call of its own.
pub(super) fn calls<'a, 'p>(pairs: &'a [ScoredPair<'p>]) -> Vec<&'a [ScoredPair<'p>]> {
    let (mut calls, mut start, mut n_tokens) = (Vec::new(), 0, 0);
    for (at, pair) in pairs.iter().enumerate() {
        let shares = at > start && pairs[at - 1].prompt == pair.prompt;
        let added = pair.reply.len() + if shares { 0 } else { pair.prompt.len() };
        if at > start && n_tokens + added > MOST_TOKENS {
            calls.push(&pairs[start..at]);
            (start, n_tokens) = (at, pair.prompt.len() + pair.reply.len());
        } else {
            n_tokens += added;
        }
    }
    calls.extend(Some(&pairs[start..]).filter(|rest| !rest.is_empty()));
    calls
}

// === impl ScoredPair ===

impl ScoredPair<'_> {
    /// Returns the pair with at most this many ids of the reply.
    #[must_use]
    pub(crate) fn cut(self, most: usize) -> Self {
        let reply = &self.reply[..self.reply.len().min(most)];
        Self { reply, ..self }
    }

    /// Returns the sequence, and the positions that predict the reply.
    pub(super) fn sequence(&self) -> Result<(Datum, Vec<usize>), BackendError> {
        if self.prompt.is_empty() || self.reply.is_empty() {
            return Err(unreadable(format!(
                "a prompt of {} and a reply of {} ids cannot be scored",
                self.prompt.len(),
                self.reply.len()
            )));
        }
        let all = [self.prompt, self.reply].concat();
        let n = all.len() - 1;
        let targets = all[1..].to_vec();
        let datum = Datum::cross_entropy(all[..n].to_vec(), targets, vec![0.0; n]);
        let datum = datum.map_err(|error| unreadable(error.to_string()))?;
        Ok((datum, (self.prompt.len() - 1..n).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(pairs: &[ScoredPair<'_>]) -> Vec<usize> {
        calls(pairs).into_iter().map(<[_]>::len).collect()
    }

    #[test]
    fn calls_are_cut_by_tokens_and_none_is_lost() {
        let ids = vec![1; 3_000];
        let pair = |n: usize| ScoredPair {
            prompt: &ids[..n],
            reply: &ids[..1_000],
        };
        let pairs = [pair(2_000), pair(2_001), pair(3_000), pair(10), pair(11)];
        assert_eq!(lengths(&pairs), [1, 1, 1, 2]);
        assert_eq!(lengths(&pairs.map(|it| it.cut(40))), [2, 3]);
        assert_eq!(lengths(&[]), [0; 0]);
    }

    #[test]
    fn replies_to_one_prompt_stand_together_and_count_it_once() {
        let (one, other, reply) = (vec![1; 1_500], vec![2; 1_500], vec![3; 500]);
        let pair = |prompt| ScoredPair {
            prompt,
            reply: reply.as_slice(),
        };
        let pairs = [&one, &other, &one, &other, &one].map(|it| pair(it.as_slice()));
        let order = by_prompt(&pairs);
        assert_eq!(order, [0, 2, 4, 1, 3]);
        let sorted: Vec<ScoredPair<'_>> = order.iter().map(|at| pairs[*at]).collect();
        assert_eq!(lengths(&sorted), [3, 2], "3000, and 2500");
        // The prompt is computed again in the next call.
        assert_eq!(lengths(&[pair(&one); 11]), [5, 5, 1]);
    }

    #[test]
    fn a_sequence_asks_for_the_positions_before_each_id_of_the_reply() {
        let pair = ScoredPair {
            prompt: &[1, 2, 3],
            reply: &[4, 5, 6],
        };
        let (datum, positions) = pair.cut(2).sequence().unwrap();
        assert_eq!(datum.parts().model_input_tokens, [1, 2, 3, 4]);
        assert_eq!(datum.parts().target_tokens.values(), [2, 3, 4, 5]);
        assert_eq!(positions, [2, 3]);
        let empty = ScoredPair {
            prompt: &[1],
            reply: &[],
        };
        assert!(empty.sequence().is_err());
    }

    #[test]
    fn a_reply_that_fits_everywhere_is_not_relevant() {
        assert!((relevance(-1.0, &[-3.0, -2.0]) - 1.5).abs() < 1e-9);
        assert!(relevance(-1.0, &[-1.0, -1.0]).abs() < 1e-9);
    }
}
