//! Lines of checkpoints: what a step continues, and what it is called.
//!
//! A lineage is an agent's row of checkpoints 1, 2, 3, … in which no turn stands twice. The training
//! server's checkpoints are the truth about it; the log says which lineage is the agent's.

use std::hash::{BuildHasher, Hasher, RandomState};

use metaclaw_chat::{AgentId, TurnId};
use metaclaw_trainer_api::{AdapterName, CheckpointName, NameError, wire::CheckpointInfo};
use metaclaw_turns::{Choice, Step, StepOutcome};
use serde::{Deserialize, Serialize};

/// Hex digits of a lineage.
const DIGITS: usize = 8;

/// What a checkpoint says about itself: written with it, kept verbatim by the server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    pub(crate) agent: AgentId,
    pub(crate) lineage: String,
    pub(crate) n: u64,
    pub(crate) turns: Vec<TurnId>,
    /// Of everything that the step was made of: the same hash, the same step.
    pub(crate) hash: String,
    pub(crate) parent: Option<CheckpointName>,
    /// What it is an adapter of; another shape cannot continue it.
    pub(crate) shape: Shape,
    /// What the step measured.
    #[serde(default)]
    pub(crate) numbers: Numbers,
}

/// What an adapter is of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Shape {
    /// The base model, as the trainer names it beside what it samples.
    pub(crate) base: String,
    pub(crate) rank: u32,
    pub(crate) alpha: f64,
    pub(crate) targets: Vec<String>,
}

/// What a step measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Numbers {
    /// Sum of the losses of its forward_backward calls.
    pub loss: f64,
    /// Global 2-norm of the gradient before clipping.
    pub grad_norm: f64,
    /// The learning rate.
    pub learning_rate: f64,
}

/// The head of an agent's lineage: what its next step continues.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Head {
    pub(crate) lineage: String,
    /// Steps that it has.
    pub(crate) n: u64,
    /// The checkpoint to start from; none is a fresh adapter.
    pub(crate) checkpoint: Option<CheckpointName>,
    /// When the owner chose to start from there; none where the lineage goes on by itself.
    pub(crate) choice_ms: Option<u64>,
}

/// A checkpoint with what it says about itself.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Known {
    pub(crate) name: CheckpointName,
    pub(crate) manifest: Manifest,
}

/// The checkpoints of ours among a server's.
pub(crate) fn known(checkpoints: Vec<CheckpointInfo>) -> Vec<Known> {
    let read = |info: CheckpointInfo| {
        let manifest = serde_json::from_value(info.manifest).ok()?;
        Some(Known {
            name: info.name,
            manifest,
        })
    };
    checkpoints.into_iter().filter_map(read).collect()
}

/// The name of an agent's `n`th adapter in a lineage; its checkpoint has the same.
///
/// An agent's name is made of the characters that such a name may have, and fits with room to spare.
pub(crate) fn name(agent: &AgentId, lineage: &str, n: u64) -> String {
    format!("{agent}-{lineage}-{n:06}")
}

/// [`name`] as the server's two kinds of name.
///
/// # Errors
/// [`NameError`] for a lineage that was not made here.
pub(crate) fn names(
    agent: &AgentId,
    lineage: &str,
    n: u64,
) -> Result<(AdapterName, CheckpointName), NameError> {
    let name = name(agent, lineage, n);
    Ok((name.parse()?, name.parse()?))
}

// === impl Head ===

impl Head {
    /// A fresh lineage that starts from a checkpoint of another, or from nothing.
    pub(crate) fn fresh(checkpoint: Option<CheckpointName>) -> Self {
        // Random keys are what std has of randomness; two lineages of one agent must differ, no more.
        let random = RandomState::new().build_hasher().finish();
        let lineage = format!("{random:016x}")[..DIGITS].to_owned();
        Self {
            lineage,
            n: 0,
            checkpoint,
            choice_ms: None,
        }
    }

    /// A fresh lineage from the adapter that the owner chose: its checkpoint has the same name. Where the server
    /// lists its checkpoints (`known`) and has none of that name and shape, from nothing. Turns that later steps
    /// of the old lineage took stay trained: what went too far is not learned again.
    pub(crate) fn chosen(choice: &Choice, known: Option<&[Known]>, shape: &Shape) -> Self {
        let name = choice.adapter.as_ref().and_then(|it| it.parse().ok());
        let is_there = |name: &CheckpointName| {
            known.is_none_or(|known| {
                let mut known = known.iter();
                known.any(|it| it.name == *name && it.manifest.shape == *shape)
            })
        };
        if let Some(name) = name.as_ref().filter(|name| !is_there(name)) {
            tracing::warn!(adapter = %name, "there is no checkpoint of the adapter that was chosen: the next step starts from the base model");
        }
        Self {
            choice_ms: Some(choice.at_ms),
            ..Self::fresh(name.filter(is_there))
        }
    }

