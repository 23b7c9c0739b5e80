//! The rows of the table: rows.yaml, with the flags applied.

use std::sync::Arc;

use anyhow::{Context as _, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::content::{Content, Wish};

pub const ROWS: &str = include_str!("rows.yaml");
/// The values with `--full`.
const FULL_SEEDS: [u64; 5] = [1, 2, 3, 4, 5];
const FULL_SESSIONS: usize = 100;

/// The flags about rows.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    pub quick: bool,
    pub full: bool,
    /// The selected rows; all if empty.
    pub only: Vec<String>,
    /// The selected wishes; all if empty.
    pub wishes: Vec<String>,
    /// The values that replace those of rows.yaml.
    pub sessions: Option<usize>,
    pub seeds: Option<Vec<u64>>,
}

/// A configuration, and the agents that use it.
#[derive(Debug, Clone)]
pub struct Row {
    pub name: String,
    pub what: String,
    pub config: Value,
    pub runs: Vec<Run>,
}

/// One agent with its owner.
#[derive(Debug, Clone)]
pub struct Run {
    pub id: RunId,
    pub phases: Vec<Phase>,
    /// The sessions after which results are measured, including the last one.
    pub at: Vec<usize>,
    /// The sessions after which the owner is away until the learner has done what is due.
    pub day: usize,
}

/// The identity of the run, by which its results are found again.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RunId {
    pub row: String,
    /// The wishes, in order, joined by `+`.
    pub wish: String,
    pub seed: u64,
    pub sessions: usize,
}

/// The number of sessions after which a wish is added.
#[derive(Debug, Clone)]
pub struct Phase {
    pub wish: Arc<Wish>,
    pub sessions: usize,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenRow {
    name: String,
    what: String,
    #[serde(default)]
    config: Map<String, Value>,
    sessions: usize,
    /// The number of sessions of a day, in which the owner is never away; without it, the owner is away after each
    /// session.
    #[serde(default = "one")]
    day: usize,
    runs: Vec<WrittenRun>,
}

fn one() -> usize {
    1
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenRun {
    wishes: Vec<WrittenPhase>,
    #[serde(default)]
    seeds: Vec<u64>,
    #[serde(default)]
    at: Vec<usize>,
    quick: Option<usize>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenPhase {
    wish: String,
    sessions: Option<usize>,
}

/// Returns the selected rows, with the selected runs.
pub fn select(selection: &Selection, content: &Content) -> Result<Vec<Row>> {
    let written: Vec<WrittenRow> = serde_saphyr::from_str(ROWS).context("rows.yaml")?;
    let names: Vec<&str> = written.iter().map(|row| row.name.as_str()).collect();
    let stray = selection
        .only
        .iter()
        .find(|it| !names.contains(&it.as_str()));
    if let Some(stray) = stray {
        bail!("no such row: {stray:?}; there are {}", names.join(", "));
    }
    for name in &selection.wishes {
        content.wish(name)?;
    }
    let mut rows = Vec::new();
    for row in written {
        if selection.only.is_empty() || selection.only.contains(&row.name) {
            let row = row.expand(selection, content)?;
            rows.extend(Some(row).filter(|row| !row.runs.is_empty()));
        }
    }
    ensure!(!rows.is_empty(), "nothing is left of what is selected");
    Ok(rows)
}

// === impl WrittenRow ===

impl WrittenRow {
    fn expand(self, selection: &Selection, content: &Content) -> Result<Row> {
        let mut runs = Vec::new();
        for run in &self.runs {
            runs.extend(run.expand(&self, selection, content)?);
        }
        runs.sort_by(|a, b| a.id.cmp(&b.id));
        // `--full` and `--seeds` may give a run that another line has already: the longer one stays.
        runs.dedup_by(|later, kept| {
            let same = (&later.id.wish, later.id.seed) == (&kept.id.wish, kept.id.seed);
            if same && later.id.sessions > kept.id.sessions {
                std::mem::swap(later, kept);
            }
            same
        });
        Ok(Row {
            name: self.name,
            what: self.what,
            config: Value::Object(self.config),
            runs,
        })
    }
}

// === impl WrittenRun ===

impl WrittenRun {
    /// Returns the runs of one line, one for each seed.
    fn expand(
        &self,
        row: &WrittenRow,
        selection: &Selection,
        content: &Content,
    ) -> Result<Vec<Run>> {
        let named = |name: &String| self.wishes.iter().any(|phase| phase.wish == *name);
        if !selection.wishes.is_empty() && !selection.wishes.iter().any(named) {
            return Ok(Vec::new());
        }
        let quick = match (selection.quick, self.quick) {
            (true, None) => return Ok(Vec::new()),
            (true, quick) => quick,
            (false, _) => None,
        };
        let mut phases = Vec::new();
        for phase in &self.wishes {
            let own = phase.sessions.unwrap_or(row.sessions);
            let full = if selection.full {
                own.max(FULL_SESSIONS)
            } else {
                own
            };
            // With several wishes, each keeps its own number.
            let alone = self.wishes.len() == 1;
            let sessions = if alone {
                selection.sessions.or(quick).unwrap_or(full)
            } else {
                own
            };
            ensure!(
                sessions > 0,
                "row {}: no sessions with {}",
                row.name,
                phase.wish
            );
            phases.push(Phase {
                wish: Arc::clone(content.wish(&phase.wish)?),
                sessions,
            });
        }
        ensure!(!phases.is_empty(), "row {}: a run without a wish", row.name);
        let written = if self.seeds.is_empty() {
            vec![1]
        } else {
            self.seeds.clone()
        };
        let seeds = match (&selection.seeds, quick) {
            (Some(seeds), _) => seeds.clone(),
            (None, Some(_)) => written[..1].to_vec(),
            (None, None) if selection.full => FULL_SEEDS.to_vec(),
            (None, None) => written,
        };
        Ok(seeds
            .into_iter()
            .map(|seed| self.run(row, &phases, seed))
            .collect())
    }

    fn run(&self, row: &WrittenRow, phases: &[Phase], seed: u64) -> Run {
        let mut ends = Vec::new();
        let mut sessions = 0;
        for phase in phases {
            sessions += phase.sessions;
            ends.push(sessions);
        }
        let mut at: Vec<usize> = self
            .at
            .iter()
            .copied()
            .filter(|it| *it < sessions)
            .collect();
        at.extend(ends);
        at.sort_unstable();
        at.dedup();
        let wishes: Vec<&str> = phases.iter().map(|it| it.wish.name.as_str()).collect();
        Run {
            id: RunId {
                row: row.name.clone(),
                wish: wishes.join("+"),
                seed,
                sessions,
            },
            phases: phases.to_vec(),
            at,
            day: row.day.max(1),
        }
    }
}

// === impl RunId ===

impl RunId {
    pub fn agent(&self) -> String {
        let name = format!("{}-{}-{}", self.row, self.wish.replace('+', "-"), self.seed);
        name.to_ascii_lowercase()
    }
}

impl std::fmt::Display for RunId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} {} #{} x{}",
            self.row, self.wish, self.seed, self.sessions
        )
    }
}

#[cfg(test)]
mod tests;
