//! How the owner took the replies of some days, and how turns went with a lesson and without it.

use metaclaw_turns::{DailyCounts, LessonCounts};
use serde::{Deserialize, Serialize};

use crate::shares::{Share, difference};

/// Shares of verdicts are told of so many turns and more.
pub(crate) const COMPLAINTS_IN: u64 = 20;
/// The fewest verdicts with a lesson, and without it, whose shares are compared. With fewer on either side, the 95 %
/// interval of the difference is wider than 25 points to each side, and says nothing of what a lesson may change.
const LEAST_COMPARED: u64 = 30;
/// Verdicts of the turns of a period.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdicts {
    pub good: u64,
    pub unclear: u64,
    pub bad: u64,
    /// Turns whose reply the owner's next words could judge.
    pub followed: u64,
    pub judging: JudgingFigures,
}

/// How complete the verdicts are: whether a model judges, and how many turns still wait.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JudgingFigures {
    /// Whether a model judges what may be a complaint. Rules judge only plain ones.
    pub by_model: bool,
    /// Turns that wait for a verdict now.
    pub waiting: u64,
}

/// Returns the verdicts of the owner's turns.
pub(crate) fn verdicts(counts: &DailyCounts, judging: JudgingFigures) -> Verdicts {
    Verdicts {
        good: counts.good,
        unclear: counts.unclear,
        bad: counts.bad,
        followed: counts.followed,
        judging,
    }
}

/// Returns the number of an agent's turns of one day whose reply the owner's next words could judge. An earlier version
/// did not count them, or only those after an update; then these are all turns with the owner.
pub(super) fn followed(counts: &DailyCounts) -> u64 {
    if counts.followed < counts.good + counts.unclear + counts.bad {
        counts.turns
    } else {
        counts.followed
    }
}

/// Returns what the verdicts say of a lesson: how turns went with it and without, or how many verdicts there are where
/// they are too few, or where not even half of the turns with it were judged, as where only complaints are.
pub fn effect_line(counts: &LessonCounts) -> String {
    let share = |good, bad| Share {
        n: good,
        of: good + bad,
    };
    let with = share(counts.good, counts.bad);
    let without = share(counts.good_without, counts.bad_without);
    let is_judged = with.of * 2 >= counts.injected;
    let interval = difference(with, without)
        .filter(|_| is_judged && with.of.min(without.of) >= LEAST_COMPARED);
    let (Some(interval), Some(good), Some(good_without)) =
        (interval, with.value(), without.value())
    else {
        return format!("{} good, {} bad", counts.good, counts.bad);
    };
    let says = match (interval.low > 0.0, interval.high < 0.0) {
        (true, _) => "better with it",
        (_, true) => "worse with it",
        _ => "could be chance",
    };
    format!(
        "{:.0} % good of {} with it, {:.0} % of {} without: {} points ({} to {}), {says}",
        good * 100.0,
        with.of,
        good_without * 100.0,
        without.of,
        signed(good - good_without),
        signed(interval.low),
        signed(interval.high)
    )
}

fn signed(share: f64) -> String {
    // Nothing is "+0", whichever side of it.
    format!("{:+.0}", (share * 100.0).round() + 0.0)
}

// === impl JudgingFigures ===

impl JudgingFigures {
    /// Returns those of a day whose verdicts are there.
    pub(crate) fn settled(self) -> Self {
        Self { waiting: 0, ..self }
    }
}

// === impl Verdicts ===

impl Verdicts {
    /// Returns the share of verdicts that are good. `None` below 20 verdicts, and where not all turns are judged.
    pub fn pass_rate(&self) -> Option<Share> {
        let of = self.judged();
        let n = self.good;
        (self.are_of_all() && of >= COMPLAINTS_IN).then_some(Share { n, of })
    }

    /// Returns the share of turns that were followed by a complaint. `None` while verdicts wait, and if no model judges
    /// and nobody complained plainly: then it is not known whether there were none.
    pub fn complaints(&self) -> Option<Share> {
        let JudgingFigures { by_model, waiting } = self.judging;
        let is_known = waiting == 0 && (by_model || self.bad > 0);
        is_known.then_some(Share {
            n: self.bad,
            of: self.answered(),
        })
    }

    pub(crate) fn answered(&self) -> u64 {
        self.followed.max(self.judged())
    }

    /// Returns how the replies were taken, in words, or `None` if nothing was answered.
    pub fn line(&self) -> Option<String> {
        let (good, bad, unclear) = (self.good, self.bad, self.unclear);
        let JudgingFigures { by_model, waiting } = self.judging;
        let of = self.answered();
        let mut line = if of == 0 {
            return None;
        } else if self.are_of_all() {
            let percent = self.pass_rate().and_then(Share::percent);
            let percent = percent.map_or_else(String::new, |percent| format!(" ({percent} %)"));
            format!("{good} good{percent}, {bad} bad, {unclear} unclear")
        } else {
            let complaints = match (bad, by_model) {
                (0, true) if waiting > 0 => String::new(),
                (0, false) => "no plain complaint and ".to_owned(),
                (n, _) => {
                    let plain = if by_model { "" } else { "plain " };
                    let s = if n == 1 { "" } else { "s" };
                    format!("{n} {plain}complaint{s}{} and ", self.rate_text())
                }
            };
            let replies = if of == 1 { "reply" } else { "replies" };
            let others = if by_model {
                ""
            } else {
                "; no model judges other complaints"
            };
            format!("{complaints}{good} thanks in your answers to {of} {replies}{others}")
        };
        if waiting > 0 {
            let s = if waiting == 1 { "s" } else { "" };
            line = format!("{line}; {waiting} wait{s} for a verdict");
        }
        Some(line)
    }