    /// What an agent's next step continues, by its steps in the log and the server's checkpoints.
    ///
    /// The lineage of its newest step, if log and checkpoints agree how far it came and the shape is still the
    /// same. Where they differ, a fresh one starts from the newest checkpoint of the old that the log knows as
    /// trained: the turns of a later one are free, and would be learned twice. Where the shape has changed, from
    /// nothing.
    pub(crate) fn resume(steps: &[Step], checkpoints: &[Known], shape: &Shape) -> Self {
        let Some(newest) = steps.iter().max_by_key(|step| step.taken_ms) else {
            return Self::fresh(None);
        };
        let trained = steps
            .iter()
            .filter(|step| step.begun.lineage == newest.begun.lineage && is_trained(step));
        let n_trained = trained.map(|step| step.begun.n).max().unwrap_or(0);
        let of_line = |known: &&Known| {
            known.manifest.agent == newest.begun.agent
                && known.manifest.lineage == newest.begun.lineage
        };
        let line: Vec<&Known> = checkpoints.iter().filter(of_line).collect();
        if line.iter().any(|known| known.manifest.shape != *shape) {
            return Self::fresh(None);
        }
        let (known, ahead): (Vec<&Known>, Vec<&Known>) =
            line.into_iter().partition(|it| it.manifest.n <= n_trained);
        let last = known.into_iter().max_by_key(|known| known.manifest.n);
        let has_all = last.map_or(0, |last| last.manifest.n) == n_trained;
        // Before its first step a lineage starts where that step was to start.
        let first = || {
            checkpoints
                .iter()
                .find(|known| known.is_start(newest, shape))
        };
        let last = last.or_else(|| first().filter(|_| n_trained == 0));
        let checkpoint = last.map(|last| last.name.clone());
        if !has_all || !ahead.is_empty() {
            return Self::fresh(checkpoint);
        }
        Self {
            lineage: newest.begun.lineage.clone(),
            n: n_trained,
            checkpoint,
            choice_ms: None,
        }
    }

    /// The same by the log alone, for a server that cannot list its checkpoints.
    pub(crate) fn by_log(steps: &[Step]) -> Self {
        let trained = steps.iter().filter(|step| is_trained(step));
        let Some(last) = trained.max_by_key(|step| (step.taken_ms, step.begun.n)) else {
            return Self::fresh(None);
        };
        let checkpoint = name(&last.begun.agent, &last.begun.lineage, last.begun.n)
            .parse()
            .ok();
        Self {
            lineage: last.begun.lineage.clone(),
            n: last.begun.n,
            checkpoint,
            choice_ms: None,
        }
    }

    /// The seed of the first weights: the same for every attempt at the first step.
    pub(crate) fn seed(&self) -> u64 {
        u64::from_str_radix(&self.lineage, 16).unwrap_or(0)
    }
}

// === impl Known ===

impl Known {
    /// Whether a step started here, and one of this shape can.
    fn is_start(&self, step: &Step, shape: &Shape) -> bool {
        step.begun.parent.as_deref() == Some(self.name.as_str()) && self.manifest.shape == *shape
    }
}

fn is_trained(step: &Step) -> bool {
    matches!(step.outcome, Some(StepOutcome::Trained { .. }))
}

#[cfg(test)]
mod tests {
    use metaclaw_turns::NewStep;

    use super::*;

    fn shape() -> Shape {
        Shape {
            base: "b".to_owned(),
            rank: 16,
            alpha: 32.0,
            targets: Vec::new(),
        }
    }

    fn step(lineage: &str, n: u64, taken_ms: u64, trained: bool) -> Step {
        let checkpoint = name(&AgentId::default_agent(), lineage, n);
        let outcome = if trained {
            StepOutcome::Trained {
                adapter: checkpoint.clone(),
                checkpoint,
            }
        } else {
            StepOutcome::Released {
                why: "x".to_owned(),
            }
        };
        Step {
            begun: NewStep {
                agent: AgentId::default_agent(),
                lineage: lineage.to_owned(),
                n,
                attempt: 0,
                turns: Vec::new(),
                max_uses: 1,
                parent: None,
                hash: "h".to_owned(),
                choice_ms: None,
            },
            taken_ms,
            outcome: Some(outcome),
        }
    }

    fn checkpoint(lineage: &str, n: u64) -> Known {
        let agent = AgentId::default_agent();
        let (_, name) = names(&agent, lineage, n).unwrap();
        let manifest = Manifest {
            agent,
            lineage: lineage.to_owned(),
            n,
            turns: Vec::new(),
            hash: "h".to_owned(),
            parent: None,
            shape: shape(),
            numbers: Numbers::default(),
        };
        Known { name, manifest }
    }

