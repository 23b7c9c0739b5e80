//! What a run reports: measurements with intervals, how far its episodes got, its progress.

use std::{collections::HashSet, fmt, sync::Mutex, time::Duration};

use indicatif::{ProgressBar, ProgressStyle};
use serde::{Deserialize, Serialize};

use crate::episode::EpisodeEnd;

/// The quantile of the normal distribution for an interval of 95 %.
const Z: f64 = 1.959_963_985;

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct TaskTally {
    /// Tries that count: with a score, or were over a limit.
    pub n: u32,
    pub n_success: u32,
    pub score_sum: f64,
    pub n_scored: u32,
    pub n_over_limit: u32,
    pub n_failed: u32,
}

/// What was measured on a set of tasks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// What it is of: the step after which it was made, or `eval`.
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adapter: Option<String>,
    /// Tasks with at least one try that counts.
    pub n_tasks: usize,
    /// Tries that count.
    pub n_tries: u32,
    pub n_over_limit: u32,
    /// Tries that failed and do not count.
    pub n_failed: u32,
    /// The mean of the scores; none without a score.
    pub mean_score: Option<f64>,
    pub pass: Vec<PassAtK>,
}

/// The probability that at least one of k tries succeeds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PassAtK {
    pub k: u32,
    pub estimate: f64,
    /// The ends of the interval of 95 % over tasks.
    pub low: f64,
    pub high: f64,
}

/// How far the episodes of training got. Each is counted once: `opened` is the sum of `scored`, `failed` and
/// `unfinished`, and `scored` is the sum of the last three.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, derive_more::Display,
)]
#[display(
    "episodes: {opened} opened = {scored} scored + {failed} failed + {unfinished} unfinished; {scored} scored = {trained} trained + {without_difference} in groups without difference + {not_trained} not trained"
)]
pub struct EpisodeFunnel {
    pub opened: usize,
    pub scored: usize,
    pub failed: usize,
    pub unfinished: usize,
    /// In groups whose rewards are all equal.
    pub without_difference: usize,
    pub trained: usize,
    /// Of a step that was not made yet, or was made without them.
    pub not_trained: usize,
}

#[derive(Debug)]
pub(crate) struct RunProgress {
    bar: ProgressBar,
    print: fn(&str),
    /// Reasons of failures that were told since the last [`Self::begin`].
    told: Mutex<HashSet<String>>,
}

// === impl TaskTally ===

impl TaskTally {
    pub(crate) fn new(ends: &[EpisodeEnd], success_at: f64) -> Self {
        let mut tally = Self::default();
        for end in ends {
            tally.add(end, success_at);
        }
        tally
    }

    fn add(&mut self, end: &EpisodeEnd, success_at: f64) {
        match end {
            EpisodeEnd::Scored(reward) => {
                self.n += 1;
                self.n_scored += 1;
                self.n_success += u32::from(reward.score >= success_at);
                self.score_sum += reward.score;
            }
            EpisodeEnd::OverLimit(_) => {
                self.n += 1;
                self.n_over_limit += 1;
            }
            EpisodeEnd::Failed(_) | EpisodeEnd::Unfinished => self.n_failed += 1,
        }
    }

    pub(crate) fn plus(mut self, other: &Self) -> Self {
        self.n += other.n;
        self.n_success += other.n_success;
        self.score_sum += other.score_sum;
        self.n_scored += other.n_scored;
        self.n_over_limit += other.n_over_limit;
        self.n_failed += other.n_failed;
        self
    }

    pub(crate) fn mean_score(&self) -> Option<f64> {
        (self.n_scored > 0).then(|| self.score_sum / f64::from(self.n_scored))
    }
}

/// The unbiased estimate of pass@k from `c` successes in `n` tries, `n >= k`: `1 - C(n-c, k) / C(n, k)`, as a product.
/// Chen et al. 2021 (<https://arxiv.org/abs/2107.03374>), section 2.1.
fn pass_at_k(n: u32, c: u32, k: u32) -> f64 {
    if n - c < k {
        return 1.0;
    }
    let misses = (n - c + 1..=n).map(|i| 1.0 - f64::from(k) / f64::from(i));
    1.0 - misses.product::<f64>()
}

/// Wilson's interval of 95 % of a mean of `n` values in 0..=1: its low and its high end.
///
/// The variance of such a mean is at most a proportion's, so the interval is not too narrow for values between 0 and 1.
fn wilson(mean: f64, n: f64) -> (f64, f64) {
    let shrunk = mean + Z * Z / (2.0 * n);
    let half = Z * (mean * (1.0 - mean) / n + Z * Z / (4.0 * n * n)).sqrt();
    let scale = 1.0 + Z * Z / n;
    ((shrunk - half) / scale, (shrunk + half) / scale)
}

fn ks(tries: u32) -> Vec<u32> {
    let powers = (0..32).map(|i| 1_u32 << i);
    let mut ks: Vec<u32> = powers.take_while(|k| *k < tries).collect();
    ks.push(tries.max(1));
    ks
}

// === impl Measurement ===

