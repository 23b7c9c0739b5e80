//! Training steps: which turns one has, and what came of it.

use metaclaw_chat::{AgentId, TurnId};
use serde::{Deserialize, Serialize};

use crate::{
    error::{FinishError, LogError, TakeError},
    keys, state,
    store::{Table, Value},
    turn::TurnState,
    txn::{Fault, Source, Txn},
};

/// A training step about to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewStep {
    /// Whose weights.
    pub agent: AgentId,
    /// The line of checkpoints that it continues. A turn is trained on once in each.
    pub lineage: String,
    /// Its number there, from 1.
    pub n: u64,
    /// Which attempt at it, from 0.
    pub attempt: u32,
    /// The turns that it takes.
    pub turns: Vec<TurnId>,
    /// The checkpoint that it starts from; none is a fresh adapter.
    pub parent: Option<String>,
    /// The hash that the checkpoint's manifest will carry, in hexadecimal.
    pub hash: String,
}

/// A training step in the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Whose weights.
    pub agent: AgentId,
    /// The line of checkpoints that it continues.
    pub lineage: String,
    /// Its number there.
    pub n: u64,
    /// Which attempt at it.
    pub attempt: u32,
    /// The turns that it took.
    pub turns: Vec<TurnId>,
    /// The checkpoint that it started from.
    pub parent: Option<String>,
    /// The hash that the checkpoint's manifest carries.
    pub hash: String,
    /// When it took them.
    pub taken_ms: u64,
    /// What came of it; none while it is open.
    pub outcome: Option<StepOutcome>,
}

/// What came of a training step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "came_to", rename_all = "snake_case")]
pub enum StepOutcome {
    /// There is a checkpoint of it: its turns are trained.
    Trained {
        /// The adapter's name.
        adapter: String,
        /// The checkpoint's name.
        checkpoint: String,
    },
    /// There is none: its turns are free again.
    Released {
        /// Why.
        why: String,
    },
}

/// All attempts at one step of a lineage, the oldest first.
fn attempts(source: &impl Source, key: &[u8]) -> Result<Vec<Step>, Fault> {
    Ok(source.get_json(Table::Steps, key)?.unwrap_or_default())
}

/// The key of the agent's open step.
fn open_key(txn: &mut Txn<'_>, agent: &AgentId) -> Result<Option<Value>, Fault> {
    Ok(txn.get_guarded(Table::OpenSteps, &keys::agent_prefix(agent))?)
}

/// Writes the step and moves its turns to `taken`; all or nothing.
pub(crate) fn take(txn: &mut Txn<'_>, new: NewStep, now_ms: u64) -> Result<(), Fault<TakeError>> {
    let refuse = |error| Err(Fault::Refused(error));
    let (n, attempt) = (new.n, new.attempt);
    if new.turns.is_empty() {
        return refuse(TakeError::Empty);
    }
    if let Some(open) = open_key(txn, &new.agent)? {
        let n = attempts(txn, &open)?.last().map_or(0, |step| step.n);
        return refuse(TakeError::StepOpen { n });
    }
    let key = keys::step(&new.agent, &new.lineage, n);
    let mut steps = attempts(txn, &key)?;
    let done = |step: &&Step| {
        step.attempt >= attempt || matches!(step.outcome, Some(StepOutcome::Trained { .. }))
    };
    if let Some(step) = steps.iter().find(done) {
        let attempt = step.attempt;
        return refuse(TakeError::Exists { n, attempt });
    }
    for id in &new.turns {
        take_turn(txn, &new, *id)?;
    }
    txn.put(
        Table::OpenSteps,
        keys::agent_prefix(&new.agent),
        key.clone(),
    );
    steps.push(Step {
        agent: new.agent,
        lineage: new.lineage,
        n,
        attempt,
        turns: new.turns,
        parent: new.parent,
        hash: new.hash,
        taken_ms: now_ms,
        outcome: None,
    });
    Ok(txn.put_json(Table::Steps, &key, &steps)?)
}

fn take_turn(txn: &mut Txn<'_>, step: &NewStep, id: TurnId) -> Result<(), Fault<TakeError>> {
    let to = TurnState::Taken { n: step.n };
    if state::agent_of(txn, id)? != step.agent {
        return Err(Fault::Refused(TakeError::NotTheirs { id }));
    }
    match state::get_guarded(txn, &step.agent, id)? {
        TurnState::Judged => Ok(state::advance(
            txn,
            &step.agent,
            id,
            (&TurnState::Judged, &to),
        )?),
        // The agent has no open step, so only this one can have taken it.
        TurnState::Taken { n }
            if n == step.n && step.turns.iter().filter(|t| **t == id).count() > 1 =>
        {
            Err(Fault::Refused(TakeError::Twice { id }))
        }
        state => Err(Fault::Refused(TakeError::NotFree { id, state })),
    }
}

/// Closes the agent's open step and moves its turns on, or back.
pub(crate) fn finish(
    txn: &mut Txn<'_>,
    agent: &AgentId,
    n: u64,
    outcome: StepOutcome,
) -> Result<(), Fault<FinishError>> {
    let not_open = || Fault::Refused(FinishError::NotOpen { n });
    let key = open_key(txn, agent)?.ok_or_else(not_open)?;
    let mut steps = attempts(txn, &key)?;
    let step = steps
        .last_mut()
        .filter(|step| step.n == n && step.outcome.is_none());
    let step = step.ok_or_else(not_open)?;
    let to = match outcome {
        StepOutcome::Trained { .. } => TurnState::Trained { n },
        StepOutcome::Released { .. } => TurnState::Judged,
    };
    for id in &step.turns {
        let from = state::get_guarded(txn, agent, *id)?;
        if from != (TurnState::Taken { n }) {
            let why = format!("it is {from:?} and not taken by the open step {n}");
            let what = format!("turn {id}");
            return Err(Fault::Refused(LogError::Damaged { what, why }.into()));
        }
        state::advance(txn, agent, *id, (&from, &to))?;
    }
    step.outcome = Some(outcome);
    txn.put_json(Table::Steps, &key, &steps)?;
    txn.remove(Table::OpenSteps, keys::agent_prefix(agent));
    Ok(())
}

/// Steps that are not finished: one an agent at most.
pub(crate) fn open(source: &impl Source) -> Result<Vec<Step>, Fault> {
    let (from, to) = keys::under(&[]);
    let mut open = Vec::new();
    for pair in source.store().range(Table::OpenSteps, from, to) {
        let (_, key) = pair?;
        open.extend(attempts(source, &key)?.pop());
    }
    Ok(open)
}

/// An agent's steps, by lineage, number and attempt.
pub(crate) fn all(source: &impl Source, agent: &AgentId) -> Result<Vec<Step>, Fault> {
    let (from, to) = keys::under(&keys::agent_prefix(agent));
    let mut steps = Vec::new();
    for pair in source.store().range(Table::Steps, from, to) {
        let (key, _) = pair?;
        // The first piece of each stands for it.
        if let Some(key) = key.strip_suffix(&[0, 0]) {
            steps.extend(attempts(source, key)?);
        }
    }
    Ok(steps)
}
