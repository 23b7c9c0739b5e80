//! The measured cells, and the table of them: medians over the repeats, with half of their range.

use std::{collections::BTreeMap, fmt::Write as _};

use metaclaw_tests::bench::median;
use serde::{Deserialize, Serialize};

use crate::{
    peers::{PeerName, Recorded},
    workload::{FIFTHS, Workload},
};

/// Above this, another program kept the machine busy.
const NOISY_CPUS: f64 = 0.1;

/// One peer, one workload, one repeat. Times are in milliseconds.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
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
    /// Of growing sessions: CPU time of the peer's processes for one reply, in microseconds, in each fifth.
    pub fifths_us: Vec<f64>,
    /// Where it is guarded: see [`guard::reading_us`](crate::guard::reading_us).
    pub reading_us: Option<f64>,
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

const HEAD: &str = "| workload | peer | replies/s | % of nginx | p50 ms | p99 ms | first byte ms | gaps off ms | CPU us | bench us | MiB |
|---|---|---|---|---|---|---|---|---|---|---|
";
const GROWING_HEAD: &str = "
| growing sessions | peer | turns of each | CPU us in each fifth | last to first | MiB |
|---|---|---|---|---|---|
";

/// Returns the tables in Markdown.
pub fn table(cells: &[Cell]) -> String {
    let mut rows: BTreeMap<(Workload, PeerName), Vec<&Cell>> = BTreeMap::new();
    for cell in cells {
        rows.entry((cell.workload, cell.peer))
            .or_default()
            .push(cell);
    }
    let mut text = String::from(HEAD);
    for ((workload, peer), repeats) in &rows {
        let nginx = rows.get(&(*workload, PeerName::Nginx));
        let row = row(repeats, nginx);
        let _ = writeln!(text, "| {workload} | {} | {row} |", peer.name());
    }
    let mut head = GROWING_HEAD;
    let growing = rows
        .iter()
        .filter(|(_, cells)| cells.iter().any(|cell| !cell.fifths_us.is_empty()));
    for ((workload, peer), repeats) in growing {
        let nginx = rows.get(&(*workload, PeerName::Nginx));
        let row = growing_row(repeats, nginx.filter(|_| peer.is_ours()));
        let (peer, n_turns) = (peer.name(), workload.n_turns());
        let _ = writeln!(text, "{head}| {workload} | {peer} | {n_turns} | {row} |");
        head = "";
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

/// Returns the CPU of a growing session's fifths, and what the last takes of the first. From both, nginx's is taken off,
/// which is that of copying the bytes.
fn growing_row(repeats: &[&Cell], nginx: Option<&Vec<&Cell>>) -> String {
    let fifth = |cells: &[&Cell], at: usize| {
        median(
            cells
                .iter()
                .filter_map(|cell| cell.fifths_us.get(at).copied()),
        )
    };
    let fifths = (0..FIFTHS).map(|at| fifth(repeats, at));
    let all: Vec<String> = fifths.map(|us| alone(us, 0)).collect();
    let own = |at| fifth(repeats, at) - nginx.map_or(0.0, |nginx| fifth(nginx, at));
    let ratio = own(FIFTHS - 1) / own(0);
    let peak = median(repeats.iter().filter_map(|cell| cell.peak_mib));
    format!(
        "{} | {} | {}",
        all.join(", "),
        alone(ratio, 2),
        alone(peak, 1)
    )
}

fn alone(value: f64, digits: usize) -> String {
    if value.is_nan() {
        return String::new();
    }
    format!("{value:.digits$}")
}

/// Returns the medians of the repeats, with half of their range.
fn row(repeats: &[&Cell], nginx: Option<&Vec<&Cell>>) -> String {
    // A share of nginx's in the same repeat cancels what concerns both.
    let shares = repeats.iter().filter_map(|cell| {
        let twin = nginx?.iter().find(|other| other.repeat == cell.repeat)?;
        Some(100.0 * cell.per_second / twin.per_second)
    });
    let figure =
        |figure: fn(&Cell) -> Option<f64>| repeats.iter().filter_map(move |cell| figure(cell));
    let spread = |of: fn(&Cell) -> Option<f64>, digits: usize| {
        let least = figure(of).fold(f64::INFINITY, f64::min);
        let most = figure(of).fold(f64::NEG_INFINITY, f64::max);
        match median(figure(of)) {
            none if none.is_nan() => String::new(),
            some => format!("{some:.digits$} ({:.digits$})", (most - least) / 2.0),
        }
    };
    let mut row = [
        spread(|cell| Some(cell.per_second), 0),
        alone(median(shares), 0),
        spread(|cell| Some(cell.p50_ms), 3),
        spread(|cell| Some(cell.p99_ms), 3),
        spread(|cell| Some(cell.first_byte_p50_ms), 3),
        spread(|cell| cell.gap_deviation_ms, 3),
        spread(|cell| cell.cpu_us, 0),
        alone(median(figure(|cell| Some(cell.bench_cpu_us))), 0),
        alone(median(figure(|cell| cell.peak_mib)), 1),
    ]
    .join(" | ");
    let n_unsound = repeats.iter().filter(|cell| !cell.is_sound()).count();
    if n_unsound > 0 {
        let _ = write!(row, " ({n_unsound} of {} not sound)", repeats.len());
    }
    row
}
