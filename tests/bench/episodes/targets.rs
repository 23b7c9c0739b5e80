//! What is promised of the runs, and the text that is printed.

use std::fmt::Write as _;

use crate::{
    family::BenchFamily,
    trained::{EpisodeRecord, ShownEpisode},
};

/// Where the base model has to be with calls of tools, so that the tasks are neither too hard nor known already.
const BASE: (f64, f64) = (0.1, 0.4); // pair: least and most
/// What calls of tools have to reach.
const REACHED: f64 = 0.8;
/// By how much one-line commands have to succeed more often.
const FACTOR: f64 = 2.0;
/// The probes that may be lost.
const MOST_LOST: u64 = 2;
/// The characters of a reply that are shown.
const LINE: usize = 160;

/// Returns what a run has missed, in words.
fn missed(record: &EpisodeRecord) -> Vec<String> {
    let (before, after) = record.ends();
    let mut missed = Vec::new();
    if record.track == BenchFamily::SmartHome.track() {
        if !(BASE.0..=BASE.1).contains(&before) {
            missed.push(format!("before: {before:.2}, {} to {}", BASE.0, BASE.1));
        }
        if after < REACHED {
            missed.push(format!("after: {after:.2}, at least {REACHED}"));
        }
    } else if after < FACTOR * before || after <= before {
        missed.push(format!(
            "after: {after:.2}, at least {FACTOR} times {before:.2}"
        ));
    }
    let lost = record.probes_before.saturating_sub(record.probes_after);
    if lost > MOST_LOST {
        missed.push(format!("probes lost: {lost}, at most {MOST_LOST}"));
    }
    missed
}

/// Returns the table, and whether all that was measured is as promised.
pub fn table(records: &[EpisodeRecord]) -> (String, bool) {
    // pair: text and verdict
    let mut text = format!(
        "{:<9} {:>4} {:>4} {:>5} {:<28} {:>7} {:>8} {:>7}\n",
        "track",
        "seed",
        "gate",
        "steps",
        "pass@1 on held-out tasks",
        "probes",
        "episodes",
        "minutes"
    );
    let mut is_kept = true;
    for record in records {
        let curve: Vec<String> = record
            .curve
            .iter()
            .map(|(_, rate)| format!("{rate:.2}"))
            .collect();
        let probes = format!("{}, {}", record.probes_before, record.probes_after);
        let gate = if record.gate { "on" } else { "off" };
        let _ = writeln!(
            text,
            "{:<9} {:>4} {:>4} {:>5} {:<28} {:>7} {:>8} {:>7.1}",
            record.track,
            record.seed,
            gate,
            record.steps,
            curve.join(" "),
            probes,
            record.n_episodes,
            record.minutes
        );
        for miss in missed(record) {
            is_kept = false;
            let _ = writeln!(text, "  MISSED  {miss}");
        }
    }
    (text, is_kept)
}

/// Returns episodes before and after training, to be read.
pub fn episodes(record: &EpisodeRecord) -> String {
    let mut text = format!("{}, seed {}\n", record.track, record.seed);
    for (before, after) in record.before.iter().zip(&record.after) {
        let _ = writeln!(text, "\n{}", before.asked);
        for (when, episode) in [("before", before), ("after", after)] {
            let _ = writeln!(text, "  {when:<7} {} {}", episode.score, line(episode));
        }
    }
    text
}

/// A reply in one line.
fn line(episode: &ShownEpisode) -> String {
    let line = episode.replied.replace('\n', "\\n");
    line.chars().take(LINE).collect()
}

// === impl EpisodeRecord ===

impl EpisodeRecord {
    /// Returns the rates of success before training and at its end.
    fn ends(&self) -> (f64, f64) {
        // pair: before and after
        let rate = |it: Option<&(String, f64)>| it.map_or(0.0, |(_, rate)| *rate);
        (rate(self.curve.first()), rate(self.curve.last()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(track: &str, before: f64, after: f64, probes_after: u64) -> EpisodeRecord {
        EpisodeRecord {
            track: track.to_owned(),
            seed: 1,
            gate: false,
            steps: 4,
            curve: vec![("0".to_owned(), before), ("4".to_owned(), after)],
            probes_before: 58,
            probes_after,
            n_episodes: 128,
            minutes: 1.0,
            before: Vec::new(),
            after: Vec::new(),
        }
    }

    #[test]
    fn what_is_missed_is_said() {
        let kept = [
            record("toolcall", 0.2, 0.8, 56),
            record("terminal", 0.1, 0.2, 58),
        ];
        assert!(table(&kept).1);
        for missed in [
            record("toolcall", 0.05, 0.9, 58),
            record("toolcall", 0.2, 0.79, 58),
            record("toolcall", 0.2, 0.9, 55),
            record("terminal", 0.1, 0.19, 58),
            record("terminal", 0.0, 0.0, 58),
        ] {
            let (text, is_kept) = table(&[missed]);
            assert!(!is_kept && text.contains("MISSED"), "{text}");
        }
    }
}
