//! Closes rollouts, and gives their turns what they earned.

use metaclaw_chat::{JudgedBy, RolloutId, Score, SessionId, TurnId, Verdict};

use super::record::{Rollout, RolloutEnd, RolloutState};
use crate::{
    error::LogError,
    keys,
    record::Record,
    session::SessionRecord,
    state,
    store::{StoreResult, StoreSource, Table},
    turn::{RolloutMark, StreamEnd, TurnKind, TurnState},
    txn::Txn,
    values::{self, TxnError, TxnResult},
    verdicts,
};

const CUT: &str = "its reply did not come whole";

pub(crate) fn get(source: &impl StoreSource, id: &RolloutId) -> TxnResult<Option<Rollout>> {
    values::get_json(source, Table::Rollouts, &keys::rollout(id))
}

pub(crate) fn put(txn: &Txn<'_>, rollout: &Rollout) -> StoreResult<()> {
    values::put_json(txn, Table::Rollouts, &keys::rollout(&rollout.id), rollout)
}

pub(crate) fn close(
    txn: &mut Txn<'_>,
    id: &RolloutId,
    end: RolloutEnd,
    closed_ms: u64,
) -> TxnResult<Rollout> {
    let rollout = get(txn, id)?.ok_or_else(|| LogError::NoSuchRollout { id: id.clone() })?;
    if !rollout.is_open() {
        return Err(LogError::RolloutClosed { id: id.clone() }.into());
    }
    let state = match end {
        RolloutEnd::Scored { outcome, steps } => RolloutState::Scored {
            outcome,
            steps,
            closed_ms,
        },
        RolloutEnd::Failed { why } => RolloutState::Failed { why, closed_ms },
        RolloutEnd::Unfinished => RolloutState::Unfinished { closed_ms },
    };
    let rollout = Rollout { state, ..rollout };
    put(txn, &rollout)?;
    for (step, turn) in steps(txn, &rollout)?.into_iter().enumerate() {
        settle(txn, &rollout, step, turn)?;
    }
    Ok(rollout)
}

pub(crate) fn arrived(txn: &mut Txn<'_>, id: TurnId, mark: &RolloutMark) -> StoreResult<()> {
    let settled = (|| {
        let Some(rollout) = get(txn, &mark.id)?.filter(|rollout| !rollout.is_open()) else {
            return Ok(());
        };
        let place = steps(txn, &rollout)?.iter().position(|step| *step == id);
        place.map_or(Ok(()), |step| settle(txn, &rollout, step, id))
    })();
    // The turn itself is in the log, which matters more.
    if let Err(error) = values::split(settled)? {
        tracing::warn!(turn = %id, %error, "a turn is not judged by its rollout");
    }
    Ok(())
}

pub(crate) fn forget(txn: &Txn<'_>, session: &SessionId) -> StoreResult<()> {
    match RolloutId::of_session(session) {
        Some(id) => values::remove(txn, Table::Rollouts, &keys::rollout(&id)),
        None => Ok(()),
    }
}

/// Returns the turns of a rollout that are steps of its agent, in the order in which they came.
fn steps(source: &impl StoreSource, rollout: &Rollout) -> TxnResult<Vec<TurnId>> {
    let session = rollout.id.session();
    let Some(number) = SessionRecord::number(source, &rollout.agent, &session)? else {
        return Ok(Vec::new());
    };
    let mut steps = Vec::new();
    for id in (0..).map(|seq| keys::id(number, seq)) {
        match Record::get(source, id) {
            Ok(Some(record)) if record.meta.kind == TurnKind::Rollout => steps.push(id),
            Ok(Some(_)) | Err(TxnError::Refused(_)) => {}
            Ok(None) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(steps)
}

fn settle(txn: &mut Txn<'_>, rollout: &Rollout, step: usize, turn: TurnId) -> TxnResult<()> {
    let is_whole =
        Record::get(txn, turn)?.is_some_and(|record| record.meta.end == StreamEnd::Complete);
    let why = rollout.excludes().or_else(|| (!is_whole).then_some(CUT));
    let (agent, state) = state::of_turn(txn, turn)?;
    if state != TurnState::Captured {
        return Ok(());
    }
    if let Some(why) = why {
        let why = why.to_owned();
        let spent = TurnState::Spent { why };
        return Ok(state::advance(txn, &agent, turn, &state, &spent)?);
    }
    if let Some(reward) = rollout.reward(step) {
        verdicts::add(txn, turn, verdict(reward))?;
    }
    Ok(())
}

fn verdict(reward: f32) -> Verdict {
    let score = match reward {
        reward if reward > 0.0 => Score::Good,
        reward if reward < 0.0 => Score::Bad,
        _ => Score::Unclear,
    };
    Verdict {
        reward: Some(reward),
        ..Verdict::new(score, JudgedBy::Rollout)
    }
}
