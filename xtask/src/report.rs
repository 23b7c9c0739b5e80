//! A report on each stage: its downloads and its time.

use std::time::{Duration, Instant};

use anyhow::Result;
use indicatif::HumanBytes;

#[derive(Debug, Default)]
pub(crate) struct StageReport {
    stages: Vec<Stage>,
}

/// A stage. Its work adds its downloads to `bytes`, and may write a `note`.
#[derive(Debug)]
pub(crate) struct Stage {
    name: &'static str,
    took: Duration,
    pub(crate) bytes: u64,
    pub(crate) note: String,
}

impl StageReport {
    /// Does `work` as a stage of this name. A stage that fails is not reported: its error is.
    pub(crate) fn stage<T>(
        &mut self,
        name: &'static str,
        work: impl FnOnce(&mut Stage) -> Result<T>,
    ) -> Result<T> {
        let began = Instant::now();
        let mut stage = Stage {
            name,
            took: Duration::ZERO,
            bytes: 0,
            note: String::new(),
        };
        let value = work(&mut stage)?;
        stage.took = began.elapsed();
        self.stages.push(stage);
        Ok(value)
    }

    pub(crate) fn print(&self) {
        let total: Duration = self.stages.iter().map(|stage| stage.took).sum();
        let bytes: u64 = self.stages.iter().map(|stage| stage.bytes).sum();
        for stage in &self.stages {
            println!("{}", line(stage.name, stage.took, stage.bytes, &stage.note));
        }
        println!("{}", line("all", total, bytes, ""));
    }
}

fn line(name: &str, took: Duration, bytes: u64, note: &str) -> String {
    let (seconds, fetched) = (took.as_secs_f64(), format!("{} fetched", HumanBytes(bytes)));
    let fetched = if bytes == 0 { "" } else { &fetched };
    let line = format!("{name:<16} {seconds:>7.1} s  {fetched:<20} {note}");
    line.trim_end().to_owned()
}
