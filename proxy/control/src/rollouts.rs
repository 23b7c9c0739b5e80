//! Rollouts that were had elsewhere, read from lines of JSON: `metaclaw turns import`. docs/training/experiments.md has the shape.

use std::fmt::Write as _;

use metaclaw_turns::{ImportOutcome, ImportedTurn};
use serde::{Deserialize, Serialize};

use self::line::Rollout;
pub use self::turn::RolloutBase;

mod line;
mod turn;

/// Lines that are told of when a file is refused.
const TOLD: usize = 20;

/// The rollouts of one file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RolloutImport {
    pub file: String,
    pub rollouts: Vec<Rollout>,
}

/// What became of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Imported {
    /// Turns that came into the log.
    pub n_new: usize,
    /// Turns that it had from an earlier import.
    pub n_known: usize,
    /// Of all, those with token ids, which steps can use.
    pub n_with_ids: usize,
}

/// Why a file is refused: every line that is, up to a bound.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file} is refused, and nothing of it was imported:\n{told}")]
pub struct Refused {
    file: String,
    told: String,
}

// === impl RolloutImport ===

impl RolloutImport {
    /// Reads and checks every line. Empty ones are passed over.
    ///
    /// # Errors
    /// Names each line that is refused, with the field, what was given and what is allowed.
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
                told: told(&refused),
            });
        }
        Ok(Self {
            file: file.to_owned(),
            rollouts,
        })
    }

    /// How many have token ids, which must be those of the model that is trained.
    pub fn n_with_ids(&self) -> usize {
        let with_ids = self.rollouts.iter().filter(|it| it.response_ids.is_some());
        with_ids.count()
    }

    /// As turns of the log, whose ids are of `base`.
    ///
    /// # Errors
    /// Where one names another model than the base.
    pub fn turns(
        self,
        base: Option<&RolloutBase>,
        now_ms: u64,
    ) -> anyhow::Result<Vec<ImportedTurn>> {
        let file = &self.file;
        let turns = (1..).zip(self.rollouts);
        let turn = |(number, rollout): (u32, Rollout)| {
            let turn = rollout.turn(file, base, now_ms);
            turn.map_err(|error| error.context(format!("{file}, rollout {number}")))
        };
        turns.map(turn).collect()
    }
}

/// The refused lines, one a line.
fn told(refused: &[(u32, String)]) -> String {
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
    pub fn of(outcome: ImportOutcome, n_with_ids: usize) -> Self {
        Self {
            n_new: outcome.n_new,
            n_known: outcome.n_known,
            n_with_ids,
        }
    }
}

#[cfg(test)]
mod tests;
