//! What is in the weights that a step starts from: how often each turn was used behind it.

use std::collections::{BTreeMap, BTreeSet};

use metaclaw_trainer_api::CheckpointName;
use metaclaw_turns::{Step, Turn, Use};

use super::resume::{ResumePoint, trained_as};

/// The steps that led to where the next one starts.
///
/// Uses are counted along it and nowhere else: what a step trained whose adapter never came to serve is not in the
/// weights, so its turns may be tried again from where it started. What the owner went back behind is not in them
/// either, and stays out: the same turns would teach the same again.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ancestry {
    /// Lineage and number of each.
    steps: BTreeSet<(String, u64)>,
    /// Those that were taken before the owner last went back, and are not behind the weights.
    undone: BTreeSet<(String, u64)>,
}

// === impl Ancestry ===

impl Ancestry {
    /// By an agent's steps in the log.
    pub(crate) fn of(steps: &[Step], point: &ResumePoint) -> Self {
        let trained = steps
            .iter()
            .filter_map(|step| Some((trained_as(step)?, step)));
        let trained: BTreeMap<&str, &Step> = trained.collect();
        let mut ancestry = Self::default();
        let mut chosen_ms = point.choice_ms;
        let mut at = point.checkpoint.as_ref().map(CheckpointName::as_str);
        while let Some(step) = at.and_then(|name| trained.get(name)) {
            if !ancestry.steps.insert(key(step)) {
                // Parents are older than their children; what is written otherwise ends here.
                break;
            }
            chosen_ms = chosen_ms.max(step.begun.choice_ms);
            at = step.begun.parent.as_deref();
        }
        let is_undone = |step: &&&Step| {
            chosen_ms.is_some_and(|ms| step.taken_ms < ms) && !ancestry.steps.contains(&key(step))
        };
        ancestry.undone = trained
            .values()
            .filter(is_undone)
            .map(|it| key(it))
            .collect();
        ancestry
    }

    /// Whether a step is behind the weights.
    pub(crate) fn has_step(&self, step: &Step) -> bool {
        self.steps.contains(&key(step))
    }

    /// How often a turn was used in the weights.
    pub(crate) fn n_uses(&self, turn: &Turn) -> usize {
        turn.uses.iter().filter(|it| has(&self.steps, it)).count()
    }

    /// Whether the owner went back behind every use of it: what stands in the weights that were chosen may be used again.
    pub(crate) fn is_undone(&self, turn: &Turn) -> bool {
        self.n_uses(turn) == 0 && turn.uses.iter().any(|it| has(&self.undone, it))
    }

    /// How far each lineage but this one is behind the weights.
    pub(crate) fn others(&self, lineage: &str) -> Vec<Use> {
        let mut last: BTreeMap<&str, u64> = BTreeMap::new();
        for (of, n) in self.steps.iter().filter(|(of, _)| of != lineage) {
            // In order.
            last.insert(of, *n);
        }
        let used = |(lineage, n): (&str, u64)| Use {
            lineage: lineage.to_owned(),
            n,
        };
        last.into_iter().map(used).collect()
    }
}

fn has(steps: &BTreeSet<(String, u64)>, used: &Use) -> bool {
    steps.contains(&(used.lineage.clone(), used.n))
}

fn key(step: &Step) -> (String, u64) {
    (step.begun.lineage.clone(), step.begun.n)
}

#[cfg(test)]
mod tests {
    use metaclaw_chat::AgentId;
    use metaclaw_turns::{NewStep, StepOutcome};

    use super::*;

    /// A step that was made: lineage, number, checkpoint that it started from, when, when the owner chose that.
    fn step(
        lineage: &str,
        n: u64,
        parent: Option<&str>,
        taken_ms: u64,
        choice: Option<u64>,
    ) -> Step {
        Step {
            begun: NewStep {
                agent: AgentId::default_agent(),
                lineage: lineage.to_owned(),
                n,
                attempt: 0,
                turns: Vec::new(),
                max_uses: 1,
                ancestors: Vec::new(),
                parent: parent.map(str::to_owned),
                hash: String::new(),
                choice_ms: choice,
            },
            taken_ms,
            taken_back: None,
            outcome: Some(StepOutcome::Trained {
                adapter: format!("{lineage}-{n}"),
                checkpoint: format!("{lineage}-{n}"),
                gate: None,
            }),
        }
    }

    fn at(lineage: &str, checkpoint: &str, choice_ms: Option<u64>) -> ResumePoint {
        ResumePoint {
            lineage: lineage.to_owned(),
            n: 0,
            steps: 0,
            checkpoint: Some(checkpoint.parse().unwrap()),
            choice_ms,
        }
    }

    fn used(lineage: &str, n: u64) -> Use {
        Use {
            lineage: lineage.to_owned(),
            n,
        }
    }

    #[test]
    fn it_goes_through_the_lineages_that_a_step_started_from() {
        let steps = [
            step("a", 1, None, 1, None),
            step("a", 2, Some("a-1"), 2, None),
            step("a", 3, Some("a-2"), 3, None),
            step("b", 1, Some("a-2"), 4, None),
        ];
        let ancestry = Ancestry::of(&steps, &at("c", "b-1", None));
        assert_eq!(ancestry.others("c"), [used("a", 2), used("b", 1)]);
        assert_eq!(ancestry.others("b"), [used("a", 2)]);
        assert!(!has(&ancestry.steps, &used("a", 3)), "it did not serve");
        assert!(ancestry.undone.is_empty(), "and nobody went back");
    }

    #[test]
    fn what_the_owner_went_back_behind_stays_undone() {
        let steps = [
            step("a", 1, None, 1, None),
            step("a", 2, Some("a-1"), 2, None),
            step("b", 1, Some("a-1"), 5, Some(4)),
            step("b", 2, Some("b-1"), 6, None),
        ];
        // While the choice stands, and after a step has gone on from it.
        for point in [at("b", "a-1", Some(4)), at("b", "b-1", None)] {
            let ancestry = Ancestry::of(&steps[..3], &point);
            assert!(has(&ancestry.undone, &used("a", 2)), "{point:?}");
            assert!(!has(&ancestry.undone, &used("a", 1)), "{point:?}");
        }
        // A step after the choice that did not come to serve is no choice of the owner's.
        let ancestry = Ancestry::of(&steps, &at("c", "b-1", None));
        assert!(!has(&ancestry.undone, &used("b", 2)));
    }
}
