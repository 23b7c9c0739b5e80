//! Finds the checkpoint from which an agent's next step starts.

use std::{
    collections::BTreeSet,
    hash::{BuildHasher, Hasher, RandomState},
};

use metaclaw_chat::{AgentId, TurnId};
use metaclaw_trainer_api::{AdapterName, CheckpointName};
use metaclaw_turns::{Choice, Step, StepOutcome};

use super::manifest::{KnownCheckpoint, Shape, name};

/// The number of hex digits of a lineage.
const DIGITS: usize = 8;

/// What an agent's next step continues.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ResumePoint {
    pub(crate) lineage: String,
    /// The number of steps in the lineage.
    pub(crate) n: u64,
    /// The number of optimiser steps before it, those of earlier lineages included.
    pub(crate) steps: u64,
    /// The checkpoint to start from, or `None` for a fresh adapter.
    pub(crate) checkpoint: Option<CheckpointName>,
    /// When the owner chose this checkpoint, or `None` if the lineage continues by itself.
    pub(crate) choice_ms: Option<u64>,
}

/// The result of the search for a checkpoint.
#[derive(Debug)]
pub(crate) struct Resumed {
    pub(crate) point: ResumePoint,
    /// Why the step does not start where the agent's last step ended, if something that was learned is not continued.
    pub(crate) lost: Option<String>,
}

/// What the checkpoint must fit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WantedStart<'a> {
    pub(crate) shape: &'a Shape,
    /// Checkpoints that turned out to be unusable, whatever their manifests say.
    pub(crate) unfit: &'a BTreeSet<CheckpointName>,
}

// === impl ResumePoint ===

impl ResumePoint {
    /// Creates a fresh lineage that starts from nothing.
    pub(crate) fn from_nothing() -> Self {
        Self::fresh(None)
    }

    /// Creates a fresh lineage that starts from a checkpoint of another.
    fn fresh(checkpoint: Option<&KnownCheckpoint>) -> Self {
        // Random hash keys are the only randomness in std, and it is enough if two lineages of one agent differ.
        let random = RandomState::new().build_hasher().finish();
        Self {
            lineage: format!("{random:016x}")[..DIGITS].to_owned(),
            n: 0,
            steps: checkpoint.map_or(0, |known| known.steps),
            checkpoint: checkpoint.map(|known| known.name.clone()),
            choice_ms: None,
        }
    }

    /// Returns the seed of the initial weights: the same for every attempt at the first step.
    pub(crate) fn seed(&self) -> u64 {
        u64::from_str_radix(&self.lineage, 16).unwrap_or(0)
    }
}

// === impl Resumed ===

impl Resumed {
    /// Creates a fresh lineage from the adapter that the owner chose; its checkpoint has the same name. If the server
    /// lists its checkpoints (`known`) and has none of that name and shape, the lineage starts from nothing. Turns of
    /// later steps of the old lineage stay trained, so that the undone training is not repeated.
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
                None => chosen.parse().ok().filter(|it| !wanted.unfit.contains(it)),
            };
            if point.checkpoint.is_none() {
                lost = Some(wanted.why_not(known.unwrap_or_default(), chosen));
            }
        }
        Self { point, lost }
    }

    /// Finds what an agent's next step continues, from its steps in the log and the server's checkpoints.
    ///
    /// Usually this is the lineage of its newest step, if that step was completed, its checkpoint exists and is the
    /// last one. After a step that was released or declined, another lineage starts where that step did, because the
    /// server may still write that step's checkpoint, and a new name cannot be overwritten. A step starts only from a
    /// checkpoint that the log records as trained: the turns of other checkpoints are free, and would be learned twice.
    /// If a checkpoint cannot be used, the one before it is tried; if none can be used, the next step starts from
    /// nothing.
    pub(crate) fn of(
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

    /// Finds the same from the log alone, for a server that cannot list its checkpoints.
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
    /// Returns the checkpoint of this name, if a step of the shape can start from it.
    fn find<'k>(self, known: &'k [KnownCheckpoint], name: &str) -> Option<&'k KnownCheckpoint> {
        let mut known = known.iter();
        known.find(|it| it.name.as_str() == name && self.takes(it))
    }

    fn takes(self, known: &KnownCheckpoint) -> bool {
        !self.unfit.contains(&known.name) && known.manifest.shape.fits(self.shape)
    }

    /// Returns why a checkpoint cannot be used as a start.
    fn why_not(self, known: &[KnownCheckpoint], name: &str) -> String {
        match known.iter().find(|it| it.name.as_str() == name) {
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

/// The records of an agent's steps in the log and at the server.
struct CheckpointLine<'a> {
    steps: &'a [Step],
    checkpoints: &'a [KnownCheckpoint],
}

// === impl CheckpointLine ===

impl<'a> CheckpointLine<'a> {
    /// Returns the checkpoint of this name or, if it cannot be used, the nearest usable one before it.
    fn usable(&self, end: Option<&'a str>, wanted: WantedStart<'_>) -> Option<&'a KnownCheckpoint> {
        let mut at = end;
        // Parents are older than their children; a record that says otherwise ends the chain here.
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
            let listed = self.checkpoints.iter().find(|it| it.name.as_str() == name);
            let listed = listed.and_then(|known| known.manifest.parent.as_ref());
            at = of_log.or_else(|| listed.map(CheckpointName::as_str));
        }
        None
    }

    /// Returns whether the server has checkpoints of the lineage that the log does not know.
    fn is_ahead(&self, newest: &Step) -> bool {
        let own = &newest.begun;
        let mut ahead = self.checkpoints.iter().map(|known| &known.manifest);
        ahead.any(|it| it.agent == own.agent && it.lineage == own.lineage && it.n > own.n)
    }
}

/// Returns the last completed step of a lineage.
fn last_of<'a>(steps: &'a [Step], lineage: &str) -> Option<&'a Step> {
    let made = steps
        .iter()
        .filter(|step| step.begun.lineage == lineage && trained_as(step).is_some());
    made.max_by_key(|step| step.begun.n)
}

/// Returns the checkpoint of a completed step.
pub(super) fn trained_as(step: &Step) -> Option<&str> {
    match &step.outcome {
        Some(StepOutcome::Trained { checkpoint, .. }) => Some(checkpoint),
        Some(StepOutcome::Declined { .. } | StepOutcome::Released { .. }) | None => None,
    }
}

#[cfg(test)]
mod tests;
