//! Where an agent's next step starts.
//!
//! The uses of turns in the weights that a step starts from.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{BuildHasher, Hasher, RandomState},
};

use metaclaw_chat::{AgentId, TurnId};
use metaclaw_trainer_api::{AdapterName, CheckpointName};
use metaclaw_turns::{Choice, Step, StepOutcome, Turn, Use};

use super::manifest::{KnownCheckpoint, Shape, name};

const DIGITS: usize = 8;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ResumePoint {
    pub(crate) lineage: String,
    pub(crate) n: u64,
    /// Optimiser steps behind it, those of the lineages before among them.
    pub(crate) steps: u64,
    /// The checkpoint to start from; none is a fresh adapter.
    pub(crate) checkpoint: Option<CheckpointName>,
    /// When the owner chose to start from there; none where the lineage goes on by itself.
    pub(crate) choice_ms: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct Resumed {
    pub(crate) point: ResumePoint,
    /// Why it is not where the agent's last step ended, if something that was learned is not continued.
    pub(crate) lost: Option<String>,
}

/// An adapter that a step made. Its checkpoint is there, and it serves nobody yet.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Candidate {
    pub(crate) agent: AgentId,
    pub(crate) n: u64,
    pub(crate) turns: Vec<TurnId>,
    pub(crate) adapter: AdapterName,
    pub(crate) checkpoint: CheckpointName,
    pub(crate) point: ResumePoint,
    pub(crate) choice_ms: Option<u64>,
    /// Of its content, where the server says.
    pub(crate) sha256: Option<String>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct WantedStart<'a> {
    pub(crate) shape: &'a Shape,
    pub(crate) unfit: &'a BTreeSet<CheckpointName>,
}

// === impl ResumePoint ===

impl ResumePoint {
    pub(crate) fn from_nothing() -> Self {
        Self::fresh(None)
    }

    fn fresh(checkpoint: Option<&KnownCheckpoint>) -> Self {
        // Random keys are what std has of randomness; two lineages of one agent must differ, no more.
        let random = RandomState::new().build_hasher().finish();
        Self {
            lineage: format!("{random:016x}")[..DIGITS].to_owned(),
            n: 0,
            steps: checkpoint.map_or(0, |known| known.steps),
            checkpoint: checkpoint.map(|known| known.name.clone()),
            choice_ms: None,
        }
    }

    /// The seed of the first weights: the same for every attempt at the first step.
    pub(crate) fn seed(&self) -> u64 {
        u64::from_str_radix(&self.lineage, 16).unwrap_or(0)
    }
}

// === impl Candidate ===

impl Candidate {
    pub(crate) fn from_checkpoint(known: &KnownCheckpoint, adapter: AdapterName) -> Self {
        let manifest = &known.manifest;
        Self {
            agent: manifest.agent.clone(),
            n: manifest.n,
            turns: manifest.turns.clone(),
            adapter,
            checkpoint: known.name.clone(),
            point: ResumePoint {
                lineage: manifest.lineage.clone(),
                n: manifest.n,
                steps: known.steps,
                checkpoint: Some(known.name.clone()),
                choice_ms: None,
            },
            choice_ms: None,
            sha256: known.sha256.clone(),
        }
    }
}

// === impl Resumed ===

impl Resumed {
    /// A fresh lineage from the adapter that the owner chose: its checkpoint has the same name. Where the server
    /// lists its checkpoints (`known`) and has none of that name and shape, from nothing. Turns that later steps
    /// of the old lineage took stay trained: what went too far is not learned again.
    pub(crate) fn chosen(
        choice: &Choice,
        known: Option<&[KnownCheckpoint]>,
        wanted: WantedStart<'_>,
    ) -> Self {
        let mut point = ResumePoint::from_nothing();
        point.choice_ms = Some(choice.at_ms);
        let mut lost = None;
        if let Some(chosen) = &choice.adapter {
            let found = known.and_then(|known| wanted.find(known, chosen));
            point.steps = found.map_or(0, |found| found.steps);
            point.checkpoint = match known {
                Some(_) => found.map(|found| found.name.clone()),
                None => chosen.parse().ok().filter(|n| !wanted.unfit.contains(n)),
            };
            if point.checkpoint.is_none() {
                lost = Some(wanted.why_not(known.unwrap_or_default(), chosen));
            }
        }
        Self { point, lost }
    }

