//! Derives from the tests of an agent's last steps what the next step does; all comes from the log, so a restart
//! changes nothing.

use std::{collections::BTreeSet, time::Duration};

use metaclaw_chat::{TurnId, whole_ms};
use metaclaw_turns::{Step, StepOutcome};
use serde::Deserialize as _;
use serde_json::Value;

use super::report::GateReport;

/// After this many declined steps in a row, their samples are set aside.
pub(crate) const IN_A_ROW: usize = 3;
/// After this many accepted steps, the learning rate is full again.
const GOOD: usize = 2;
/// The rate is halved at most this often, because then the samples are the cause.
const MOST_HALVINGS: i32 = 3;
const REST: Duration = Duration::from_secs(24 * 3_600);
/// This many new verdicts end the rest, because there is something new to learn.
const NEW_VERDICTS: u64 = 8;

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Series {
    pub(crate) n_declined: usize,
    n_passed: usize,
    halvings: i32,
    last: Option<LastDeclined>,
    /// The turns of every step that was the third declined in a row; they are not used for training again.
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
}

fn first_failed(gate: &Value) -> Option<String> {
    let report = GateReport::deserialize(gate).ok()?;
    report.failed().next().map(|test| test.name.clone())
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
                    series.declined(LastDeclined {
                        test: first_failed(gate).unwrap_or_else(|| why.clone()),
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
        self.n_declined += 1;
        self.halvings = (self.halvings + 1).min(MOST_HALVINGS);
        if self.n_declined.is_multiple_of(IN_A_ROW) {
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

    /// Returns the step whose samples have to be set aside: the third declined in a row.
    pub(crate) fn given_up(&self) -> Option<&LastDeclined> {
        let is_given_up = self.n_declined.is_multiple_of(IN_A_ROW);
        self.last_declined().filter(|_| is_given_up)
    }

    /// Returns until when, in Unix milliseconds, no step is made, or `None` if a step may be made now. `n_judged` is
    /// the number of verdicts so far.
    pub(crate) fn rests_until(&self, now_ms: u64, n_judged: u64) -> Option<u64> {
        let given_up = self.given_up()?;
        let rest = whole_ms(REST);
        let until = given_up.at_ms.saturating_add(rest);
        // A clock that was ahead may not make the rest longer.
        let was_ahead = now_ms.saturating_add(rest) < given_up.at_ms;
        let is_over = now_ms >= until
            || was_ahead
            || n_judged >= given_up.n_judged.saturating_add(NEW_VERDICTS);
        (!is_over).then_some(until)
    }
}

#[cfg(test)]
mod tests {
    use metaclaw_chat::AgentId;
    use metaclaw_turns::NewStep;

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
    fn after_three_in_a_row_an_agent_rests_for_a_day_or_eight_verdicts() {
        for steps in ["", "-", "--", "--+-", "----", "---+"] {
            let series = series(steps);
            assert_eq!(
                (series.given_up(), series.rests_until(9, 10)),
                (None, None),
                "{steps}"
            );
        }
        for (steps, last) in [("---", 3), ("+-.--", 5), ("------", 6)] {
            let series = series(steps);
            assert_eq!(series.given_up().unwrap().adapter, format!("a-{last}"));
            let until = last + 24 * 3_600_000;
            assert_eq!(series.rests_until(9, 17), Some(until), "{steps}");
            assert_eq!(series.rests_until(until, 10), None, "a day later");
            assert_eq!(series.rests_until(9, 18), None, "with 8 verdicts more");
        }
        let day = 24 * 3_600_000;
        for ahead in [day + 3, 40 * day, 40 * 365 * day] {
            let mut series = series("---");
            series.last.as_mut().unwrap().at_ms = ahead;
            assert_eq!(
                series.rests_until(2, 10),
                None,
                "the clock was ahead by {ahead}"
            );
        }
    }

    #[test]
    fn the_turns_of_each_third_in_a_row_stay_set_aside() {
        for (steps, set_aside) in [
            ("--", &[][..]),
            ("--+-", &[]),
            ("---", &[3]),
            ("---+", &[3]),
            ("---+---", &[3, 7]),
            ("------", &[3, 6]),
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
