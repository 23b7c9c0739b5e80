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

/// Splits groups into calls of at most this many computed tokens; a longer example has a call of its own.
///
/// Within a call, what an example begins with in common with the one before it is computed once. So the turns of a rollout,
/// or of a session, cost little more than the longest of them, and are best in one call.
pub(crate) fn cut(groups: &[Group], most_tokens: usize) -> Vec<MicroBatch> {
    let mut calls: Vec<MicroBatch> = Vec::new();
    for (group, examples) in groups.iter().enumerate() {
        let mut room = 0;
        for (at, example) in examples.examples.iter().enumerate() {
            let before = at.checked_sub(1).and_then(|at| examples.examples.get(at));
            let n_added = n_added(before, example);
            match calls.last_mut() {
                Some(call) if call.group == group && n_added <= room => {
                    call.range.end = at + 1;
                    room -= n_added;
                }
                Some(_) | None => {
                    let range = at..at + 1;
                    calls.push(MicroBatch { group, range });
                    room = most_tokens.saturating_sub(example.n_tokens());
                }
            }
        }
    }
    calls
}

/// Returns how many tokens of a call's examples a server computes that shares their beginnings, as MetaClaw's own does.
pub(crate) fn n_computed(examples: &[Example]) -> usize {
    let first = examples.first().map_or(0, |first| n_added(None, first));
    let rest = examples.windows(2).map(|both| match both {
        [before, example] => n_added(Some(before), example),
        _ => 0,
    });
    first + rest.sum::<usize>()
}

/// Returns how many of an example's tokens are not the beginning of the example before it.
fn n_added(before: Option<&Example>, example: &Example) -> usize {
    let own = ids(example).iter();
    let before = before.map(ids).unwrap_or_default();
    let shared = own.zip(before).take_while(|(one, other)| one == other);
    example.n_tokens() - shared.count()
}

fn ids(example: &Example) -> &[u32] {
    &example.datum.parts().model_input_tokens
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

    pub(crate) fn examples_mut<'a>(&self, groups: &'a mut [Group]) -> &'a mut [Example] {
        let group = groups.get_mut(self.group);
        let examples = group.and_then(|group| group.examples.get_mut(self.range.clone()));
        examples.unwrap_or_default()
    }

    pub(crate) fn turns(&self, groups: &[Group], at: usize) -> Option<Vec<TurnId>> {
        self.examples(groups).get(at).map(|e| e.turns.clone())
    }
}

#[cfg(test)]
mod tests {
    use metaclaw_trainer_api::{Datum, LossConfig, LossFn};

    use super::*;
    use crate::methods::ALL;

    fn group(lengths: &[usize]) -> Group {
        // No two begin with the same id.
        let ids = (0..).zip(lengths).map(|(first, n)| vec![first; *n]);
        of(ids)
    }

    fn of(ids: impl Iterator<Item = Vec<u32>>) -> Group {
        let example = |ids: Vec<u32>| {
            let n = ids.len();
            Example {
                datum: Datum::cross_entropy(ids, vec![1; n], vec![1.0; n]).unwrap(),
                turns: Vec::new(),
                state: None,
            }
        };
        Group {
            method: ALL[0],
            loss: LossFn::CrossEntropy,
            loss_config: LossConfig::new(),
            examples: ids.map(example).collect(),
        }
    }

    /// Eight rollouts of four turns: 200 ids of a task, and 60 more from turn to turn.
    #[test]
    fn the_turns_of_a_rollout_are_computed_as_one_sequence() {
        let turn = |rollout: u32, turn: u32| {
            let task = std::iter::repeat_n(7, 200);
            let own = (0..60 * (turn + 1)).map(move |at| 1_000 * (rollout + 1) + at);
            task.chain(own).collect::<Vec<u32>>()
        };
        let all = (0..8).flat_map(|rollout| (0..4).map(move |at| (rollout, at)));
        let group = of(all.map(|(rollout, at)| turn(rollout, at)));
        let apart: usize = group.examples.iter().map(Example::n_tokens).sum();
        // The task once, and each rollout's own ids once.
        let shared = 200 + 8 * 240;
        assert_eq!((apart, n_computed(&group.examples)), (11_200, shared));
        let calls = cut(&[group], shared);
        assert_eq!(shown(&calls), [(0, 0..32)], "one call");
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