    /// What an agent's next step continues, by its steps in the log and the server's checkpoints.
    ///
    /// The lineage of its newest step, if that was made, its checkpoint is there and is the last one. After a step
    /// that was released, or declined, another lineage starts where that step did: what it asked the server to write is there or may
    /// still come, and names that nobody else has cannot be written over. Only what the log knows as trained is started
    /// from: the turns of other checkpoints are free, and would be learned twice. Where a checkpoint cannot be used,
    /// the one before it is looked at, and where none can be, the next step starts from nothing.
    pub(crate) fn from_checkpoints(
        steps: &[Step],
        checkpoints: &[KnownCheckpoint],
        wanted: WantedStart<'_>,
    ) -> Self {
        let Some(newest) = steps.iter().max_by_key(|step| step.taken_ms) else {
            return Self {
                point: ResumePoint::from_nothing(),
                lost: None,
            };
        };
        let last = last_of(steps, &newest.begun.lineage);
        let end = last.map_or(newest.begun.parent.as_deref(), trained_as);
        let line = CheckpointLine { steps, checkpoints };
        let start = line.usable(end, wanted);
        let lost = end.filter(|end| start.is_none_or(|start| start.name.as_str() != *end));
        let lost = lost.map(|end| wanted.why_not(checkpoints, end));
        let goes_on = lost.is_none() && !line.is_ahead(newest) && trained_as(newest).is_some();
        let point = match start.filter(|_| goes_on) {
            Some(start) => ResumePoint {
                lineage: newest.begun.lineage.clone(),
                n: newest.begun.n,
                steps: start.steps,
                checkpoint: Some(start.name.clone()),
                choice_ms: None,
            },
            None => ResumePoint::fresh(start),
        };
        Self { point, lost }
    }

    /// The same by the log alone, for a server that cannot list its checkpoints.
    pub(crate) fn by_log(steps: &[Step], wanted: WantedStart<'_>) -> Self {
        let trained = steps.iter().filter(|step| trained_as(step).is_some());
        let mut point = ResumePoint::from_nothing();
        let mut lost = None;
        if let Some(last) = trained.max_by_key(|step| (step.taken_ms, step.begun.n)) {
            let begun = &last.begun;
            match name(&begun.agent, &begun.lineage, begun.n).parse::<CheckpointName>() {
                Ok(checkpoint) if !wanted.unfit.contains(&checkpoint) => {
                    point.lineage.clone_from(&begun.lineage);
                    (point.n, point.steps) = (begun.n, begun.n);
                    point.checkpoint = Some(checkpoint);
                }
                Ok(checkpoint) => lost = Some(wanted.why_not(&[], checkpoint.as_str())),
                Err(error) => lost = Some(error.to_string()),
            }
        }
        Self { point, lost }
    }
}

// === impl WantedStart ===

impl WantedStart<'_> {
    fn find<'k>(self, known: &'k [KnownCheckpoint], name: &str) -> Option<&'k KnownCheckpoint> {
        let mut known = known.iter();
        known.find(|known| known.name.as_str() == name && self.takes(known))
    }

    fn takes(self, known: &KnownCheckpoint) -> bool {
        !self.unfit.contains(&known.name) && known.manifest.shape.fits(self.shape)
    }

    fn why_not(self, known: &[KnownCheckpoint], name: &str) -> String {
        match known.iter().find(|c| c.name.as_str() == name) {
            Some(known) if !known.manifest.shape.fits(self.shape) => {
                self.shape.change_from(&known.manifest.shape)
            }
            None if !self.unfit.iter().any(|unfit| unfit.as_str() == name) => {
                format!("the training server has no checkpoint {name}")
            }
            Some(_) | None => format!("the training server cannot use its checkpoint {name}"),
        }
    }
}

struct CheckpointLine<'a> {
    steps: &'a [Step],
    checkpoints: &'a [KnownCheckpoint],
}

