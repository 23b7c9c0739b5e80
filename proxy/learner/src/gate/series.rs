//! Derives from the tests of an agent's last steps what the next step does; all comes from the log, so a restart
//! changes nothing.

use std::{collections::BTreeSet, time::Duration};

use metaclaw_chat::{TurnId, whole_ms};
use metaclaw_turns::{Step, StepOutcome};
use serde::Deserialize as _;

use super::report::GateReport;

/// A batch is tried twice, the second time at half the rate. Then its samples are set aside.
const TRIES: usize = 2;
/// After this many accepted steps, the learning rate is full again.
const GOOD: usize = 2;
/// The rate is halved at most this often, because then the samples are the cause.
const MOST_HALVINGS: i32 = 3;
const REST: Duration = Duration::from_secs(24 * 3_600);
/// This many new verdicts end the first rest, because there is something new to learn. Each further rest is twice as long:
/// a model that cannot keep a wish would else be taught it for ever.
const NEW_VERDICTS: u64 = 8;
const MOST_DOUBLINGS: usize = 3;

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Series {
    pub(crate) n_declined: usize,
    n_passed: usize,
    halvings: i32,
    last: Option<LastDeclined>,
    is_given_up: bool,
    /// The turns of every step that was given up; they are not used for training again.
    pub(crate) set_aside: BTreeSet<TurnId>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LastDeclined {
    pub(crate) turns: Vec<TurnId>,
    pub(crate) adapter: String,
    pub(crate) test: String,
    pub(crate) why: String,
    pub(crate) at_ms: u64,
    n_judged: u64,
    /// The ids of the wishes in force at that time, or `None` if they are not known.
    wishes: Option<Vec<String>>,
}

/// How long no step is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rest {
    /// In Unix milliseconds.
    pub(crate) until_ms: u64,
    /// So many more verdicts end it as well.
    pub(crate) n_verdicts: u64,
}

// === impl Series ===

impl Series {
    pub(crate) fn from_steps(steps: &[Step]) -> Self {
        let mut steps: Vec<&Step> = steps.iter().collect();
        steps.sort_by_key(|step| step.taken_ms);
        let mut series = Self::default();
        for step in steps {
            match &step.outcome {
                Some(StepOutcome::Trained { .. }) => series.passed(),
                Some(StepOutcome::Declined {
                    adapter,
                    why,
                    gate,
                    at_ms,
                    n_judged,
                    ..
                }) => {
                    let report = GateReport::deserialize(gate).unwrap_or_default();
                    let test = report.failed().next().map(|test| test.name.clone());
                    series.declined(LastDeclined {
                        test: test.unwrap_or_else(|| why.clone()),
                        wishes: report.wishes,
                        turns: step.begun.turns.clone(),
                        adapter: adapter.clone(),
                        why: why.clone(),
                        at_ms: *at_ms,
                        n_judged: *n_judged,
                    });
                }
                // These steps were not tested.
                Some(StepOutcome::Released { .. }) | None => {}
            }
        }
        series
    }

    fn passed(&mut self) {
        self.n_declined = 0;
        self.n_passed += 1;
        if self.n_passed >= GOOD {
            self.halvings = 0;
        }
    }

    fn declined(&mut self, last: LastDeclined) {
        self.n_passed = 0;
        let before = self.last.as_ref().and_then(|last| last.wishes.as_ref());
        let both = before.zip(last.wishes.as_ref());
        // Another list of wishes is tried from the beginning.
        let is_other = both.is_some_and(|(before, own)| before != own);
        self.n_declined = if is_other { 1 } else { self.n_declined + 1 };
        // At the lowest rate, the same step would be made again.
        self.is_given_up = self.n_declined >= TRIES || self.halvings == MOST_HALVINGS;
        self.halvings = (self.halvings + 1).min(MOST_HALVINGS);
        if self.is_given_up {
            self.set_aside.extend(&last.turns);
        }
        self.last = Some(last);
    }

    /// Returns the factor of the learning rate: each declined step halves it, and after two accepted steps it is 1
    /// again.
    pub(crate) fn rate_factor(&self) -> f64 {
        0.5_f64.powi(self.halvings)
    }

    /// Returns the last declined step, if none was accepted since.
    pub(crate) fn last_declined(&self) -> Option<&LastDeclined> {
        self.last.as_ref().filter(|_| self.n_declined > 0)
    }

    /// Returns the last step if its samples have to be set aside: no other rate is left to try them at.
    pub(crate) fn given_up(&self) -> Option<&LastDeclined> {
        self.last_declined().filter(|_| self.is_given_up)
    }

    /// Returns how long no step is made, or `None` if a step may be made now. `n_judged` is the number of verdicts so
    /// far, and `wishes` the ids of the wishes in force: others than those of the last step end the rest.
    pub(crate) fn rest(&self, now_ms: u64, n_judged: u64, wishes: &[String]) -> Option<Rest> {
        let given_up = self.given_up()?;
        let doublings = self.n_declined.saturating_sub(TRIES).min(MOST_DOUBLINGS);
        let rest = whole_ms(REST) << doublings;
        let until_ms = given_up.at_ms.saturating_add(rest);
        let enough = given_up.n_judged.saturating_add(NEW_VERDICTS << doublings);
        // A clock that was ahead may not make the rest longer.
        let was_ahead = now_ms.saturating_add(rest) < given_up.at_ms;
        let is_other = given_up.wishes.as_deref().is_some_and(|own| own != wishes);
        let is_over = now_ms >= until_ms || was_ahead || n_judged >= enough || is_other;
        (!is_over).then_some(Rest {
            until_ms,
            n_verdicts: enough.saturating_sub(n_judged),
        })
    }
}

