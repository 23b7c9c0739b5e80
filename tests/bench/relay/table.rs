//! The measured cells, and the table of them: medians over the repeats, with half of their range.

use std::{collections::BTreeMap, fmt::Write as _};

use metaclaw_tests::bench::median;
use serde::{Deserialize, Serialize};

use crate::{
    peers::{PeerName, Recorded},
    workload::Workload,
};

/// Above this, another program kept the machine busy.
const NOISY_CPUS: f64 = 0.1;

/// One peer, one workload, one repeat. Times are in milliseconds.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Cell {
    pub peer: PeerName,
    pub workload: Workload,
    /// From 1.
    pub repeat: usize,
    /// Replies that ended well within the window.
    pub n_within: usize,
    pub n_failed: usize,
    /// What the first of them said.
    pub failures: Vec<String>,
    /// With recording, of the time until the log had all turns.
    pub per_second: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub first_byte_p50_ms: f64,
    pub first_byte_p99_ms: f64,
    /// Of paced streams: the root of the mean square of what a gap between two events differs from the pace.
    pub gap_deviation_ms: Option<f64>,
    /// The same difference that 99 in 100 gaps do not exceed.
    pub gap_p99_ms: Option<f64>,
    /// CPU time of the peer's processes for one reply, in microseconds.
    pub cpu_us: Option<f64>,
    /// The same of upstream and load: where all share the CPUs, replies a second go with the sum.
    pub bench_cpu_us: f64,
    /// The most memory that the peer's processes held.
    pub peak_mib: Option<f64>,
    /// CPUs that were busy with neither the peer nor the bench.
    pub others_cpus: f64,
    /// With recording: what the log did.
    pub recorded: Option<Recorded>,
}

// === impl Cell ===

impl Cell {
    /// Whether everything that was asked came as it should, and was recorded where it is.
    fn is_sound(&self) -> bool {
        let n_lost = self.recorded.map_or(0, |recorded| recorded.n_lost);
        self.n_failed == 0 && self.n_within > 0 && n_lost == 0
    }

    /// Returns it in one line.
    pub fn line(&self) -> String {
        let mut line = format!(
            "{:<16} {:<9} #{}  {:>8.0}/s  p50 {:>8.3} ms  p99 {:>8.3} ms",
            self.workload.to_string(),
            self.peer.name(),
            self.repeat,
            self.per_second,
            self.p50_ms,
            self.p99_ms
        );
        if let Some(recorded) = self.recorded {
            let _ = write!(line, "  the log lags {:.0} ms", recorded.lag_ms);
        }
        if self.others_cpus > NOISY_CPUS {
            let _ = write!(line, "  others had {:.2} CPUs", self.others_cpus);
        }
        if !self.is_sound() {
            let (n_failed, failures) = (self.n_failed, &self.failures);
            let _ = write!(
                line,
                "  NOT SOUND: {n_failed} failed {failures:?} {:?}",
                self.recorded
            );
        }
        line
    }
}

pub fn table(cells: &[Cell]) -> String {
    let mut rows: BTreeMap<(Workload, PeerName), Vec<&Cell>> = BTreeMap::new();
    for cell in cells {
        rows.entry((cell.workload, cell.peer))
            .or_default()
            .push(cell);
    }
    let mut text = String::from(
        "Medians (and half the range) of the repeats; % of nginx compares within a repeat. Times in ms, CPU in us for one reply, the peer's and the bench's own; memory in MiB.\n",
    );
    let mut last = None;
    for ((workload, peer), repeats) in &rows {
        if last != Some(workload) {
            let name = workload.to_string();
            let _ = writeln!(
                text,
                "\n{name:<16} {:>16} {:>7} {:>14} {:>14} {:>14} {:>13} {:>8} {:>6} {:>6}",
                "replies/s",
                "% nginx",
                "p50",
                "p99",
                "first byte",
                "gaps off",
                "CPU",
                "bench",
                "MiB"
            );
            last = Some(workload);
        }
        let nginx = rows.get(&(*workload, PeerName::Nginx));
        let _ = writeln!(text, "{}", row(*peer, repeats, nginx));
    }
    let n_noisy = cells
        .iter()
        .filter(|cell| cell.others_cpus > NOISY_CPUS)
        .count();
    if n_noisy > 0 {
        let n = cells.len();
        let _ = writeln!(
            text,
            "\nIn {n_noisy} of {n} cells other programs kept more than {NOISY_CPUS} CPUs busy: the figures are noisy."
        );
    }
    text
}

fn row(peer: PeerName, repeats: &[&Cell], nginx: Option<&Vec<&Cell>>) -> String {
    // A share of nginx's in the same repeat cancels what concerns both.
    let shares = repeats.iter().filter_map(|cell| {
        let twin = nginx?.iter().find(|other| other.repeat == cell.repeat)?;
        Some(100.0 * cell.per_second / twin.per_second)
    });
    let alone = |values: Vec<f64>, digits: usize| match median(values) {
        none if none.is_nan() => "-".to_owned(),
        some => format!("{some:.digits$}"),
    };
    let figure =
        |figure: fn(&Cell) -> Option<f64>| repeats.iter().filter_map(move |cell| figure(cell));
    let spread = |of: fn(&Cell) -> Option<f64>, digits: usize| {
        let least = figure(of).fold(f64::INFINITY, f64::min);
        let most = figure(of).fold(f64::NEG_INFINITY, f64::max);
        match median(figure(of)) {
            none if none.is_nan() => "-".to_owned(),
            some => format!("{some:.digits$} ({:.digits$})", (most - least) / 2.0),
        }
    };
    let mut row = format!(
        "  {:<14} {:>16} {:>7} {:>14} {:>14} {:>14} {:>13} {:>8} {:>6} {:>6}",
        peer.name(),
        spread(|cell| Some(cell.per_second), 0),
        alone(shares.collect(), 0),
        spread(|cell| Some(cell.p50_ms), 3),
        spread(|cell| Some(cell.p99_ms), 3),
        spread(|cell| Some(cell.first_byte_p50_ms), 3),
        spread(|cell| cell.gap_deviation_ms, 3),
        alone(figure(|cell| cell.cpu_us).collect(), 1),
        alone(figure(|cell| Some(cell.bench_cpu_us)).collect(), 1),
        alone(figure(|cell| cell.peak_mib).collect(), 1),
    );
    let n_unsound = repeats.iter().filter(|cell| !cell.is_sound()).count();
    if n_unsound > 0 {
        let _ = write!(row, "  {n_unsound} of {} not sound", repeats.len());
    }
    row
}
