//! Training steps: their turns and outcomes.

use std::{collections::BTreeMap, future::ready};

use metaclaw_chat::{AgentId, TurnId, now_ms};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    error::{LogError, TakeError},
    keys,
    log::{LogFuture, TurnLog},
    record::damaged_turn,
    serving::{choose, serves},
    state,
    store::{Store, StoreSource, Table},
    turn::{TurnState, Use},
    txn::Txn,
    values::{self, TxnError, TxnResult},
};

/// A training step that is about to be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewStep {
    pub agent: AgentId,
    /// The lineage of checkpoints that it continues.
    pub lineage: String,
    /// Its number in the lineage, from 1.
    pub n: u64,
    /// The number of the attempt, from 0.
    pub attempt: u32,
    /// The turns that it takes.
    pub turns: Vec<TurnId>,
    /// The largest number of finished steps in these weights that may have used a turn, including this one.
    pub max_uses: usize,
    /// The lineages that its own continues, and up to which step: these steps are in its weights.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ancestors: Vec<Use>,
    /// The checkpoint that it starts from, or none for a fresh adapter.
    pub parent: Option<String>,
    /// The hash that the checkpoint's manifest will contain, in hexadecimal.
    pub hash: String,
    /// When the owner chose the adapter that it starts from, or none if the owner did not choose one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub choice_ms: Option<u64>,
}

/// A training step in the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// The step as it was begun.
    #[serde(flatten)]
    pub begun: NewStep,
    /// When it took its turns, in Unix milliseconds.
    pub taken_ms: u64,
    /// The outcome, or none while it is open.
    pub outcome: Option<StepOutcome>,
    /// When its adapter served and was rolled back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken_back: Option<TakenBack>,
}

/// A roll-back of an adapter because its agent's verdicts got worse.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakenBack {
    /// The time in Unix milliseconds.
    pub at_ms: u64,
    /// The adapter that serves instead, or none for the base model.
    pub to: Option<String>,
    pub why: String,
}

/// The outcome of a training step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "came_to", rename_all = "snake_case")]
pub enum StepOutcome {
    /// Its checkpoint exists, and its turns are trained.
    Trained {
        adapter: String,
        checkpoint: String,
        /// The results of the gate, if it tested the adapter.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        gate: Option<Value>,
    },
    /// Its checkpoint exists, but no step starts from it: its adapter failed a test and never serves. Its turns are
    /// free again.
    Declined {
        adapter: String,
        checkpoint: String,
        why: String,
        gate: Value,
        at_ms: u64,
        /// How many verdicts its agent had at that time.
        n_judged: u64,
    },
    /// It has no checkpoint, and its turns are free again.
    Released { why: String },
}

// === impl NewStep ===

impl NewStep {
    /// Returns whether the weights that it starts from contain that use of a turn. A step that was rolled back, or
    /// whose adapter did not come to serve, is not in the weights of later steps.
    fn goes_on_from(&self, used: &Use) -> bool {
        let has = |last: &Use| last.lineage == used.lineage && used.n <= last.n;
        used.lineage == self.lineage || self.ancestors.iter().any(has)
    }
}

// === impl TurnLog ===

