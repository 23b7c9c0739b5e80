//! Chooses the checkpoints that may be deleted.

use std::collections::BTreeMap;

use metaclaw_engine::checkpoint::CheckpointEntry;
use metaclaw_trainer_api::CheckpointName;

/// Returns those that are not among the last `n` of their line of training and are not needed, oldest first.
///
/// A line of training consists of a run's checkpoints and those of the runs that continued from one of them; usually it
/// is an agent's. So an agent that trains often does not displace the checkpoints of one that trains seldom.
pub(super) fn outdated(
    oldest_first: &[CheckpointEntry],
    n: usize,
    is_needed: impl Fn(&CheckpointName) -> bool,
) -> Vec<&CheckpointName> {
    let mut newer: BTreeMap<&str, usize> = BTreeMap::new();
    let mut outdated = Vec::new();
    for info in oldest_first.iter().rev() {
        let newer = newer.entry(&info.line).or_default();
        if *newer >= n && !is_needed(&info.name) {
            outdated.push(&info.name);
        }
        *newer += 1;
    }
    outdated.reverse();
    outdated
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn info(line: &str, step: u64) -> CheckpointEntry {
        CheckpointEntry {
            name: format!("{line}-{step}").parse().unwrap(),
            path: "x".into(),
            step,
            line: line.to_owned(),
            sha256: None,
            manifest: Value::Null,
            created_ms: step,
        }
    }

    #[test]
    fn the_last_of_each_line_and_what_is_needed_stay() {
        let listed = [("a", 1), ("a", 2), ("b", 3), ("a", 4), ("a", 5), ("a", 6)];
        let listed = listed.map(|(line, step)| info(line, step));
        let outdated = |n, needed: &str| -> Vec<&str> {
            let outdated = outdated(&listed, n, |name| name.as_str() == needed);
            outdated.into_iter().map(CheckpointName::as_str).collect()
        };
        assert_eq!(outdated(2, ""), ["a-1", "a-2", "a-4"]);
        // A checkpoint that is needed does not count against the limit.
        assert_eq!(outdated(2, "a-2"), ["a-1", "a-4"]);
        assert_eq!(outdated(2, "a-5"), ["a-1", "a-2", "a-4"]);
        assert!(outdated(5, "").is_empty());
    }
}
