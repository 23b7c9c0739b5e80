//! In which order a run takes its tasks. It follows from the seed alone, so that a run that was killed goes on as it
//! would have gone.

use super::setup::{EvalSetup, RunTasks};
use crate::file::RolloutFile;

/// The order of `n` tasks: each once, then each once again in another order.
#[derive(Debug, Clone, Copy)]
pub(super) struct TaskOrder {
    n: usize,
    seed: u64,
}

// === impl TaskOrder ===

impl TaskOrder {
    pub(super) fn new(n: usize, seed: u64) -> Self {
        Self { n, seed }
    }

    pub(super) fn at(self, group: u64) -> usize {
        let n = self.n as u64;
        let (epoch, place) = (group / n, group % n);
        let mut order: Vec<usize> = (0..self.n).collect();
        let mut state = self.seed ^ epoch.wrapping_mul(0xd1b5_4a32_d192_ed03);
        // Fisher and Yates.
        for last in (1..self.n).rev() {
            let other = next(&mut state) % (last as u64 + 1);
            order.swap(last, usize::try_from(other).unwrap_or_default());
        }
        order[usize::try_from(place).unwrap_or_default()]
    }
}

/// SplitMix64 (Steele, Lea and Flood 2014): the same numbers on every machine and with every version.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

pub(super) fn n_steps(file: &RolloutFile, tasks: &RunTasks) -> u64 {
    let once = tasks.train.len().div_ceil(file.tasks_per_step) as u64;
    file.steps.unwrap_or(once)
}

pub(super) fn plan(file: &RolloutFile, tasks: &RunTasks, eval: Option<&EvalSetup>) -> String {
    let mut hash = blake3::Hasher::new();
    let measured = eval.map(|_| tasks.measured());
    let used = measured.unwrap_or(&tasks.train);
    for task in used {
        hash.update(
            serde_json::Value::Object(task.fields.clone())
                .to_string()
                .as_bytes(),
        );
        hash.update(b"\n");
    }
    let hash = &hash.finalize().to_hex()[..8];
    let n = used.len();
    match eval {
        Some(eval) => {
            let tries = eval.tries.unwrap_or(file.group_size);
            format!("{n} tasks ({hash}), {tries} tries of each")
        }
        None => format!(
            "{n} tasks ({hash}), group_size {}, tasks_per_step {}, resample {}, seed {}",
            file.group_size, file.tasks_per_step, file.resample, file.seed
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_epoch_has_each_task_once_in_another_order_that_the_seed_decides() {
        let of = |seed: u64| -> Vec<usize> {
            let order = TaskOrder::new(7, seed);
            (0..14).map(|group| order.at(group)).collect()
        };
        let first = of(1);
        assert_eq!(first, of(1));
        assert_ne!(first, of(2));
        for epoch in [&first[..7], &first[7..]] {
            assert_eq!(epoch.iter().collect::<BTreeSet<_>>().len(), 7);
        }
        assert_ne!(first[..7], first[7..]);
        assert_eq!(TaskOrder::new(1, 0).at(5), 0);
    }
}
