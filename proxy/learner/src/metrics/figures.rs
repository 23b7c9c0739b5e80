//! Reads the figures of steps back from `steps.jsonl`.

use std::{collections::BTreeMap, fs, io, path::Path};

use metaclaw_chat::if_there;
use serde::Deserialize;
use serde_json::Value;

use super::recorder::{LINES, OLD_LINES};

/// The figures of one completed step.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct StepFigures {
    /// The number of optimiser steps in the weights, including this one.
    pub step: u64,
    pub agent: String,
    /// The figures by the names of docs/operating/metrics.md.
    #[serde(flatten)]
    values: BTreeMap<String, Value>,
}

// === impl StepFigures ===

impl StepFigures {
    /// Reads all steps of a folder in the order in which they were made. A folder without the file has none.
    ///
    /// A line that is not complete, as a kill may leave one, is left out.
    ///
    /// # Errors
    /// A file exists and cannot be read.
    pub fn read(folder: &Path) -> io::Result<Vec<Self>> {
        let mut steps = Vec::new();
        for file in [OLD_LINES, LINES] {
            let Some(bytes) = if_there(fs::read(folder.join(file)))? else {
                continue;
            };
            let lines = bytes.split(|byte| *byte == b'\n');
            steps.extend(lines.filter_map(|line| serde_json::from_slice::<Self>(line).ok()));
        }
        Ok(steps)
    }

    /// Returns a figure, or `None` if it was not measured or was not a finite number.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.values.get(name)?.as_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_older_file_comes_first_and_half_a_line_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let read = || StepFigures::read(folder.path()).unwrap();
        assert_eq!(read(), []);
        let line = |step: u64, reward: &str| {
            format!("{{\"step\": {step}, \"agent\": \"main\", \"reward/mean\": {reward}}}\n")
        };
        fs::write(folder.path().join(OLD_LINES), line(1, "0.5")).unwrap();
        let new = line(2, "null") + &line(3, "-1.0") + "{\"step\": 4, \"ag";
        fs::write(folder.path().join(LINES), new).unwrap();
        let steps = read();
        let rewards: Vec<_> = steps
            .iter()
            .map(|it| (it.step, it.get("reward/mean")))
            .collect();
        assert_eq!(rewards, [(1, Some(0.5)), (2, None), (3, Some(-1.0))]);
        assert_eq!(steps[0].agent, "main");
    }
}
