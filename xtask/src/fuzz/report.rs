//! The outcomes of all targets in one JSON file, which is written again with each line that libFuzzer prints.

use std::{
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use metaclaw_fetch::writing;
use serde_json::{Map, Value, json};

/// The outcome of a target for one build of the code.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct FuzzOutcome {
    /// sha256 of the binary.
    pub(super) binary: String,
    /// The time that it has run, in seconds.
    pub(super) seconds: u64,
    /// The number of inputs that were tried.
    pub(super) executions: u64,
    /// The number of the program's edges that some input has reached.
    pub(super) edges: u64,
    /// The number of kept inputs. Each reaches code that the others do not.
    pub(super) corpus: u64,
    /// The files of inputs that caused a failure.
    pub(super) findings: Vec<String>,
}

/// The outcomes of all targets.
#[derive(Debug)]
pub(super) struct FuzzReport {
    file: PathBuf,
    outcomes: Map<String, Value>,
}

// === impl Outcome ===

impl FuzzOutcome {
    fn to_json(&self) -> Value {
        json!({
            "binary": self.binary,
            "minutes": self.seconds as f64 / 60.0,
            "seconds": self.seconds,
            "executions": self.executions,
            "edges": self.edges,
            "corpus": self.corpus,
            "findings": self.findings,
        })
    }

    fn from_json(value: &Value) -> Self {
        let number = |name: &str| value[name].as_u64().unwrap_or(0);
        let findings = value["findings"].as_array().into_iter().flatten();
        let findings = findings.filter_map(Value::as_str).map(str::to_owned);
        Self {
            binary: value["binary"].as_str().unwrap_or_default().to_owned(),
            seconds: number("seconds"),
            executions: number("executions"),
            edges: number("edges"),
            corpus: number("corpus"),
            findings: findings.collect(),
        }
    }
}

// === impl Report ===

impl FuzzReport {
    /// Reads the report of earlier runs, if there is one.
    pub(super) fn read(file: &Path) -> Result<Self> {
        let outcomes = match fs::read(file) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .with_context(|| format!("{} is no report: delete it", file.display()))?,
            Err(error) if error.kind() == ErrorKind::NotFound => Map::new(),
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read {}", file.display()));
            }
        };
        Ok(Self {
            file: file.to_owned(),
            outcomes,
        })
    }

    /// The outcome of a target, if this very binary ran.
    pub(super) fn of(&self, target: &str, binary: &str) -> Option<FuzzOutcome> {
        let outcome = FuzzOutcome::from_json(self.outcomes.get(target)?);
        (outcome.binary == binary).then_some(outcome)
    }

    /// Writes a target's outcome so far to the disk.
    pub(super) fn put(&mut self, target: &str, outcome: &FuzzOutcome) -> Result<()> {
        self.outcomes.insert(target.to_owned(), outcome.to_json());
        let text = serde_json::to_string_pretty(&self.outcomes)?;
        // The file is replaced by one rename, so an interrupted run leaves the old one whole.
        let draft = self.file.with_extension("json.new");
        let written = fs::write(&draft, text + "\n").and_then(|()| fs::rename(&draft, &self.file));
        writing(written, &self.file)
    }

    pub(super) fn has_findings(&self) -> bool {
        let outcomes = self.outcomes.values().map(FuzzOutcome::from_json);
        outcomes.into_iter().any(|it| !it.findings.is_empty())
    }

    pub(super) fn print(&self) {
        for (target, outcome) in &self.outcomes {
            let outcome = FuzzOutcome::from_json(outcome);
            println!(
                "{target:<10} {:>6.1} min {:>12} executions {:>7} edges {:>6} inputs kept  {}",
                outcome.seconds as f64 / 60.0,
                outcome.executions,
                outcome.edges,
                outcome.corpus,
                match outcome.findings.len() {
                    0 => "no finding".to_owned(),
                    n => format!("{n} FINDINGS: {}", outcome.findings.join(", ")),
                }
            );
        }
        println!("{}", self.file.display());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read_again_for_the_same_binary_only() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("report.json");
        let outcome = FuzzOutcome {
            binary: "ab".to_owned(),
            seconds: 90,
            executions: 7,
            findings: vec!["crash-1".to_owned()],
            ..FuzzOutcome::default()
        };
        FuzzReport::read(&file)?.put("sse", &outcome)?;
        let again = FuzzReport::read(&file)?;
        assert_eq!(again.of("sse", "ab"), Some(outcome));
        assert_eq!(again.of("sse", "cd"), None);
        assert!(again.has_findings());
        Ok(())
    }
}