    fn rate_text(&self) -> String {
        let share = self.complaints().filter(|share| share.of >= COMPLAINTS_IN);
        let rate = share.and_then(Share::value);
        let rate =
            rate.map(|rate| format!(" ({:.1} in {COMPLAINTS_IN})", rate * COMPLAINTS_IN as f64));
        rate.unwrap_or_default()
    }

    /// Returns whether at least four of five turns have a verdict. Where only possible complaints and thanks are judged,
    /// the verdicts say nothing of the other turns.
    fn are_of_all(&self) -> bool {
        self.judged() > 0 && self.judged() * 5 >= self.followed * 4
    }

    fn judged(&self) -> u64 {
        self.good + self.unclear + self.bad
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BY_MODEL: JudgingFigures = JudgingFigures {
        by_model: true,
        waiting: 0,
    };

    fn verdicts(good: u64, bad: u64, followed: u64) -> Verdicts {
        let judging = BY_MODEL;
        Verdicts {
            good,
            bad,
            followed,
            judging,
            ..Verdicts::default()
        }
    }

    #[test]
    fn a_share_of_good_verdicts_is_told_only_where_nearly_all_turns_have_one() {
        for (verdicts, line) in [
            (verdicts(0, 0, 0), None),
            (
                verdicts(0, 11, 53),
                Some("11 complaints (4.2 in 20) and 0 thanks in your answers to 53 replies"),
            ),
            (
                verdicts(2, 1, 6),
                Some("1 complaint and 2 thanks in your answers to 6 replies"),
            ),
            (
                verdicts(0, 0, 1),
                Some("0 complaints and 0 thanks in your answers to 1 reply"),
            ),
            (verdicts(0, 1, 1), Some("0 good, 1 bad, 0 unclear")),
            (verdicts(15, 4, 20), Some("15 good, 4 bad, 0 unclear")),
            (
                verdicts(30, 10, 20),
                Some("30 good (75 %), 10 bad, 0 unclear"),
            ),
        ] {
            assert_eq!(verdicts.line().as_deref(), line, "{verdicts:?}");
        }
    }

    #[test]
    fn what_nobody_judges_and_what_waits_is_said_and_is_no_zero() {
        let of = |good, bad, by_model, waiting| {
            let verdicts = Verdicts {
                judging: JudgingFigures { by_model, waiting },
                ..verdicts(good, bad, 40)
            };
            let share = verdicts.complaints().map(|share| share.n);
            (share, verdicts.line().unwrap())
        };
        let thanks = "4 thanks in your answers to 40 replies";
        let no_model = "no model judges other complaints";
        for (found, share, line) in [
            (
                of(4, 0, true, 0),
                Some(0),
                format!("0 complaints (0.0 in 20) and {thanks}"),
            ),
            (
                of(4, 0, true, 6),
                None,
                format!("{thanks}; 6 wait for a verdict"),
            ),
            (
                of(4, 2, true, 1),
                None,
                format!("2 complaints and {thanks}; 1 waits for a verdict"),
            ),
            (
                of(4, 0, false, 0),
                None,
                format!("no plain complaint and {thanks}; {no_model}"),
            ),
            (
                of(4, 2, false, 0),
                Some(2),
                format!("2 plain complaints (1.0 in 20) and {thanks}; {no_model}"),
            ),
        ] {
            assert_eq!(found, (share, line));
        }
    }

    #[test]
    fn days_of_an_earlier_version_count_all_turns_with_the_owner() {
        let counts = |followed, bad| DailyCounts {
            turns: 7,
            followed,
            bad,
            ..DailyCounts::default()
        };
        for (counts, of) in [
            (counts(0, 1), 7),
            (counts(5, 1), 5),
            (counts(2, 5), 7),
            (counts(0, 0), 0),
        ] {
            assert_eq!(followed(&counts), of, "{counts:?}");
        }
    }

    #[test]
    fn a_lesson_is_compared_only_with_verdicts_enough() {
        let counts = |injected, good, bad| LessonCounts {
            injected,
            good,
            bad,
            good_without: 48,
            bad_without: 32,
        };
        for (counts, line) in [
            (
                counts(100, 56, 14),
                "80 % good of 70 with it, 60 % of 80 without: +20 points (+5 to +33), better with it",
            ),
            (
                counts(60, 18, 12),
                "60 % good of 30 with it, 60 % of 80 without: +0 points (-20 to +19), could be chance",
            ),
            (counts(60, 17, 12), "17 good, 12 bad"),
            (counts(200, 56, 14), "56 good, 14 bad"),
            (LessonCounts::default(), "0 good, 0 bad"),
        ] {
            assert_eq!(effect_line(&counts), line, "{counts:?}");
        }
    }
}
