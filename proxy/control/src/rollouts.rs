//! Reads rollouts from lines of JSON: `metaclaw turns import`. docs/training/experiments.md describes the format.

use std::fmt::Write as _;

use metaclaw_turns::{ImportOutcome, ImportedTurn};
use serde::{Deserialize, Serialize};

use self::line::Rollout;
pub use self::turn::RolloutBase;

mod line;
mod turn;

const TOLD: usize = 20;

/// The rollouts of one file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RolloutImport {
    pub file: String,
    pub rollouts: Vec<Rollout>,
}

/// The result of an import.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Imported {
    /// Turns that were added to the log.
    pub n_new: usize,
    /// Turns that the log had from an earlier import.
    pub n_known: usize,
    /// The number of all turns with token ids, which training steps can use.
    pub n_with_ids: usize,
}

/// Why a file is refused: every faulty line, up to a limit.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file} is refused, and nothing of it was imported:\n{told}")]
pub struct Refused {
    file: String,
    told: String,
}

// === impl RolloutImport ===

impl RolloutImport {
    /// Reads and checks every line. Empty lines are skipped.
    ///
    /// # Errors
    /// Returns each faulty line, with the field, its value and what is allowed.
    pub fn read(file: &str, text: &str, now_ms: u64) -> Result<Self, Refused> {
        let (mut rollouts, mut refused) = (Vec::new(), Vec::new());
        for (number, line) in (1..).zip(text.lines()) {
            if line.trim().is_empty() {
                continue;
            }
            let read = serde_json::from_str::<Rollout>(line).map_err(|error| error.to_string());
            match read.and_then(|rollout| rollout.check(now_ms).map(|()| rollout)) {
                Ok(rollout) => rollouts.push(rollout),
                Err(why) => refused.push((number, why)),
            }
        }
        if rollouts.is_empty() && refused.is_empty() {
            refused.push((1, "there is no line in it".to_owned()));
        }
        if !refused.is_empty() {
            return Err(Refused {
                file: file.to_owned(),
                told: refused_text(&refused),
            });
        }
        Ok(Self {
            file: file.to_owned(),
            rollouts,
        })
    }

    /// Returns the number of turns with token ids, which must be those of the model that is trained.
    pub fn n_with_ids(&self) -> usize {
        let with_ids = self.rollouts.iter().filter(|it| it.response_ids.is_some());
        with_ids.count()
    }

    /// Checks every line again, because the lines may have come over the wire. Returns the turns for the log, whose ids
    /// belong to `base`.
    ///
    /// # Errors
    /// Returns an error if a line is faulty, or names another model than the base.
    pub fn turns(
        self,
        base: Option<&RolloutBase>,
        now_ms: u64,
    ) -> anyhow::Result<Vec<ImportedTurn>> {
        let file = &self.file;
        let turns = (1..).zip(self.rollouts);
        let turn = |(number, rollout): (u32, Rollout)| {
            let checked = rollout.check(now_ms).map_err(anyhow::Error::msg);
            let turn = checked.and_then(|()| rollout.turn(file, base, now_ms));
            turn.map_err(|error| error.context(format!("{file}, rollout {number}")))
        };
        turns.map(turn).collect()
    }
}

fn refused_text(refused: &[(u32, String)]) -> String {
    let mut told = String::new();
    for (number, why) in refused.iter().take(TOLD) {
        let _ = writeln!(told, "line {number}: {why}");
    }
    if let Some(more) = refused.len().checked_sub(TOLD).filter(|more| *more > 0) {
        let _ = writeln!(told, "and {more} lines more");
    }
    told.trim_end().to_owned()
}

// === impl Imported ===

impl Imported {
    pub fn new(outcome: ImportOutcome, n_with_ids: usize) -> Self {
        Self {
            n_new: outcome.n_new,
            n_known: outcome.n_known,
            n_with_ids,
        }
    }
}

#[cfg(test)]
mod tests;