#[cfg(test)]
mod tests {
    use metaclaw_chat::AgentId;
    use metaclaw_turns::NewStep;
    use serde_json::Value;

    use super::*;

    /// Builds a series of accepted (`+`), declined (`-`) and released (`.`) steps, one each millisecond.
    fn series(steps: &str) -> Series {
        let step = |(at, what): (usize, char)| {
            let n = at as u64 + 1;
            let outcome = match what {
                '+' => StepOutcome::Trained {
                    adapter: "a".to_owned(),
                    checkpoint: "a".to_owned(),
                    gate: None,
                },
                '-' => StepOutcome::Declined {
                    adapter: format!("a-{n}"),
                    checkpoint: "a".to_owned(),
                    why: "relevance".to_owned(),
                    gate: Value::Null,
                    at_ms: n,
                    n_judged: 10,
                },
                _ => StepOutcome::Released {
                    why: "x".to_owned(),
                },
            };
            Step {
                begun: NewStep {
                    agent: AgentId::default_agent(),
                    lineage: "l".to_owned(),
                    n,
                    attempt: 0,
                    turns: vec![TurnId { session: n, seq: 0 }],
                    max_uses: 1,
                    ancestors: Vec::new(),
                    parent: None,
                    hash: String::new(),
                    choice_ms: None,
                },
                taken_ms: n,
                outcome: Some(outcome),
                taken_back: None,
            }
        };
        let mut steps: Vec<Step> = steps.chars().enumerate().map(step).collect();
        steps.reverse();
        Series::from_steps(&steps)
    }

    #[test]
    fn the_rate_is_halved_by_each_that_is_declined_and_full_after_two_that_pass() {
        for (steps, factor) in [
            ("", 1.0),
            ("++", 1.0),
            ("-", 0.5),
            ("--", 0.25),
            ("-.-", 0.25),
            ("-----", 0.125),
            ("-+", 0.5),
            ("-+-", 0.25),
            ("--++", 1.0),
            ("--++-", 0.5),
        ] {
            let is = series(steps).rate_factor();
            assert!((is - factor).abs() < 1e-9, "{steps}: {is}");
        }
    }

    #[test]
    fn what_no_rate_is_left_for_makes_an_agent_rest_twice_as_long_each_time() {
        let none: &[String] = &[];
        for steps in ["", "-", "--+-", "--+", "+-", "+-++-"] {
            let series = series(steps);
            assert_eq!(
                (series.given_up(), series.rest(9, 10, none)),
                (None, None),
                "{steps}"
            );
        }
        let day = 24 * 3_600_000;
        for (steps, last, times) in [
            ("--", 2, 1),
            ("+-.-", 4, 1),
            ("---", 3, 2),
            ("----", 4, 4),
            ("-----", 5, 8),
            ("---------", 9, 8),
            // The rate is at its lowest already: the same step would be made again.
            ("---+-", 5, 1),
        ] {
            let series = series(steps);
            assert_eq!(series.given_up().unwrap().adapter, format!("a-{last}"));
            let (until_ms, n_verdicts) = (last + times * day, 8 * times);
            let rest = |n_verdicts| {
                Some(Rest {
                    until_ms,
                    n_verdicts,
                })
            };
            assert_eq!(series.rest(9, 10, none), rest(n_verdicts), "{steps}");
            assert_eq!(series.rest(9, 9 + n_verdicts, none), rest(1), "{steps}");
            assert_eq!(series.rest(9, 10 + n_verdicts, none), None, "{steps}");
            assert_eq!(series.rest(until_ms, 10, none), None, "days later");
        }
        for ahead in [day + 3, 40 * day, 40 * 365 * day] {
            let mut series = series("--");
            series.last.as_mut().unwrap().at_ms = ahead;
            assert_eq!(
                series.rest(2, 10, none),
                None,
                "the clock was ahead by {ahead}"
            );
        }
    }

    #[test]
    fn another_wish_ends_the_rest_and_is_tried_from_the_beginning() {
        let wishes = |wishes: &[&str]| wishes.iter().map(|&w| w.to_owned()).collect::<Vec<_>>();
        let (hello, terse) = (wishes(&["hello"]), wishes(&["terse"]));
        let mut series = series("---");
        let of = |series: &Series, wishes: &[String]| {
            let last = series.last.clone().unwrap();
            let wishes = Some(wishes.to_vec());
            LastDeclined { wishes, ..last }
        };
        assert!(series.rest(9, 10, &terse).is_some(), "nobody knows which");
        series.last = Some(of(&series, &hello));
        assert!(series.rest(9, 10, &hello).is_some());
        assert_eq!(series.rest(9, 10, &terse), None);
        series.halvings = 0;
        series.declined(of(&series, &terse));
        assert_eq!((series.n_declined, series.given_up()), (1, None));
    }

    #[test]
    fn the_turns_of_each_that_was_given_up_stay_set_aside() {
        for (steps, set_aside) in [
            ("-", &[][..]),
            ("-+-", &[]),
            ("--", &[2]),
            ("--+", &[2]),
            ("--+--", &[2, 5]),
            ("----", &[2, 3, 4]),
        ] {
            let turns = series(steps).set_aside;
            let sessions: Vec<u64> = turns.iter().map(|id| id.session).collect();
            assert_eq!(sessions, set_aside, "{steps}");
        }
    }

    #[test]
    fn what_was_declined_is_told_until_one_passes() {
        assert_eq!(series("-").last_declined().unwrap().why, "relevance");
        assert_eq!(series("-+").last_declined(), None);
        assert_eq!(series("").last_declined(), None);
    }
}
