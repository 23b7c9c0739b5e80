//! Repeats attempts of a step until one succeeds, or it is known who is at fault.
//!
//! A call that fails twice is halved until one sequence is left. That one is at fault if the server, from where the step
//! starts, can train on something else. Else it is the server, or the weights, and no sample is lost.

use metaclaw_chat::TurnId;
use metaclaw_trainer_api::{BackendError, ErrorCode};

use super::{
    micro_batches::{MicroBatch, cut, halve},
    plan::Plan,
    train::{Attempt, Trained},
};
use crate::{
    sample::ExcludeReason,
    status::{Phase, StatusCell},
    trainer::{Patience, StepFailure, StepStage},
};

/// Failures of passes before a sequence is doubted.
const STRIKES: usize = 2;

#[derive(Debug)]
pub(crate) struct StepRefusal {
    pub(crate) blame: Blame,
    pub(crate) why: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Blame {
    /// The sample of these turns, and why they are set aside.
    Sample {
        turns: Vec<TurnId>,
        why: ExcludeReason,
    },
    /// A sample among several, whose gradients are only known together.
    SomeSample,
    /// The checkpoint that the step starts from: it is refused.
    Parent,
    /// The same: its weights answer what is no number.
    ParentsNumbers,
    /// The same, or the server for now: it fails at loading it.
    ParentOrServer,
    /// The server, or how it is asked.
    Server,
}

/// A sequence that was left after halving.
#[derive(Debug)]
struct Suspect {
    turns: Vec<TurnId>,
    why: ExcludeReason,
    /// Whether it failed at the step that follows the passes.
    at_step: bool,
    said: String,
}

#[derive(Debug, Default)]
struct FailurePolicy {
    patience: Patience,
    strikes: usize,
    suspect: Option<Suspect>,
}

/// Makes attempts until one gets through, or somebody is at fault. Where one got through, its checkpoint is there.
pub(crate) async fn make(
    mut attempt: Attempt<'_>,
    status: &StatusCell,
    phase: &Phase,
) -> Result<Trained, StepRefusal> {
    status.phase(phase.clone());
    attempt.run.save_asked = false;
    let plan = attempt.plan;
    let most_tokens = attempt.run.most_tokens(attempt.runner.backend.deadline());
    let mut calls = cut(&plan.groups, most_tokens);
    let mut policy = FailurePolicy::default();
    loop {
        let failed = match &policy.suspect {
            None => match attempt.train(&calls).await {
                Ok(trained) => return Ok(trained),
                Err(failed) => failed,
            },
            Some(suspect) => match attempt.control(suspect.at_step).await {
                Ok(()) => return Err(suspect.refusal()),
                Err(failed) => failed,
            },
        };
        let why = failed.to_string();
        if let Some(blame) = policy.failed(&failed, plan, &mut calls) {
            return Err(StepRefusal { blame, why });
        }
        tracing::warn!(error = why, "the step is tried again");
        status.phase(Phase::WaitingForTrainer { why });
        policy.patience.pause().await;
        status.phase(phase.clone());
    }
}

// === impl Suspect ===

impl Suspect {
    fn refusal(&self) -> StepRefusal {
        StepRefusal {
            blame: Blame::Sample {
                turns: self.turns.clone(),
                why: self.why,
            },
            why: self.said.clone(),
        }
    }
}

// === impl FailurePolicy ===

impl FailurePolicy {
    /// Takes note of a failure; who is at fault, if that is known now.
    fn failed(
        &mut self,
        failed: &StepFailure,
        plan: &Plan,
        calls: &mut Vec<MicroBatch>,
    ) -> Option<Blame> {
        let error = &failed.error;
        match failed.stage {
            StepStage::Pass(_) | StepStage::Step | StepStage::Control if error.is_of_weights() => {
                Some(Blame::ParentsNumbers)
            }
            StepStage::Control if error.is_not_finite() => Some(Blame::ParentsNumbers),
            _ if error.is_unreachable() => None,
            StepStage::Pass(at) => self.pass_failed(error, at, plan, calls),
            StepStage::Step if error.is_not_finite() => self.gradient_failed(error, plan),
            StepStage::Parent if failed.may_pass() => self.count(Blame::ParentOrServer),
            StepStage::Parent => Some(Blame::Parent),
            StepStage::Control if error.is_unknown_run() => self.count(Blame::Server),
            StepStage::Server | StepStage::Step | StepStage::Save if failed.may_pass() => {
                self.count(Blame::Server)
            }
            StepStage::Server | StepStage::Step | StepStage::Save | StepStage::Control => {
                Some(Blame::Server)
            }
        }
    }

    fn pass_failed(
        &mut self,
        error: &BackendError,
        at: usize,
        plan: &Plan,
        calls: &mut Vec<MicroBatch>,
    ) -> Option<Blame> {
        let turns = |datum: usize| calls.get(at)?.turns(&plan.groups, datum);
        if let Some(turns) = error.datum().and_then(turns) {
            let why = refusal(error);
            return Some(Blame::Sample { turns, why });
        }
        if error.is_unknown_run() {
            return self.count(Blame::Server);
        }
        let is_refused = matches!(error.status(), Some(400 | 413 | 422));
        if !is_refused && !error.is_ambiguous() {
            let busy = matches!(error.status(), Some(409 | 425 | 429));
            let blame = Blame::Server;
            return if busy { self.count(blame) } else { Some(blame) };
        }
        self.strikes += 1;
        // The same again would take as long, or be refused as well.
        let at_once = is_refused || error.is_timeout();
        if (at_once || self.strikes >= STRIKES) && halve(calls, at) {
            return None;
        }
        if self.strikes >= STRIKES {
            let why = if is_refused {
                ExcludeReason::Refused
            } else {
                ExcludeReason::Fails
            };
            let call = calls.get(at);
            let turns = call.and_then(|call| call.turns(&plan.groups, 0));
            self.suspect = Some(Suspect {
                turns: turns.unwrap_or_default(),
                why,
                at_step: false,
                said: error.to_string(),
            });
        }
        None
    }

    /// Each sequence's gradient would have to be asked for alone.
    fn gradient_failed(&mut self, error: &BackendError, plan: &Plan) -> Option<Blame> {
        if !plan.is_one_sample {
            return Some(Blame::SomeSample);
        }
        self.suspect = Some(Suspect {
            turns: plan.turns.clone(),
            why: ExcludeReason::GradientNotFinite,
            at_step: true,
            said: error.to_string(),
        });
        None
    }

    fn count(&mut self, blame: Blame) -> Option<Blame> {
        self.patience.ends().then_some(blame)
    }
}

fn refusal(error: &BackendError) -> ExcludeReason {
    match error.code() {
        Some(ErrorCode::OutOfMemory) => ExcludeReason::TooLong,
        Some(ErrorCode::LossNotFinite) => ExcludeReason::LossNotFinite,
        Some(_) | None => ExcludeReason::Refused,
    }
}