// === impl CheckpointLine ===

impl<'a> CheckpointLine<'a> {
    /// The checkpoint of this name or, where it cannot be used, the nearest one before it that can.
    fn usable(&self, end: Option<&'a str>, wanted: WantedStart<'_>) -> Option<&'a KnownCheckpoint> {
        let mut at = end;
        // Parents are older than their children; what is written otherwise ends here.
        for _ in 0..=self.steps.len() {
            let name = at?;
            let step = self
                .steps
                .iter()
                .find(|step| trained_as(step) == Some(name));
            let is_its = |known: &&KnownCheckpoint| {
                step.is_none_or(|step| step.begun.hash == known.manifest.hash)
            };
            if let Some(known) = wanted.find(self.checkpoints, name).filter(is_its) {
                return Some(known);
            }
            let of_log = step.and_then(|step| step.begun.parent.as_deref());
            let listed = self.checkpoints.iter().find(|c| c.name.as_str() == name);
            let listed = listed.and_then(|known| known.manifest.parent.as_ref());
            at = of_log.or_else(|| listed.map(CheckpointName::as_str));
        }
        None
    }

    /// Whether the server has checkpoints of the lineage that the log knows nothing of.
    fn is_ahead(&self, newest: &Step) -> bool {
        let own = &newest.begun;
        let mut ahead = self.checkpoints.iter().map(|known| &known.manifest);
        ahead.any(|o| o.agent == own.agent && o.lineage == own.lineage && o.n > own.n)
    }
}

fn last_of<'a>(steps: &'a [Step], lineage: &str) -> Option<&'a Step> {
    let made = steps
        .iter()
        .filter(|step| step.begun.lineage == lineage && trained_as(step).is_some());
    made.max_by_key(|step| step.begun.n)
}

pub(super) fn trained_as(step: &Step) -> Option<&str> {
    match &step.outcome {
        Some(StepOutcome::Trained { checkpoint, .. }) => Some(checkpoint),
        Some(StepOutcome::Declined { .. } | StepOutcome::Released { .. }) | None => None,
    }
}

/// The steps whose training is in the weights that the next step starts from.
///
/// Uses are counted along these steps only: a step whose adapter never served is not in the weights, so its turns may
/// be used again. Steps that the owner undid are not in the weights either, but their turns are not used again, because
/// they would have the same effect.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ancestry {
    steps: BTreeSet<(String, u64)>,
    /// The steps that were made before the owner last chose an earlier adapter, and are not in the weights.
    undone: BTreeSet<(String, u64)>,
}

// === impl Ancestry ===

impl Ancestry {
    pub(crate) fn new(steps: &[Step], point: &ResumePoint) -> Self {
        let trained: BTreeMap<&str, &Step> = steps
            .iter()
            .filter_map(|step| Some((trained_as(step)?, step)))
            .collect();
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
            .map(|used| key(used))
            .collect();
        ancestry
    }

    pub(crate) fn has_step(&self, step: &Step) -> bool {
        self.steps.contains(&key(step))
    }

    pub(crate) fn n_uses(&self, turn: &Turn) -> usize {
        turn.uses.iter().filter(|u| has(&self.steps, u)).count()
    }

    /// Returns whether the owner undid every use of a turn; a turn in the chosen weights may be used again.
    pub(crate) fn is_undone(&self, turn: &Turn) -> bool {
        self.n_uses(turn) == 0 && turn.uses.iter().any(|used| has(&self.undone, used))
    }

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
mod ancestry_tests {
    use metaclaw_turns::NewStep;

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
        let ancestry = Ancestry::new(&steps, &at("c", "b-1", None));
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
            let ancestry = Ancestry::new(&steps[..3], &point);
            assert!(has(&ancestry.undone, &used("a", 2)), "{point:?}");
            assert!(!has(&ancestry.undone, &used("a", 1)), "{point:?}");
        }
        // If a step after the choice never served, that does not count as a choice of the owner's.
        let ancestry = Ancestry::new(&steps, &at("c", "b-1", None));
        assert!(!has(&ancestry.undone, &used("b", 2)));
    }
}