impl Measurement {
    pub(crate) fn new(
        name: String,
        adapter: Option<String>,
        tallies: &[TaskTally],
        tries: u32,
    ) -> Self {
        let all = tallies.iter().fold(TaskTally::default(), TaskTally::plus);
        let at = |k: u32| {
            let counted = tallies.iter().filter(|it| it.n >= k);
            let passed: Vec<f64> = counted.map(|it| pass_at_k(it.n, it.n_success, k)).collect();
            let n = passed.len() as f64;
            let estimate = passed.iter().sum::<f64>() / n;
            let (low, high) = wilson(estimate, n);
            (n > 0.0).then_some(PassAtK {
                k,
                estimate,
                low,
                high,
            })
        };
        Self {
            name,
            adapter,
            n_tasks: tallies.iter().filter(|it| it.n > 0).count(),
            n_tries: all.n,
            n_over_limit: all.n_over_limit,
            n_failed: all.n_failed,
            mean_score: all.mean_score(),
            pass: ks(tries).into_iter().filter_map(at).collect(),
        }
    }
}

impl fmt::Display for Measurement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, n_tasks, n_tries) = (&self.name, self.n_tasks, self.n_tries);
        write!(f, "{name}: {n_tasks} tasks, {n_tries} tries")?;
        if let Some(adapter) = &self.adapter {
            write!(f, " under {adapter}")?;
        }
        for pass in &self.pass {
            let (k, estimate, low, high) = (pass.k, pass.estimate, pass.low, pass.high);
            write!(f, "; pass@{k} {estimate:.3} ({low:.3} to {high:.3})")?;
        }
        if let Some(mean) = self.mean_score {
            write!(f, "; mean score {mean:.3}")?;
        }
        if self.n_over_limit > 0 {
            write!(f, "; {} were over a limit", self.n_over_limit)?;
        }
        if self.n_failed > 0 {
            write!(f, "; {} failed and do not count", self.n_failed)?;
        }
        Ok(())
    }
}

// === impl RunProgress ===

impl RunProgress {
    /// Tells lines with `print`. The bar is on standard error, and hidden if that is no terminal.
    pub(crate) fn new(print: fn(&str)) -> Self {
        let bar = ProgressBar::new(0);
        // The template is a constant. If it were invalid, the plain bar would be shown.
        if let Ok(style) = ProgressStyle::with_template("{msg} {bar:30} {pos}/{len} {elapsed}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_secs(1));
        Self {
            bar,
            print,
            told: Mutex::default(),
        }
    }

    pub(crate) fn begin(&self, what: String, n_episodes: u64) {
        self.bar.reset();
        self.bar.set_length(n_episodes);
        self.bar.set_message(what);
        if let Ok(mut told) = self.told.lock() {
            told.clear();
        }
    }

    pub(crate) fn more(&self, n_episodes: u64) {
        self.bar.inc_length(n_episodes);
    }

    pub(crate) fn episode(&self, end: &EpisodeEnd, rollout: &str) {
        self.bar.inc(1);
        let why = match end {
            EpisodeEnd::Scored(_) | EpisodeEnd::Unfinished => return,
            EpisodeEnd::OverLimit(why) | EpisodeEnd::Failed(why) => why.clone(),
        };
        let is_new = self
            .told
            .lock()
            .is_ok_and(|mut told| told.insert(why.clone()));
        if is_new {
            self.line(&format!("episode {rollout}: {why}"));
        }
    }

    pub(crate) fn line(&self, line: &str) {
        self.bar.suspend(|| (self.print)(line));
    }

    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(n: u32, n_success: u32) -> TaskTally {
        TaskTally {
            n,
            n_success,
            score_sum: f64::from(n_success),
            n_scored: n,
            ..TaskTally::default()
        }
    }

    /// Values of the reference implementation of the paper, in numpy.
    #[test]
    fn pass_at_k_is_the_papers_estimate() {
        for (n, c, k, expected) in [
            (8, 2, 1, 0.25),
            (8, 2, 4, 0.785_714),
            (8, 0, 8, 0.0),
            (8, 1, 8, 1.0),
            (10, 3, 5, 0.916_667),
        ] {
            let estimate = pass_at_k(n, c, k);
            assert!(
                (estimate - expected).abs() < 1e-6,
                "{n} {c} {k}: {estimate}"
            );
        }
    }

    #[test]
    fn an_interval_is_wilsons() {
        let (low, high) = wilson(0.5, 10.0);
        assert!((low - 0.236_59).abs() < 1e-4 && (high - 0.763_41).abs() < 1e-4);
        let (low, high) = wilson(0.0, 20.0);
        assert!(
            low.abs() < 1e-9 && (high - 0.161_13).abs() < 1e-4,
            "{low} {high}"
        );
    }

    #[test]
    fn a_measurement_is_told_in_one_line() {
        let tallies = [tally(4, 4), tally(4, 0), tally(4, 2)];
        let measured = Measurement::new("eval".to_owned(), Some("a-3".to_owned()), &tallies, 4);
        let ks: Vec<u32> = measured.pass.iter().map(|it| it.k).collect();
        assert_eq!(ks, [1, 2, 4]);
        let line = measured.to_string();
        assert!(
            line.starts_with("eval: 3 tasks, 12 tries under a-3; pass@1 0.500 (0."),
            "{line}"
        );
        assert!(line.ends_with("mean score 0.500"), "{line}");
    }

    #[test]
    fn a_timeout_is_no_success_and_a_failure_does_not_count() {
        let mut tally = TaskTally::default();
        tally.add(&EpisodeEnd::OverLimit(String::new()), 1.0);
        tally.add(&EpisodeEnd::Failed("a".to_owned()), 1.0);
        let measured = Measurement::new("eval".to_owned(), None, &[tally], 2);
        assert_eq!((measured.n_tries, measured.n_failed), (1, 1));
        assert!(measured.pass[0].estimate.abs() < 1e-9);
        assert_eq!(measured.mean_score, None);
    }
}
