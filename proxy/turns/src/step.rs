//! Training steps: which turns one has, and what came of it.

use std::collections::BTreeMap;

use metaclaw_chat::{AgentId, TurnId};
use serde::{Deserialize, Serialize};

use crate::{
    error::{FinishError, LogError, TakeError},
    keys,
    record::damaged_turn,
    state,
    store::{Bytes, Source, Store, Table},
    turn::{TurnState, Use},
    txn::Txn,
    values::{self, TxnError},
};

/// A training step about to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewStep {
    /// Whose weights.
    pub agent: AgentId,
    /// The line of checkpoints that it continues.
    pub lineage: String,
    /// Its number there, from 1.
    pub n: u64,
    /// Which attempt at it, from 0.
    pub attempt: u32,
    /// The turns that it takes.
    pub turns: Vec<TurnId>,
    /// How many finished steps of the lineage may have used a turn, this one included: mostly 1.
    pub max_uses: usize,
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
fn attempts(source: &impl Source, key: &[u8]) -> Result<Vec<Step>, TxnError> {
    Ok(values::get_json(source, Table::Steps, key)?.unwrap_or_default())
}

/// The key of the agent's open step.
fn open_key(txn: &Txn<'_>, agent: &AgentId) -> Result<Option<Bytes>, TxnError> {
    Ok(txn.get(Table::OpenSteps, &keys::agent(agent))?)
}

/// The finished steps that used a turn, the oldest first.
pub(crate) fn uses(source: &impl Source, id: TurnId) -> Result<Vec<Use>, TxnError> {
    Ok(values::get_json(source, Table::Uses, &keys::turn(id))?.unwrap_or_default())
}

/// Writes the step and moves its turns to `taken`; all or nothing.
pub(crate) fn take(
    txn: &mut Txn<'_>,
    new: NewStep,
    now_ms: u64,
) -> Result<(), TxnError<TakeError>> {
    let refuse = |error| Err(TxnError::Refused(error));
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
    let mut states = BTreeMap::new();
    for id in &new.turns {
        let state = free_state(txn, &new, *id)?;
        if states.insert(*id, state).is_some() {
            return refuse(TakeError::Twice { id: *id });
        }
    }
    for (id, state) in states {
        let to = TurnState::Taken { n };
        state::advance(txn, &new.agent, id, (&state, &to))?;
    }
    txn.put(Table::OpenSteps, &keys::agent(&new.agent), &key[..])?;
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
    Ok(values::put_json(txn, Table::Steps, &key, &steps)?)
}

/// The state of a turn that a step may take.
fn free_state(txn: &Txn<'_>, step: &NewStep, id: TurnId) -> Result<TurnState, TxnError<TakeError>> {
    let (agent, state) = state::of_turn(txn, id)?;
    if agent != step.agent {
        return Err(TxnError::Refused(TakeError::NotTheirs { id }));
    }
    let is_free = match state {
        TurnState::Judged => true,
        TurnState::Trained { .. } => {
            let uses = uses(txn, id)?;
            let here = uses.iter().filter(|it| it.lineage == step.lineage);
            here.count() < step.max_uses
        }
        TurnState::Captured
        | TurnState::Taken { .. }
        | TurnState::Spent { .. }
        | TurnState::HeldOut => false,
    };
    if is_free {
        return Ok(state);
    }
    Err(TxnError::Refused(TakeError::NotFree { id, state }))
}

/// Closes the agent's open step and moves its turns on, or back. Those that were forgotten meanwhile are
/// passed over.
pub(crate) fn finish(
    txn: &mut Txn<'_>,
    agent: &AgentId,
    n: u64,
    outcome: StepOutcome,
) -> Result<(), TxnError<FinishError>> {
    let not_open = || TxnError::Refused(FinishError::NotOpen { n });
    let key = open_key(txn, agent)?.ok_or_else(not_open)?;
    let mut steps = attempts(txn, &key)?;
    let step = steps
        .last_mut()
        .filter(|step| step.n == n && step.outcome.is_none());
    let step = step.ok_or_else(not_open)?;
    let is_trained = matches!(outcome, StepOutcome::Trained { .. });
    let mut moves = Vec::new();
    for id in &step.turns {
        let from = match state::of_turn(txn, *id) {
            Err(TxnError::Refused(LogError::NoSuchTurn { .. })) => continue,
            found => found?.1,
        };
        if from != (TurnState::Taken { n }) {
            let why = format!("it is {from:?} and not taken by the open step {n}");
            return Err(damaged_turn(*id, why).into());
        }
        let mut uses = uses(txn, *id)?;
        uses.extend(is_trained.then(|| Use {
            lineage: step.lineage.clone(),
            n,
        }));
        moves.push((*id, from, uses));
    }
    for (id, from, uses) in moves {
        let to = uses
            .last()
            .map_or(TurnState::Judged, |last| TurnState::Trained { n: last.n });
        state::advance(txn, agent, id, (&from, &to))?;
        if is_trained {
            values::put_json(txn, Table::Uses, &keys::turn(id), &uses)?;
        }
    }
    step.outcome = Some(outcome);
    values::put_json(txn, Table::Steps, &key, &steps)?;
    txn.remove(Table::OpenSteps, &keys::agent(agent))?;
    Ok(())
}

/// Steps that are not finished: one an agent at most.
pub(crate) fn open(store: &Store) -> Result<Vec<Step>, TxnError> {
    let mut open = Vec::new();
    for pair in store.range(Table::OpenSteps, keys::under(&[])) {
        let (_, key) = pair?;
        open.extend(attempts(store, &key)?.pop());
    }
    Ok(open)
}

/// An agent's steps, by lineage, number and attempt.
pub(crate) fn all(store: &Store, agent: &AgentId) -> Result<Vec<Step>, TxnError> {
    let mut steps = Vec::new();
    let mut last: Option<Bytes> = None;
    for pair in store.range(Table::Steps, keys::under(&keys::agent(agent))) {
        let (key, _) = pair?;
        // The other pieces of a long value lie behind it.
        let is_piece = |last: &Bytes| key.len() == last.len() + 2 && key.starts_with(last);
        if !last.as_ref().is_some_and(is_piece) {
            steps.extend(attempts(store, &key)?);
            last = Some(key);
        }
    }
    Ok(steps)
}
