//! The record of a run: a line of JSON in runs.jsonl. A run with a record is not repeated.

use std::{
    fs::{self, OpenOptions},
    io::Write as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    measure::{Figures, Probed, Scored, share},
    rows::RunId,
    session::Session,
};

/// The results of one run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Record {
    pub id: RunId,
    pub sessions: Vec<Session>,
    /// The first replies of the sessions, in groups of ten, measured by the wish of that time.
    pub windows: Vec<Window>,
    /// The answers of the weights to the test questions, without the wish in the prompt.
    pub measured: Vec<Measured>,
    /// The same for every adapter when it began to serve.
    #[serde(default)]
    pub adapters: Vec<Served>,
    /// The number of adapters that were made.
    pub made: Vec<String>,
    /// The number of adapters that began to serve.
    pub served: Vec<String>,
    /// The steps, as the status reported them.
    pub steps: Vec<Value>,
    /// If days are used, the product's status of the agent at the end of each day.
    #[serde(default)]
    pub nights: Vec<Value>,
    /// How often the owner came back while something waited and nothing changed.
    pub n_stuck: usize,
    pub seconds: f64,
}

/// The first replies of ten sessions.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Window {
    /// The last session, from 1.
    pub until: usize,
    pub n: usize,
    pub n_right: usize,
    /// The median of their words.
    pub words: f64,
    /// Their mean negative log-probability per token, by the base model with the wish, in nats.
    pub nll: f64,
    /// The wish at that time, the newest.
    pub wish: String,
}

/// The results of what served after this many sessions.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Measured {
    pub after: usize,
    /// `None` is the base model.
    pub adapter: Option<String>,
    /// The wish at that time, the newest.
    pub wish: String,
    pub figures: Figures,
    pub probed: Probed,
    pub replies: Vec<Scored>,
}

/// The results of an adapter that served after this many sessions.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Served {
    pub after: usize,
    pub adapter: String,
    /// The wish at that time, the newest.
    pub wish: String,
    /// The answers to the test questions.
    pub replies: Vec<Scored>,
}

/// The records of one folder.
#[derive(Debug)]
pub struct Records {
    path: PathBuf,
}

// === impl Record ===

impl Record {
    /// Returns the last measurement.
    pub fn end(&self) -> Option<&Measured> {
        self.measured.last()
    }

    /// Returns the gate's result for a figure of an adapter, in words, or `None` if no step reports one.
    pub fn gate_said(&self, adapter: &str, test: &str) -> Option<&str> {
        let step = self.steps.iter().find(|it| it["adapter"] == adapter)?;
        let tests = step["gate"]["tests"].as_array()?;
        tests.iter().find(|it| it["name"] == test)?["why"].as_str()
    }

    pub fn n_requests(&self) -> u64 {
        self.sessions.iter().map(|it| it.n_requests).sum()
    }

    /// Returns the number of requests that were held or failed.
    pub fn n_held(&self) -> u64 {
        let bad = |it: &Session| it.n_held + it.failures.len() as u64;
        self.sessions.iter().map(bad).sum()
    }

    /// Returns the share of steps' time that the gate took, or `None` if no step reports it.
    pub fn gate_share(&self) -> Option<f64> {
        let gate =
            |step: &Value| Some((step["gate"]["seconds"].as_f64()?, step["seconds"].as_f64()?));
        let told: Vec<(f64, f64)> = self.steps.iter().filter_map(gate).collect();
        let sum = |of: fn(&(f64, f64)) -> f64| told.iter().map(of).sum::<f64>();
        (!told.is_empty()).then(|| sum(|it| it.0) / sum(|it| it.1))
    }
}

// === impl Window ===

impl Window {
    /// Returns the share of sessions in which the first reply was right.
    pub fn rate(&self) -> f64 {
        share(self.n_right, self.n)
    }

    /// Returns the negative log-likelihood as a multiple of the reference's own.
    pub fn fluency_of(&self, reference: &Figures) -> f64 {
        self.nll / reference.nll
    }
}

// === impl Records ===

impl Records {
    pub fn new(out: &Path) -> Self {
        Self {
            path: out.join("runs.jsonl"),
        }
    }

    /// Returns the newest record of each run. A line that was cut when the writer was killed is ignored.
    pub fn read(&self) -> Vec<Record> {
        let text = fs::read_to_string(&self.path).unwrap_or_default();
        let records = text
            .lines()
            .filter_map(|line| serde_json::from_str::<Record>(line).ok());
        let mut records: Vec<Record> = records.collect();
        records.reverse();
        records.sort_by(|a, b| a.id.cmp(&b.id));
        records.dedup_by(|older, newer| older.id == newer.id);
        records
    }

    pub fn append(&self, record: &Record) -> Result<()> {
        let shown = self.path.display();
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.path);
        let mut file = file.with_context(|| format!("cannot open {shown}"))?;
        let mut line = serde_json::to_vec(record)?;
        line.push(b'\n');
        file.write_all(&line)
            .with_context(|| format!("cannot write {shown}"))
    }
}

#[cfg(test)]
pub mod testing {
    use super::*;

    /// Returns a run with only the final measurement.
    pub fn record(row: &str, wish: &str, seed: u64) -> Record {
        let measured = Measured {
            after: 40,
            adapter: Some("a-1".to_owned()),
            wish: wish.to_owned(),
            figures: Figures {
                n: 60,
                right: [(wish.to_owned(), 54)].into(),
                words: 20.0,
                relevance: 1.4,
                nll: 1.1,
                n_short: 0,
                n_ended: 60,
            },
            probed: Probed {
                known: 57,
                hidden: 58,
            },
            replies: Vec::new(),
        };
        Record {
            id: RunId {
                row: row.to_owned(),
                wish: wish.to_owned(),
                seed,
                sessions: 40,
            },
            sessions: Vec::new(),
            windows: Vec::new(),
            measured: vec![measured],
            adapters: Vec::new(),
            made: vec!["a-1".to_owned()],
            served: vec!["a-1".to_owned()],
            steps: vec![serde_json::json!({"seconds": 10.0, "gate": {"seconds": 4.0}})],
            nights: Vec::new(),
            n_stuck: 0,
            seconds: 100.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{testing::record, *};

    #[test]
    fn what_was_written_is_read_and_the_last_of_a_run_counts() {
        let out = tempfile::tempdir().unwrap();
        let records = Records::new(out.path());
        assert!(records.read().is_empty());
        let mut first = record("default", "terse", 1);
        records.append(&first).unwrap();
        first.seconds = 7.0;
        records.append(&first).unwrap();
        records.append(&record("default", "terse", 2)).unwrap();
        let mut file = OpenOptions::new()
            .append(true)
            .open(out.path().join("runs.jsonl"))
            .unwrap();
        file.write_all(b"{\"id\": {\"row\":").unwrap();
        let found = records.read();
        assert_eq!(found.len(), 2);
        assert!((found[0].seconds - 7.0).abs() < 1e-9);
    }

    #[test]
    fn the_gates_share_is_of_the_steps_that_tell() {
        let mut run = record("default", "terse", 1);
        assert_eq!(run.gate_share(), Some(0.4));
        run.steps = vec![serde_json::json!({"seconds": 10.0})];
        assert_eq!(run.gate_share(), None);
    }
}
