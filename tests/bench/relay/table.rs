//! Prints the table: medians over the repeats, with half of their range.

use std::{collections::BTreeMap, fmt::Write as _};

use crate::{cell::Cell, peers::PeerName, workload::Workload};

/// Above this, another program kept the machine busy.
const NOISY_CPUS: f64 = 0.1;

/// The repeats of one peer with one workload.
#[derive(Debug, Clone, Default)]
pub struct Repeats<'a>(Vec<&'a Cell>);

/// All repeats, by workload and peer.
pub type Rows<'a> = BTreeMap<(Workload, PeerName), Repeats<'a>>;

/// A median and its spread.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Median {
    /// The median.
    pub value: f64,
    /// Half of the difference between the lowest and the highest.
    pub spread: f64,
}

// === impl Median ===

impl Median {
    /// Computes it from some values; returns `None` if there are none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (first, last) = (values.first()?, values.last()?);
        let middle = values.len() / 2;
        let value = if values.len().is_multiple_of(2) {
            f64::midpoint(values[middle - 1], values[middle])
        } else {
            values[middle]
        };
        Some(Self {
            value,
            spread: (last - first) / 2.0,
        })
    }
}

// === impl Repeats ===

impl Repeats<'_> {
    /// Returns one figure over the repeats.
    pub fn median(&self, figure: impl Fn(&Cell) -> Option<f64>) -> Option<Median> {
        Median::of(self.0.iter().filter_map(|cell| figure(cell)))
    }

    /// Returns a figure relative to another peer's of the same repeat, which cancels what concerns both.
    pub fn against(
        &self,
        other: &Self,
        compare: impl Fn(&Cell, &Cell) -> Option<f64>,
    ) -> Option<Median> {
        let pairs = self.0.iter().filter_map(|cell| {
            let twin = other.0.iter().find(|other| other.repeat == cell.repeat)?;
            compare(cell, twin)
        });
        Median::of(pairs)
    }

    /// Returns the number of repeats, and how many of them are faulty.
    pub fn counts(&self) -> (usize, usize) {
        (
            self.0.len(),
            self.0.iter().filter(|cell| !cell.is_sound()).count(),
        )
    }
}

/// Joins cells to rows.
pub fn rows(cells: &[Cell]) -> Rows<'_> {
    let mut rows = Rows::new();
    for cell in cells {
        rows.entry((cell.workload, cell.peer))
            .or_default()
            .0
            .push(cell);
    }
    rows
}

/// One measured cell.
pub fn line(cell: &Cell) -> String {
    let mut line = format!(
        "{:<16} {:<9} #{}  {:>8.0}/s  p50 {:>8.3} ms  p99 {:>8.3} ms",
        cell.workload.to_string(),
        cell.peer.name(),
        cell.repeat,
        cell.per_second,
        cell.p50_ms,
        cell.p99_ms
    );
    if let Some(recorded) = cell.recorded {
        let _ = write!(line, "  the log lags {:.0} ms", recorded.lag_ms);
    }
    if cell.others_cpus > NOISY_CPUS {
        let _ = write!(line, "  others had {:.2} CPUs", cell.others_cpus);
    }
    if !cell.is_sound() {
        let _ = write!(
            line,
            "  NOT SOUND: {} failed {:?} {:?}",
            cell.n_failed, cell.failures, cell.recorded
        );
    }
    line
}

pub fn table(cells: &[Cell]) -> String {
    let rows = rows(cells);
    let mut text = String::from(
        "Medians (and half the range) of the repeats; % of nginx compares within a repeat. Times in ms, CPU in us for one reply, the peer's and the bench's own; memory in MiB.\n",
    );
    let mut last = None;
    for ((workload, peer), repeats) in &rows {
        if last != Some(*workload) {
            let _ = writeln!(
                text,
                "\n{:<16} {:>16} {:>7} {:>14} {:>14} {:>14} {:>13} {:>8} {:>6} {:>6}",
                workload.to_string(),
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
            last = Some(*workload);
        }
        let nginx = rows.get(&(*workload, PeerName::Nginx));
        let _ = writeln!(text, "{}", row(*peer, repeats, nginx));
    }
    text.push_str(&noise(cells));
    text
}

fn row(peer: PeerName, repeats: &Repeats<'_>, nginx: Option<&Repeats<'_>>) -> String {
    let share = nginx.and_then(|nginx| {
        repeats.against(nginx, |cell, nginx| {
            Some(100.0 * cell.per_second / nginx.per_second)
        })
    });
    let with_spread = |figure: fn(&Cell) -> Option<f64>, digits: usize| match repeats.median(figure)
    {
        Some(median) => format!("{:.digits$} ({:.digits$})", median.value, median.spread),
        None => "-".to_owned(),
    };
    let alone = |median: Option<Median>, digits: usize| {
        median.map_or("-".to_owned(), |it| format!("{:.digits$}", it.value))
    };
    let mut row = format!(
        "  {:<14} {:>16} {:>7} {:>14} {:>14} {:>14} {:>13} {:>8} {:>6} {:>6}",
        peer.name(),
        with_spread(|cell| Some(cell.per_second), 0),
        alone(share, 0),
        with_spread(|cell| Some(cell.p50_ms), 3),
        with_spread(|cell| Some(cell.p99_ms), 3),
        with_spread(|cell| Some(cell.first_byte_p50_ms), 3),
        with_spread(|cell| cell.gap_deviation_ms, 3),
        alone(repeats.median(|cell| cell.cpu_us), 1),
        alone(repeats.median(|cell| Some(cell.bench_cpu_us)), 1),
        alone(repeats.median(|cell| cell.peak_mib), 1),
    );
    let (n_cells, n_unsound) = repeats.counts();
    if n_unsound > 0 {
        let _ = write!(row, "  {n_unsound} of {n_cells} not sound");
    }
    row
}

fn noise(cells: &[Cell]) -> String {
    let noisy = cells
        .iter()
        .filter(|cell| cell.others_cpus > NOISY_CPUS)
        .count();
    if noisy == 0 {
        return String::new();
    }
    format!(
        "\nIn {noisy} of {} cells other programs kept more than {NOISY_CPUS} CPUs busy: the figures are noisy.\n",
        cells.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_has_its_spread() {
        let median = Median::of([3.0, 1.0, 2.0]).unwrap();
        assert_eq!(
            median,
            Median {
                value: 2.0,
                spread: 1.0
            }
        );
        assert_eq!(Median::of([1.0, 2.0]).map(|it| it.value), Some(1.5));
        assert_eq!(Median::of([]), None);
    }
}
