//! The figures of a trial, and what follows from them.

#[cfg(test)]
mod tests;

use std::fmt;

use serde::{Deserialize, Serialize};

/// Replies to one request, in each of the two arms.
pub const TRIAL_DRAWS: usize = 3;
/// The smallest number of requests that a trial can be decided by.
pub const MIN_TRIED: usize = 3;
/// The smallest number of requests, among these, that had failed without a skill, before the skill may age out.
const MIN_FAILED: usize = 2;
/// A gain counts if chance makes one as large in at most so many trials of a skill without effect.
///
/// Three draws of one request pass it only if all three are good with the skill and none without. The probability of
/// chance is that of Fisher's exact test: given how many replies were good in all, how often does the split come out at
/// least so uneven if the arms are equal? It needs no assumption about how often the judge errs, because errors that
/// do not depend on the arm leave the arms equal.
const GAIN_BY_CHANCE: f64 = 0.05;
/// The same for a loss. It is larger, because a harmful skill in force costs more than a good one that waits.
const LOSS_BY_CHANCE: f64 = 0.12;

/// How many of [`TRIAL_DRAWS`] replies to one request were good in each arm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TriedRequest {
    /// Whether the reply that the request got from the agent was good.
    pub was_good: bool,
    pub good_with: usize,
    pub good_without: usize,
}

/// The figures of a trial, request by request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrialFigures {
    pub requests: Vec<TriedRequest>,
}

/// What a trial showed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrialVerdict {
    /// The skill is better somewhere and worse nowhere, by more than chance.
    Passed,
    /// The skill is worse somewhere, or it is better nowhere.
    Declined,
    /// There are too few requests, or they are answered too well without the skill to show a gain.
    TooFew,
}

#[derive(Debug, Clone, Copy)]
struct Pooled {
    n: usize,
    good_with: usize,
    good_without: usize,
}

// === impl Pooled ===

impl Pooled {
    fn sum<'a>(requests: impl Iterator<Item = &'a TriedRequest>) -> Self {
        let none = Self {
            n: 0,
            good_with: 0,
            good_without: 0,
        };
        requests.fold(none, |sum, it| Self {
            n: sum.n + TRIAL_DRAWS,
            good_with: sum.good_with + it.good_with,
            good_without: sum.good_without + it.good_without,
        })
    }

    fn is_gain(self) -> bool {
        by_chance(self.n, self.good_with, self.good_without) <= GAIN_BY_CHANCE
    }

    fn is_loss(self) -> bool {
        by_chance(self.n, self.good_without, self.good_with) <= LOSS_BY_CHANCE
    }

    fn is_at_ceiling(self) -> bool {
        let perfect = Self {
            good_with: self.n,
            ..self
        };
        !perfect.is_gain()
    }
}

// === impl TrialFigures ===

impl TrialFigures {
    /// Returns whether the skill is worse somewhere: at one request, at those that the agent had answered well, at the
    /// others, or at all of them.
    pub fn is_worse(&self) -> bool {
        self.parts().any(Pooled::is_loss)
    }

    /// Returns what the figures show.
    pub fn verdict(&self) -> TrialVerdict {
        if self.is_worse() {
            TrialVerdict::Declined
        } else if self.requests.len() < MIN_TRIED || self.parts().all(Pooled::is_at_ceiling) {
            TrialVerdict::TooFew
        } else if self.parts().any(Pooled::is_gain)
            && self.all().good_with > self.all().good_without
        {
            TrialVerdict::Passed
        } else {
            TrialVerdict::Declined
        }
    }

    /// Returns whether a skill in force is no longer better, though there are requests that had failed without it.
    pub fn is_outgrown(&self) -> bool {
        let n_failed = self.requests.iter().filter(|r| !r.was_good).count();
        let all = self.all();
        self.requests.len() >= MIN_TRIED
            && n_failed >= MIN_FAILED
            && all.good_with <= all.good_without
    }

    pub(super) fn again(&self) -> String {
        let all = self.all();
        let shown = if self.is_outgrown() {
            "a later trial found it no longer better"
        } else {
            "a later trial found no reason to take it out"
        };
        format!(
            "{shown}: {} of {n} replies were good with it and {} of {n} without it",
            all.good_with,
            all.good_without,
            n = all.n
        )
    }

    fn all(&self) -> Pooled {
        Pooled::sum(self.requests.iter())
    }

    fn parts(&self) -> impl Iterator<Item = Pooled> {
        let of = |was_good| {
            let requests = self.requests.iter();
            Pooled::sum(requests.filter(move |request| request.was_good == was_good))
        };
        let each = self.requests.iter().map(|r| Pooled::sum([r].into_iter()));
        each.chain([of(true), of(false), self.all()])
    }
}

impl fmt::Display for TrialFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.all();
        let shown = match self.verdict() {
            TrialVerdict::Passed => "its trial found it better",
            TrialVerdict::Declined if self.is_worse() => "its trial found it worse",
            TrialVerdict::Declined => "its trial found it no better",
            TrialVerdict::TooFew => "its trial could not show enough",
        };
        let n_requests = self.requests.len();
        if n_requests == 0 {
            return write!(f, "{shown}: no earlier request of its kind can be tried");
        }
        write!(
            f,
            "{shown}: {} of {n} replies were good with it and {} of {n} without it, at {n_requests} earlier requests",
            all.good_with,
            all.good_without,
            n = all.n
        )
    }
}

/// Returns the probability that of two arms of `n` replies each, one has at least `more` good ones, given that both have
/// `more + less`, if each split is equally likely (Fisher's exact test, one-sided).
fn by_chance(n: usize, more: usize, less: usize) -> f64 {
    let n_good = more + less;
    let ways = |good: usize| choose(n, good) * choose(n, n_good - good);
    let at_least: f64 = (more..=n.min(n_good)).map(ways).sum();
    at_least / choose(2 * n, n_good)
}

#[expect(clippy::cast_precision_loss, reason = "at most a hundred replies")]
fn choose(n: usize, k: usize) -> f64 {
    if k > n {
        return 0.0;
    }
    (0..k).map(|i| (n - i) as f64 / (i + 1) as f64).product()
}
