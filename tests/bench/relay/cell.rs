//! One cell of the table: one peer, one workload, one repeat; a file of its own.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use crate::{
    load::Outcome,
    peers::{PeerName, Recorded},
    workload::{PACE, Workload},
};

/// Which cell it is.
#[derive(Debug, Clone, Copy)]
pub struct CellKey {
    pub peer: PeerName,
    pub workload: Workload,
    /// From 1.
    pub repeat: usize,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Cell {
    pub peer: PeerName,
    pub workload: Workload,
    /// Which repeat it is, from 1.
    pub repeat: usize,
    /// Seconds in which `n_within` replies ended; with recording, until the log had them all.
    pub seconds: f64,
    /// Replies that ended well within.
    pub n_within: usize,
    /// Replies that did not end well, in all.
    pub n_failed: usize,
    /// What the first of them said.
    pub failures: Vec<String>,
    pub per_second: f64,
    /// Half of the replies took at most so long, in milliseconds.
    pub p50_ms: f64,
    /// 99 in 100 took at most so long.
    pub p99_ms: f64,
    /// From sending to the first byte of the body; half took at most so long.
    pub first_byte_p50_ms: f64,
    /// The same, for 99 in 100.
    pub first_byte_p99_ms: f64,
    /// Of paced streams: the root of the mean square of what a gap between two events differs from the pace.
    pub gap_deviation_ms: Option<f64>,
    /// The same difference that 99 in 100 gaps do not exceed.
    pub gap_p99_ms: Option<f64>,
    /// CPU time of the peer's processes for one reply, in microseconds.
    pub cpu_us: Option<f64>,
    /// The same of upstream and load: where all share the CPUs, replies a second go with the sum.
    pub bench_cpu_us: f64,
    /// The most memory that the peer's processes held, in MiB.
    pub peak_mib: Option<f64>,
    /// CPUs that were busy with neither the peer nor the bench: above a tenth, the figures are noisy.
    pub others_cpus: f64,
    /// With recording: what the log did.
    pub recorded: Option<Recorded>,
}

/// What a peer cost.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cost {
    /// CPU time of its processes.
    pub cpu: Option<Duration>,
    /// CPU time of upstream and load.
    pub bench_cpu: Duration,
    pub peak_kib: Option<u64>,
    /// CPUs busy with something else.
    pub others_cpus: f64,
}

// === impl Cell ===

impl Cell {
    /// The file of a cell in `folder`.
    pub fn file(folder: &Path, workload: Workload, peer: PeerName, repeat: usize) -> PathBuf {
        folder
            .join("cells")
            .join(workload.to_string())
            .join(format!("{}-{repeat}.json", peer.name()))
    }

    /// Makes a cell of what came; `window` is the time in which replies were counted.
    pub fn new(
        key: CellKey,
        window: Duration,
        mut outcome: Outcome,
        cost: Cost,
        recorded: Option<Recorded>,
    ) -> Self {
        let CellKey {
            peer,
            workload,
            repeat,
        } = key;
        let lag = recorded.map_or(0.0, |recorded| recorded.lag_ms / 1e3);
        let seconds = window.as_secs_f64() + lag;
        let n_within = outcome.n_within;
        outcome.totals.sort_unstable();
        outcome.first_bytes.sort_unstable();
        let mut off: Vec<Duration> = outcome.gaps.iter().map(|gap| gap.abs_diff(PACE)).collect();
        off.sort_unstable();
        let per_reply = |cpu: Duration| cpu.as_secs_f64() * 1e6 / n_within.max(1) as f64;
        Self {
            peer,
            workload,
            repeat,
            seconds,
            n_within,
            n_failed: outcome.n_failed,
            failures: outcome.failures,
            per_second: n_within as f64 / seconds,
            p50_ms: quantile_ms(&outcome.totals, 0.5),
            p99_ms: quantile_ms(&outcome.totals, 0.99),
            first_byte_p50_ms: quantile_ms(&outcome.first_bytes, 0.5),
            first_byte_p99_ms: quantile_ms(&outcome.first_bytes, 0.99),
            gap_deviation_ms: (!off.is_empty()).then(|| root_mean_square_ms(&off)),
            gap_p99_ms: (!off.is_empty()).then(|| quantile_ms(&off, 0.99)),
            cpu_us: cost.cpu.map(per_reply),
            bench_cpu_us: per_reply(cost.bench_cpu),
            peak_mib: cost.peak_kib.map(|kib| kib as f64 / 1024.0),
            others_cpus: cost.others_cpus,
            recorded,
        }
    }

    /// Reads a cell that is there.
    ///
    /// # Errors
    /// When the file is no cell.
    pub fn read(file: &Path) -> Result<Self> {
        serde_json::from_slice(&fs::read(file)?)
            .with_context(|| format!("{} is no record of a run: remove it", file.display()))
    }

    /// Writes it, whole or not at all.
    ///
    /// # Errors
    /// When the disk does not take it.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let file = Self::file(folder, self.workload, self.peer, self.repeat);
        fs::create_dir_all(file.parent().context("a cell has a folder")?)?;
        let half = file.with_extension("half");
        fs::write(&half, serde_json::to_vec_pretty(self)?)?;
        Ok(fs::rename(half, file)?)
    }

    /// Whether everything that was asked came as it should, and was recorded where it is.
    pub fn is_sound(&self) -> bool {
        self.n_failed == 0
            && self.n_within > 0
            && self.recorded.is_none_or(|recorded| recorded.n_lost == 0)
    }
}

/// Of sorted times, in milliseconds; 0 where there are none.
pub fn quantile_ms(sorted: &[Duration], share: f64) -> f64 {
    // The smallest value that at least this share does not exceed.
    let rank = (share * sorted.len() as f64).ceil().max(1.0);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a small whole number"
    )]
    let index = rank as usize - 1;
    sorted.get(index).map_or(0.0, |it| it.as_secs_f64() * 1e3)
}

fn root_mean_square_ms(values: &[Duration]) -> f64 {
    let squares: f64 = values.iter().map(|it| it.as_secs_f64().powi(2)).sum();
    (squares / values.len() as f64).sqrt() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_occurred() {
        let times: Vec<Duration> = (1..=200).map(Duration::from_millis).collect();
        assert!((quantile_ms(&times, 0.5) - 100.0).abs() < 1e-9);
        assert!((quantile_ms(&times, 0.99) - 198.0).abs() < 1e-9);
        assert!((quantile_ms(&times[..1], 0.99) - 1.0).abs() < 1e-9);
        assert!(quantile_ms(&[], 0.5).abs() < 1e-9);
    }
}