impl TurnLog {
    /// Begins a training step: writes it and takes its turns, all or none.
    ///
    /// # Errors
    /// Returns [`LogError::NotTaken`]. After [`LogError::Broken`], [`TurnLog::open_steps`] shows whether it was begun.
    pub fn take(&self, step: NewStep) -> LogFuture<'_, ()> {
        Box::pin(async move {
            // The order of steps is that of their times, also after a clock that was ahead.
            let steps = self.steps(&step.agent).await?;
            let last_ms = steps.iter().map(|step| step.taken_ms).max();
            let taken_ms = now_ms().max(last_ms.map_or(0, |last_ms| last_ms.saturating_add(1)));
            self.write(move |txn| take(txn, step, taken_ms)).await
        })
    }

    /// Ends an agent's open step. Its turns are trained, or free again. Returns false if that step is not open.
    pub fn finish_step(
        &self,
        agent: &AgentId,
        n: u64,
        outcome: StepOutcome,
    ) -> LogFuture<'_, bool> {
        let agent = agent.clone();
        self.write(move |txn| finish(txn, &agent, n, outcome))
    }

    /// Returns steps that were begun and not ended, at most one for each agent.
    pub fn open_steps(&self) -> LogFuture<'_, Vec<Step>> {
        let open = |store: &Store| {
            let mut open = Vec::new();
            for pair in store.range(Table::OpenSteps, keys::under(&[])) {
                open.extend(attempts(store, &pair?.1)?.pop());
            }
            Ok(open)
        };
        self.read(open)
    }

    /// Returns an agent's steps by lineage, number and attempt.
    pub fn steps(&self, agent: &AgentId) -> LogFuture<'_, Vec<Step>> {
        self.steps_below(keys::agent(agent))
    }

    /// Returns the steps of all agents in the order of time.
    pub fn all_steps(&self) -> LogFuture<'_, Vec<Step>> {
        Box::pin(async move {
            let mut steps = self.steps_below(Vec::new()).await?;
            steps.sort_by_key(|step| step.taken_ms);
            Ok(steps)
        })
    }

    /// Serves the agent of a step with another adapter (none means the base model) instead of the step's adapter, as if
    /// the owner had chosen it ([`TurnLog::choose`]), and records the reason with the step. Returns false and changes
    /// nothing if the step's adapter does not serve.
    pub fn roll_back(&self, step: &Step, to: Option<String>, why: &str) -> LogFuture<'_, bool> {
        let Some(StepOutcome::Trained { adapter, .. }) = step.outcome.clone() else {
            return Box::pin(ready(Ok(false)));
        };
        let (step, why) = (step.begun.clone(), why.to_owned());
        self.write(move |txn| {
            let agent = keys::agent(&step.agent);
            if serves(txn, &agent)?.as_ref() != Some(&adapter) {
                return Ok(false);
            }
            let key = keys::step(&step.agent, &step.lineage, step.n);
            let mut made = attempts(txn, &key)?;
            let choice = choose(txn, &agent, to)?;
            let rolled_back = made
                .iter_mut()
                .find(|made| made.begun.attempt == step.attempt);
            if let Some(rolled_back) = rolled_back {
                rolled_back.taken_back = Some(TakenBack {
                    at_ms: choice.at_ms,
                    to: choice.adapter,
                    why,
                });
                values::put_json(txn, Table::Steps, &key, &made)?;
            }
            Ok(true)
        })
    }

    fn steps_below(&self, prefix: Vec<u8>) -> LogFuture<'_, Vec<Step>> {
        let steps = move |store: &Store| {
            let attempts: Vec<(_, Vec<Step>)> = values::all_json(store, Table::Steps, &prefix)?;
            Ok(attempts
                .into_iter()
                .flat_map(|(_, attempts)| attempts)
                .collect())
        };
        self.read(steps)
    }
}

/// Returns all attempts at one step of a lineage, the oldest first.
pub(crate) fn attempts(source: &impl StoreSource, key: &[u8]) -> TxnResult<Vec<Step>> {
    Ok(values::get_json(source, Table::Steps, key)?.unwrap_or_default())
}

/// Returns the finished steps that used a turn, the oldest first.
pub(crate) fn uses(source: &impl StoreSource, id: TurnId) -> TxnResult<Vec<Use>> {
    Ok(values::get_json(source, Table::Uses, &keys::turn(id))?.unwrap_or_default())
}

