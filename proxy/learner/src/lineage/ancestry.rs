//! The uses of turns in the weights that a step starts from.

use std::collections::{BTreeMap, BTreeSet};

use metaclaw_trainer_api::CheckpointName;
use metaclaw_turns::{Step, Turn, Use};

use super::resume::{ResumePoint, trained_as};

/// The steps whose training is in the weights that the next step starts from.
///
/// Uses are counted along these steps only: a step whose adapter never served is not in the weights, so its turns may
/// be used again. Steps that the owner undid are not in the weights either, but their turns are not used again, because
/// they would have the same effect.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ancestry {
    /// The lineage and number of each step.
    steps: BTreeSet<(String, u64)>,
    /// The steps that were made before the owner last chose an earlier adapter, and are not in the weights.
    undone: BTreeSet<(String, u64)>,
}

// === impl Ancestry ===

impl Ancestry {
    /// Builds the ancestry from an agent's steps in the log.
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
                // Parents are older than their children; a record that says otherwise ends the chain here.
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

    /// Returns whether a step is in the weights.
    pub(crate) fn has_step(&self, step: &Step) -> bool {
        self.steps.contains(&key(step))
    }

    /// Returns how often a turn was used in the weights.
    pub(crate) fn n_uses(&self, turn: &Turn) -> usize {
        turn.uses.iter().filter(|it| has(&self.steps, it)).count()
    }

    /// Returns whether the owner undid every use of a turn; a turn in the chosen weights may be used again.
    pub(crate) fn is_undone(&self, turn: &Turn) -> bool {
        self.n_uses(turn) == 0 && turn.uses.iter().any(|it| has(&self.undone, it))
    }

    /// Returns the last number of each other lineage that is in the weights.
    pub(crate) fn others(&self, lineage: &str) -> Vec<Use> {
        let mut last: BTreeMap<&str, u64> = BTreeMap::new();
        for (of, n) in self.steps.iter().filter(|(of, _)| of != lineage) {
            // Returns the steps in order.
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

    /// A completed step: lineage, number, the checkpoint that it started from, and when the owner chose that
    /// checkpoint.
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
        // This holds while the choice is current, and after a step has continued from it.
        for point in [at("b", "a-1", Some(4)), at("b", "b-1", None)] {
            let ancestry = Ancestry::of(&steps[..3], &point);
            assert!(has(&ancestry.undone, &used("a", 2)), "{point:?}");
            assert!(!has(&ancestry.undone, &used("a", 1)), "{point:?}");
        }
        // If a step after the choice never served, that does not count as a choice of the owner's.
        let ancestry = Ancestry::of(&steps, &at("c", "b-1", None));
        assert!(!has(&ancestry.undone, &used("b", 2)));
    }
}
