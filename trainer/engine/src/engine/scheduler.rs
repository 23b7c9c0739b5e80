//! Chooses the rows of the next round: every reply that decodes, then prompts, within the round's budget.
//!
//! The scheduler has no tensors and no clock: numbers in, numbers out.

use std::time::Duration;

use tch::Device;

use crate::kv::PAGE;

/// A round that lets readers of running replies wait no longer than this.
const TARGET: Duration = Duration::from_millis(150);
/// The length of a round while no reply decodes. Such rounds end only so that new requests can join.
const PATIENT: Duration = Duration::from_millis(800);
/// Fewer rows would read all weights for little.
const MIN_ROWS: usize = 2 * PAGE;
/// More rows gain nothing: on a CPU their activations leave the cache, a GPU is full.
const MAX_ROWS: usize = 512;
const MAX_ROWS_GPU: usize = 4096;
const FIRST_ROWS: usize = 128;

#[derive(Debug)]
pub(super) struct RoundBudget {
    /// Seconds; `None` before the first measurement.
    per_row: Option<f64>,
    most: usize,
}

impl RoundBudget {
    pub(super) fn new(device: Device) -> Self {
        let most = match device {
            Device::Cpu => MAX_ROWS,
            _ => MAX_ROWS_GPU,
        };
        let per_row = None;
        Self { per_row, most }
    }

    /// Rows for the next round; `is_decoding`: somebody waits for the next token.
    pub(super) fn rows(&self, is_decoding: bool) -> usize {
        let time = if is_decoding { TARGET } else { PATIENT };
        let Some(per_row) = self.per_row else {
            return FIRST_ROWS.min(self.most);
        };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a ratio of times, clamped"
        )]
        let rows = (time.as_secs_f64() / per_row.max(1e-9)).min(self.most as f64) as usize;
        rows.clamp(MIN_ROWS.min(self.most), self.most)
    }

    /// Halves the rows of later rounds after a lack of memory. Returns false if a round already has a single row.
    pub(super) fn shrink(&mut self) -> bool {
        let before = self.most;
        self.most = (before / 2).max(PAGE);
        self.most < before
    }

    /// Learns from a round; small ones say little about the cost of a row.
    pub(super) fn took(&mut self, n_rows: usize, time: Duration) {
        if n_rows < MIN_ROWS {
            return;
        }
        let now = time.as_secs_f64() / n_rows as f64;
        // A slow round counts in full, a fast one by half, because users notice gaps.
        self.per_row = Some(match self.per_row {
            Some(before) if now < before => f64::midpoint(before, now),
            _ => now,
        });
    }
}

/// How many pending positions each sequence runs, for sequences in order of age.
///
/// A reply that decodes has one position pending and always runs. Half of the remaining budget goes to the shortest
/// prompt, so that it does not wait behind a long one. The other half goes to the oldest. Each gets at least a page:
/// otherwise a long prompt would never begin while short ones keep coming.
pub(super) fn plan(pending: &[usize], budget: &RoundBudget) -> Vec<usize> {
    let n_decoding = pending.iter().filter(|&&n| n == 1).count();
    let rows = budget.rows(n_decoding > 0);
    let spare = rows.saturating_sub(n_decoding);
    let mut rows: Vec<usize> = pending.iter().map(|&n| usize::from(n == 1)).collect();
    let prompts = || (0..pending.len()).filter(|&i| pending[i] > 1);
    let shortest = prompts().min_by_key(|&i| pending[i]);
    let n_first = if shortest == prompts().next() { 1 } else { 2 };
    let mut left = spare.max((n_first * PAGE).min(budget.most));
    if let Some(i) = shortest {
        let given = portion(pending[i], left.div_ceil(2).max(PAGE));
        rows[i] = given;
        left -= given.min(left);
    }
    for i in prompts() {
        let more = portion(pending[i] - rows[i], left);
        rows[i] += more;
        left -= more;
    }
    rows
}

/// Takes all pending positions, or as many whole pages as fit, so that the next portion begins a new page.
fn portion(pending: usize, left: usize) -> usize {
    if pending <= left {
        return pending;
    }
    left / PAGE * PAGE
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(millis_per_row: f64) -> RoundBudget {
        RoundBudget {
            per_row: Some(millis_per_row / 1e3),
            most: MAX_ROWS,
        }
    }

    #[test]
    fn fifteen_prompts_share_one_budget_beside_a_running_reply() {
        // 1 ms a row: 150 rows keep the reply going.
        let mut pending = vec![1];
        pending.extend([2000; 15]);
        let rows = plan(&pending, &measured(1.0));
        assert_eq!(rows[0], 1);
        assert_eq!(rows.iter().sum::<usize>(), 1 + 144, "whole pages");
        assert_eq!(rows[1], 144, "the oldest, which is as short as any");
    }

    #[test]
    fn a_short_prompt_is_not_behind_a_long_one() {
        let rows = plan(&[15_000, 300, 40], &measured(5.0));
        assert_eq!(rows, [112, 0, 40], "160 rows");
        let rows = plan(&[15_000, 300], &measured(5.0));
        assert_eq!(rows, [80, 80]);
    }

    #[test]
    fn every_reply_decodes_and_a_prompt_gets_a_page_however_slow_it_is() {
        let mut pending = vec![1; 16];
        pending.push(100);
        let rows = plan(&pending, &measured(1000.0));
        assert_eq!(rows[..16], [1; 16]);
        assert_eq!(rows[16], 16);
        assert_eq!(plan(&[1, 1], &measured(1.0)), [1, 1]);
        assert_eq!(plan(&[], &measured(1.0)), [0; 0]);
    }

    #[test]
    fn the_oldest_prompt_advances_however_many_short_ones_come() {
        for n_decoding in 1..16 {
            let mut pending = vec![300];
            pending.extend(vec![1; n_decoding]);
            pending.extend([40, 30, 20]);
            let rows = plan(&pending, &measured(1000.0));
            assert_eq!((rows[0], rows[n_decoding + 3]), (16, 16), "{rows:?}");
        }
    }

    #[test]
    fn a_round_without_memory_is_halved_down_to_a_page() {
        let mut budget = measured(0.001);
        assert_eq!(budget.rows(false), MAX_ROWS);
        assert!(budget.shrink());
        assert_eq!(budget.rows(false), MAX_ROWS / 2);
        while budget.shrink() {}
        assert_eq!(budget.rows(false), PAGE);
        assert_eq!(plan(&[100, 1], &budget), [PAGE, 1]);
    }

    #[test]
    fn the_budget_follows_what_rows_cost() {
        let mut budget = RoundBudget::new(Device::Cpu);
        assert_eq!(budget.rows(true), FIRST_ROWS);
        budget.took(64, Duration::from_millis(64));
        assert_eq!((budget.rows(true), budget.rows(false)), (150, MAX_ROWS));
        budget.took(2, Duration::from_secs(1));
        assert_eq!(budget.rows(true), 150, "a small round says nothing");
        budget.took(100, Duration::from_secs(1));
        assert_eq!(budget.rows(true), MIN_ROWS);
        budget.took(100, Duration::from_millis(1));
        assert_eq!(budget.rows(true), MIN_ROWS);
        (0..20).for_each(|_| budget.took(100, Duration::from_millis(1)));
        assert_eq!(budget.rows(true), MAX_ROWS);
    }
}
