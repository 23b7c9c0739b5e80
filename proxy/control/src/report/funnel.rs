//! The last stage that each turn reached, and one reason: the numbers add up to all turns.

use std::collections::BTreeMap;

use metaclaw_turns::{StreamEnd, TurnKind, TurnState, TurnSummary};

use super::FunnelStage;

/// The stages if weights are trained. The stages if none are trained, which end with the verdict.
const WITH_WEIGHTS: [&str; 7] = [
    "turns",
    "with the owner",
    "complete",
    "with token ids",
    "judged",
    "free for training",
    "trained",
];
const WITHOUT: [&str; 4] = ["turns", "with the owner", "complete", "judged"];

/// Why a turn with a deleted text stays in the stage of the owner's turns.
const GONE: &str = "whose texts are gone: how far they came is not kept";
const ERRANDS: &str = "errands of the client's own";

#[derive(Debug)]
pub(super) struct FunnelTally {
    weights: bool,
    stages: Vec<FunnelStage>,
}

/// Returns the last stage that a turn reached, and why it got no further.
type Fate = (usize, Option<String>);

// === impl FunnelTally ===

impl FunnelTally {
    pub(super) fn new(weights: bool) -> Self {
        let names: &[&str] = if weights { &WITH_WEIGHTS } else { &WITHOUT };
        let stage = |name: &&str| FunnelStage {
            name: (*name).to_owned(),
            n: 0,
            stayed: BTreeMap::new(),
        };
        Self {
            weights,
            stages: names.iter().map(stage).collect(),
        }
    }

    pub(super) fn add(&mut self, turn: &TurnSummary) {
        let (last, why) = if self.weights {
            with_weights(turn)
        } else {
            without(turn)
        };
        self.stay((last, why), 1);
    }

    /// Adds turns with deleted texts: the owner's and errands.
    pub(super) fn add_gone(&mut self, main: u64, side: u64) {
        self.stay((1, Some(GONE.to_owned())), main);
        self.stay((0, Some(ERRANDS.to_owned())), side);
    }

    fn stay(&mut self, (last, why): Fate, n: u64) {
        for stage in &mut self.stages[..=last] {
            stage.n += n;
        }
        if let Some(why) = why.filter(|_| n > 0) {
            *self.stages[last].stayed.entry(why).or_default() += n;
        }
    }

    pub(super) fn stages(self) -> Vec<FunnelStage> {
        self.stages
    }
}

/// Returns what failed in a reply.
pub(super) fn failure(end: StreamEnd) -> Option<String> {
    Some(match end {
        StreamEnd::Complete => return None,
        StreamEnd::Cut => "the upstream's connection broke".to_owned(),
        StreamEnd::ClientGone => "the agent hung up".to_owned(),
        StreamEnd::UpstreamError { status: 200 } => "an error in the reply's stream".to_owned(),
        StreamEnd::UpstreamError { status } => format!("answered with error {status}"),
        StreamEnd::Overflowed => "too large to be kept".to_owned(),
    })
}

/// Returns the reason for turns that cannot be used from the start.
fn early(turn: &TurnSummary) -> Option<Fate> {
    match (turn.kind, failure(turn.end)) {
        (TurnKind::Side, _) => Some((0, Some(ERRANDS.to_owned()))),
        (TurnKind::Main | TurnKind::Rollout, Some(why)) => Some((1, Some(why))),
        (TurnKind::Main | TurnKind::Rollout, None) => None,
    }
}

fn without(turn: &TurnSummary) -> Fate {
    if let Some(fate) = early(turn) {
        return fate;
    }
    match (&turn.score, &turn.state) {
        (Some(_), _) => (3, None),
        (None, TurnState::Spent { why }) => (2, Some(why.clone())),
        (None, _) => (2, Some("no verdict, as nothing would use one".to_owned())),
    }
}

fn with_weights(turn: &TurnSummary) -> Fate {
    if let Some(fate) = early(turn) {
        return fate;
    }
    let stays = |stage: usize, otherwise: &str| match &turn.state {
        TurnState::Spent { why } => (stage, Some(why.clone())),
        TurnState::HeldOut => (stage, Some("kept for measuring".to_owned())),
        _ => (stage, Some(otherwise.to_owned())),
    };
    if !turn.has_ids {
        return stays(2, "without token ids");
    }
    if turn.score.is_none() {
        return stays(3, "no verdict yet");
    }
    match &turn.state {
        TurnState::Spent { .. } | TurnState::HeldOut => stays(4, ""),
        TurnState::Captured | TurnState::Judged => stays(5, "waits for a batch"),
        TurnState::Taken { .. } => stays(5, "in an open step"),
        TurnState::Trained { .. } => (6, None),
    }
}