    #[test]
    fn a_lineage_goes_on_where_log_and_checkpoints_agree() {
        let steps = [
            step("0000000a", 1, 1, true),
            step("0000000b", 1, 2, true),
            step("0000000b", 2, 3, false),
        ];
        let checkpoints = [checkpoint("0000000a", 9), checkpoint("0000000b", 1)];
        let head = Head::resume(&steps, &checkpoints, &shape());
        assert_eq!((head.lineage.as_str(), head.n), ("0000000b", 1));
        assert_eq!(
            head.checkpoint.unwrap().as_str(),
            "_default-0000000b-000001"
        );
        let first = Head::resume(&[step("0000000c", 1, 1, false)], &[], &shape());
        assert_eq!(
            (first.lineage.as_str(), first.n, first.checkpoint),
            ("0000000c", 0, None)
        );
    }

    #[test]
    fn where_they_differ_a_fresh_one_starts_from_the_newest_checkpoint() {
        let steps = [step("0000000a", 1, 1, true), step("0000000a", 2, 2, true)];
        let behind = Head::resume(&steps, &[checkpoint("0000000a", 1)], &shape());
        assert_eq!(behind.n, 0);
        assert_ne!(behind.lineage, "0000000a");
        assert_eq!(
            behind.checkpoint.unwrap().as_str(),
            "_default-0000000a-000001"
        );
        assert_eq!(Head::resume(&steps, &[], &shape()).checkpoint, None);
        let ahead = Head::resume(&steps, &[checkpoint("0000000a", 3)], &shape());
        assert_ne!(ahead.lineage, "0000000a");
    }

    #[test]
    fn turns_that_the_log_calls_free_are_not_in_the_weights_that_will_learn_them() {
        // A save that nobody waited for any more came late; or the log lost its end.
        let late = [1, 2, 3].map(|n| checkpoint("0000000a", n));
        let steps = [
            step("0000000a", 1, 1, true),
            step("0000000a", 2, 2, true),
            step("0000000a", 3, 3, false),
        ];
        let head = Head::resume(&steps, &late, &shape());
        assert_ne!(head.lineage, "0000000a", "its third checkpoint is taken");
        assert_eq!(head.checkpoint.as_ref(), Some(&late[1].name));
        let mut first = step("0000000a", 1, 1, false);
        let before = checkpoint("00000009", 4);
        first.begun.parent = Some(before.name.to_string());
        let listed = [before, late[0].clone()];
        let head = Head::resume(&[first.clone()], &listed, &shape());
        assert_ne!(head.lineage, "0000000a");
        assert_eq!(head.checkpoint.as_ref(), Some(&listed[0].name));
        // One that is gone, or of another shape, cannot be started from.
        let first = [first];
        assert_eq!(Head::resume(&first, &[], &shape()).checkpoint, None);
        let other = Shape { rank: 8, ..shape() };
        assert_eq!(Head::resume(&first, &listed[..1], &other).checkpoint, None);
    }

    #[test]
    fn what_the_owner_chose_is_where_a_fresh_lineage_starts() {
        let known = [1, 2].map(|n| checkpoint("0000000a", n));
        let chosen = |adapter: Option<&str>, known: Option<&[Known]>, shape: &Shape| {
            let adapter = adapter.map(str::to_owned);
            let choice = Choice { at_ms: 7, adapter };
            let head = Head::chosen(&choice, known, shape);
            assert_eq!((head.n, head.choice_ms), (0, Some(7)));
            assert_ne!(head.lineage, "0000000a");
            head.checkpoint.map(|name| name.to_string())
        };
        let first = Some("_default-0000000a-000001");
        assert_eq!(chosen(first, Some(&known), &shape()).as_deref(), first);
        assert_eq!(chosen(first, None, &shape()).as_deref(), first);
        assert_eq!(chosen(None, Some(&known), &shape()), None);
        // One that is gone, or of another shape, cannot be started from.
        assert_eq!(chosen(first, Some(&known[1..]), &shape()), None);
        let other = Shape { rank: 8, ..shape() };
        assert_eq!(chosen(first, Some(&known), &other), None);
    }

    #[test]
    fn another_shape_starts_from_nothing() {
        let steps = [step("0000000a", 1, 1, true)];
        let other = Shape { rank: 8, ..shape() };
        let head = Head::resume(&steps, &[checkpoint("0000000a", 1)], &other);
        assert_eq!((head.n, head.checkpoint), (0, None));
        assert_ne!(head.lineage, "0000000a");
    }

    #[test]
    fn every_agent_has_names_for_its_adapters() {
        for agent in ["_default", "a.b-c_D", &"x".repeat(64)] {
            let agent: AgentId = agent.parse().unwrap();
            let head = Head::fresh(None);
            let (adapter, checkpoint) = names(&agent, &head.lineage, 12).unwrap();
            assert_eq!(adapter.as_str(), checkpoint.as_str());
            assert!(adapter.as_str().ends_with("-000012"));
        }
    }
}
