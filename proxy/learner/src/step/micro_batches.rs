//! Splits a step's examples into calls, so that none takes too long, and one that fails can be halved.

use std::ops::Range;

use metaclaw_chat::TurnId;

use crate::methods::{Example, Group};

/// One forward_backward call: some examples of one group. The server adds up the gradients of all calls of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MicroBatch {
    pub(crate) group: usize,
    range: Range<usize>,
}

/// Splits groups into calls of at most this many tokens; a longer example has a call of its own.
pub(crate) fn cut(groups: &[Group], most_tokens: usize) -> Vec<MicroBatch> {
    let mut calls: Vec<MicroBatch> = Vec::new();
    for (group, examples) in groups.iter().enumerate() {
        let mut room = 0;
        for (at, example) in examples.examples.iter().enumerate() {
            let n_tokens = example.n_tokens();
            match calls.last_mut() {
                Some(call) if call.group == group && n_tokens <= room => {
                    call.range.end = at + 1;
                    room -= n_tokens;
                }
                Some(_) | None => {
                    let range = at..at + 1;
                    calls.push(MicroBatch { group, range });
                    room = most_tokens.saturating_sub(n_tokens);
                }
            }
        }
    }
    calls
}

/// Splits a call into two; returns `false` if it has a single example.
pub(crate) fn halve(calls: &mut Vec<MicroBatch>, at: usize) -> bool {
    let Some(call) = calls.get_mut(at).filter(|call| call.range.len() > 1) else {
        return false;
    };
    let middle = call.range.start + call.range.len() / 2;
    let second = MicroBatch {
        group: call.group,
        range: middle..call.range.end,
    };
    call.range.end = middle;
    calls.insert(at + 1, second);
    true
}

// === impl MicroBatch ===

impl MicroBatch {
    pub(crate) fn examples<'a>(&self, groups: &'a [Group]) -> &'a [Example] {
        let group = groups.get(self.group);
        let examples = group.and_then(|group| group.examples.get(self.range.clone()));
        examples.unwrap_or_default()
    }

    /// Returns its examples, so that their weights can be computed.
    pub(crate) fn examples_mut<'a>(&self, groups: &'a mut [Group]) -> &'a mut [Example] {
        let group = groups.get_mut(self.group);
        let examples = group.and_then(|group| group.examples.get_mut(self.range.clone()));
        examples.unwrap_or_default()
    }

    /// Returns the turns of its example `at`.
    pub(crate) fn turns(&self, groups: &[Group], at: usize) -> Option<Vec<TurnId>> {
        self.examples(groups).get(at).map(|it| it.turns.clone())
    }
}

#[cfg(test)]
mod tests {
    use metaclaw_trainer_api::{Datum, LossConfig, LossFn};

    use super::*;
    use crate::methods::ALL;

    fn group(lengths: &[usize]) -> Group {
        let example = |n: &usize| Example {
            datum: Datum::cross_entropy(vec![1; *n], vec![1; *n], vec![1.0; *n]).unwrap(),
            turns: Vec::new(),
            state: None,
        };
        Group {
            method: ALL[0],
            loss: LossFn::CrossEntropy,
            loss_config: LossConfig::new(),
            examples: lengths.iter().map(example).collect(),
        }
    }

    fn shown(calls: &[MicroBatch]) -> Vec<(usize, Range<usize>)> {
        let shown = |call: &MicroBatch| (call.group, call.range.clone());
        calls.iter().map(shown).collect()
    }

    #[test]
    fn a_call_has_one_loss_and_no_more_tokens_than_it_may() {
        let groups = [group(&[4, 4, 4, 20, 1]), group(&[2])];
        let calls = cut(&groups, 10);
        let expected = [(0, 0..2), (0, 2..3), (0, 3..4), (0, 4..5), (1, 0..1)];
        assert_eq!(shown(&calls), expected);
        assert_eq!(shown(&cut(&groups, 1_000)), [(0, 0..5), (1, 0..1)]);
        let n: usize = calls.iter().map(|call| call.examples(&groups).len()).sum();
        assert_eq!(n, 6);
    }

    #[test]
    fn halves_come_down_to_one_alone() {
        let mut calls = cut(&[group(&[1, 1, 1])], 10);
        assert!(halve(&mut calls, 0));
        assert_eq!(shown(&calls), [(0, 0..1), (0, 1..3)]);
        assert!(!halve(&mut calls, 0));
        assert!(halve(&mut calls, 1));
        assert_eq!(shown(&calls), [(0, 0..1), (0, 1..2), (0, 2..3)]);
        assert!(!halve(&mut calls, 3), "there is none");
    }
}
