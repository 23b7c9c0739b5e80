//! A group that was run, and whether something can be learned from it.

use super::journal::differs;
use crate::{episode::EpisodeEnd, report::TaskTally};

/// A group that was run.
#[derive(Debug)]
pub(super) struct EndedGroup {
    pub(super) tally: TaskTally,
    pub(super) differs: bool,
    pub(super) n_scored: usize,
}

// === impl EndedGroup ===

impl EndedGroup {
    pub(super) fn new(ends: &[EpisodeEnd], success_at: f64) -> Self {
        let mut tally = TaskTally::default();
        for end in ends {
            tally.add(end, success_at);
        }
        Self {
            tally,
            differs: differs(ends.iter()),
            n_scored: tally.n_scored as usize,
        }
    }
}

pub(super) fn group_line(task: &str, group: &EndedGroup) -> String {
    let tally = &group.tally;
    let mean = tally.mean_score().map_or_else(
        || "no score".to_owned(),
        |mean| format!("mean score {mean:.3}"),
    );
    let n_lost = tally.n_failed + tally.n_over_limit;
    let lost = if n_lost > 0 {
        format!(", {n_lost} failed")
    } else {
        String::new()
    };
    let flat = if group.differs {
        ""
    } else {
        "; all are equal, so nothing can be learned from them"
    };
    format!(
        "task {task}: {mean}, {} of {} succeeded{lost}{flat}",
        tally.n_success, tally.n_scored
    )
}
