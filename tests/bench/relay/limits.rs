//! The promised limits of the relay, and whether this run keeps them.

use std::fmt::Write as _;

use crate::{
    cell::Cell,
    peers::PeerName::{self, Nginx, Off, On},
    table::{Median, Rows, rows},
    workload::{Kind, Size, Workload},
};

/// One promise, and the measured value.
struct Promise {
    what: String,
    limit: String,
    found: Option<Median>,
    /// The margin; below 0 if the promise is broken.
    margin: f64,
    digits: usize,
}

/// Prints each promise for 40 KB requests with lessons, whether it is kept, and its margin.
pub fn summary(cells: &[Cell]) -> String {
    let rows = rows(cells);
    let mut promises = Vec::new();
    for peer in [Off, On] {
        promises.extend(throughput(&rows, peer));
        promises.extend(alone(&rows, peer));
        promises.push(memory(&rows, peer));
    }
    let mut text = String::from(
        "Promises, for requests of 40 KB with lessons; differences and ratios are of one repeat, the median over all (half the range)\n",
    );
    for promise in &promises {
        let _ = writeln!(text, "{}", promise.line());
    }
    let missing = cells.iter().filter(|cell| !cell.is_sound()).count();
    if missing > 0 {
        let _ = writeln!(
            text,
            "  {missing} cells are not sound: what they show does not count"
        );
    }
    text
}

fn of(kind: Kind, connections: usize) -> Workload {
    Workload {
        kind,
        size: Size::Large,
        connections,
    }
}

/// Compares a figure of `peer` with nginx's.
fn against(
    rows: &Rows<'_>,
    workload: Workload,
    peer: PeerName,
    compare: fn(&Cell, &Cell) -> Option<f64>,
) -> Option<Median> {
    rows.get(&(workload, peer))?
        .against(rows.get(&(workload, Nginx))?, compare)
}

fn throughput(rows: &Rows<'_>, peer: PeerName) -> Vec<Promise> {
    let (plain, burst) = if peer == Off {
        ([60.0, 50.0], [50.0, 50.0])
    } else {
        ([40.0, 33.0], [40.0, 40.0])
    };
    let mut promises = Vec::new();
    for (kind, least) in [(Kind::Plain, plain), (Kind::Burst, burst)] {
        for (connections, least) in [16, 128].into_iter().zip(least) {
            let workload = of(kind, connections);
            let ratio =
                |cell: &Cell, nginx: &Cell| Some(100.0 * cell.per_second / nginx.per_second);
            let found = against(rows, workload, peer, ratio);
            promises.push(Promise {
                what: format!("{} {workload} replies/s", peer.name()),
                limit: format!("at least {least:.0} % of nginx's"),
                margin: found.map_or(0.0, |it| it.value - least),
                found,
                digits: 1,
            });
        }
    }
    promises
}

/// Computes how much longer a single connection waits than with nginx.
fn alone(rows: &Rows<'_>, peer: PeerName) -> Vec<Promise> {
    type Difference = fn(&Cell, &Cell) -> Option<f64>;
    let figures: [(&str, Kind, f64, Difference); 3] = [
        ("p50", Kind::Plain, 0.1, |cell, nginx| {
            Some(cell.p50_ms - nginx.p50_ms)
        }),
        ("p99", Kind::Plain, 0.5, |cell, nginx| {
            Some(cell.p99_ms - nginx.p99_ms)
        }),
        ("first byte", Kind::Paced, 0.25, |cell, nginx| {
            Some(cell.first_byte_p50_ms - nginx.first_byte_p50_ms)
        }),
    ];
    let promise = |(name, kind, most, difference): (&str, Kind, f64, Difference)| {
        let workload = of(kind, 1);
        let found = against(rows, workload, peer, difference);
        Promise {
            what: format!("{} {workload} {name}", peer.name()),
            limit: format!("at most nginx's + {most} ms"),
            margin: found.map_or(0.0, |it| most - it.value),
            found,
            digits: 3,
        }
    };
    figures.map(promise).into()
}

fn memory(rows: &Rows<'_>, peer: PeerName) -> Promise {
    let most = if peer == Off { 64.0 } else { 128.0 };
    let at_128 = rows
        .iter()
        .filter(|((workload, who), _)| workload.connections == 128 && *who == peer);
    let peaks = at_128.filter_map(|(_, repeats)| repeats.median(|cell| cell.peak_mib));
    let found = peaks.max_by(|a, b| a.value.total_cmp(&b.value));
    Promise {
        what: format!(
            "{} peak memory at 128 connections, the worst workload",
            peer.name()
        ),
        limit: format!("at most {most} MiB"),
        margin: found.map_or(0.0, |it| most - it.value),
        found,
        digits: 1,
    }
}

// === impl Promise ===

impl Promise {
    fn line(&self) -> String {
        let Self {
            what,
            limit,
            margin,
            digits,
            ..
        } = self;
        let Some(found) = self.found else {
            return format!("  not measured  {what}: {limit}");
        };
        let is = if *margin >= 0.0 { "kept" } else { "MISSED" };
        format!(
            "  {is:<7} by {:>8.digits$}  {what}: {:.digits$} ({:.digits$}), {limit}",
            margin.abs(),
            found.value,
            found.spread
        )
    }
}