/// Writes the step and changes the state of its turns to `taken`, all or none.
fn take(txn: &mut Txn<'_>, new: NewStep, taken_ms: u64) -> TxnResult<()> {
    let (n, attempt) = (new.n, new.attempt);
    if new.turns.is_empty() {
        return Err(TakeError::Empty.into());
    }
    let open_key = keys::agent(&new.agent);
    if let Some(open) = txn.get(Table::OpenSteps, &open_key)? {
        let n = attempts(txn, &open)?.last().map_or(0, |step| step.begun.n);
        return Err(TakeError::StepOpen { n }.into());
    }
    let key = keys::step(&new.agent, &new.lineage, n);
    let mut steps = attempts(txn, &key)?;
    let done = |step: &&Step| {
        step.begun.attempt >= attempt || matches!(step.outcome, Some(StepOutcome::Trained { .. }))
    };
    if let Some(step) = steps.iter().find(done) {
        let attempt = step.begun.attempt;
        return Err(TakeError::Exists { n, attempt }.into());
    }
    let mut states = BTreeMap::new();
    for id in &new.turns {
        let state = free_state(txn, &new, *id)?;
        if states.insert(*id, state).is_some() {
            return Err(TakeError::Twice { id: *id }.into());
        }
    }
    for (id, state) in states {
        let to = TurnState::Taken { n };
        state::advance(txn, &new.agent, id, &state, &to)?;
    }
    txn.put(Table::OpenSteps, &open_key, &key[..])?;
    steps.push(Step {
        begun: new,
        taken_ms,
        outcome: None,
        taken_back: None,
    });
    Ok(values::put_json(txn, Table::Steps, &key, &steps)?)
}

fn free_state(txn: &Txn<'_>, step: &NewStep, id: TurnId) -> TxnResult<TurnState> {
    let (agent, state) = state::of_turn(txn, id)?;
    if agent != step.agent {
        return Err(TakeError::NotTheirs { id }.into());
    }
    let is_free = match state {
        TurnState::Judged => true,
        TurnState::Trained { .. } => {
            let uses = uses(txn, id)?;
            uses.iter().filter(|used| step.goes_on_from(used)).count() < step.max_uses
        }
        TurnState::Captured
        | TurnState::Taken { .. }
        | TurnState::Spent { .. }
        | TurnState::HeldOut => false,
    };
    if is_free {
        return Ok(state);
    }
    Err(TakeError::NotFree { id, state }.into())
}

/// Closes the agent's open step, if it is the `n`th, and changes its turns to `trained` or back. Turns that were
/// deleted in the meantime are skipped.
fn finish(txn: &mut Txn<'_>, agent: &AgentId, n: u64, outcome: StepOutcome) -> TxnResult<bool> {
    let open_key = keys::agent(agent);
    let Some(key) = txn.get(Table::OpenSteps, &open_key)? else {
        return Ok(false);
    };
    let mut steps = attempts(txn, &key)?;
    let step = steps.last_mut().filter(|step| step.outcome.is_none());
    let Some(step) = step.filter(|step| step.begun.n == n) else {
        return Ok(false);
    };
    let is_trained = matches!(outcome, StepOutcome::Trained { .. });
    let mut moves = Vec::new();
    for id in &step.begun.turns {
        let from = match state::of_turn(txn, *id) {
            Err(TxnError::Refused(LogError::NoSuchTurn { .. })) => continue,
            found => found?.1,
        };
        if from != (TurnState::Taken { n }) {
            let why = format!("it is {from:?} and not taken by the open step {n}");
            return Err(damaged_turn(*id, why));
        }
        let mut uses = uses(txn, *id)?;
        uses.extend(is_trained.then(|| Use {
            lineage: step.begun.lineage.clone(),
            n,
        }));
        moves.push((*id, from, uses));
    }
    for (id, from, uses) in moves {
        let to = uses
            .last()
            .map_or(TurnState::Judged, |last| TurnState::Trained { n: last.n });
        state::advance(txn, agent, id, &from, &to)?;
        if is_trained {
            values::put_json(txn, Table::Uses, &keys::turn(id), &uses)?;
        }
    }
    step.outcome = Some(outcome);
    values::put_json(txn, Table::Steps, &key, &steps)?;
    txn.remove(Table::OpenSteps, &open_key)?;
    Ok(true)
}
