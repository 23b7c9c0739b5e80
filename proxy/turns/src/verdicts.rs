//! The verdicts on a turn: all are kept, and the last is valid.

use metaclaw_chat::{TurnId, Verdict};

use crate::{
    keys, lessons,
    record::Record,
    state,
    store::{StoreSource, Table},
    turn::{TurnKind, TurnState},
    txn::Txn,
    values::{self, TxnResult},
};

/// Returns all verdicts on a turn, the oldest first.
pub(crate) fn all(source: &impl StoreSource, id: TurnId) -> TxnResult<Vec<Verdict>> {
    let verdicts = values::get_json(source, Table::Verdicts, &keys::turn(id))?;
    Ok(verdicts.unwrap_or_default())
}

/// Masks a verdict before it is written, because its hints may be a person's words.
fn masked(txn: &Txn<'_>, mut verdict: Verdict) -> Verdict {
    mask_hints(&mut verdict, &|text| txn.mask.text(text));
    verdict
}

pub(crate) fn mask_hints(verdict: &mut Verdict, mask: &dyn Fn(&str) -> Option<String>) -> bool {
    let votes = verdict.votes.iter_mut().map(|vote| &mut vote.hint);
    let hints = votes.chain([&mut verdict.hint]).flatten();
    let mut is_masked = false;
    for hint in hints.chain(&mut verdict.judge_hints) {
        if let Some(masked) = mask(hint) {
            *hint = masked;
            is_masked = true;
        }
    }
    is_masked
}

/// Adds a verdict, which is valid from now on. Returns whether there was one before.
pub(crate) fn add(txn: &mut Txn<'_>, id: TurnId, verdict: Verdict) -> TxnResult<bool> {
    let (agent, state) = state::of_turn(txn, id)?;
    let mut verdicts = all(txn, id)?;
    let before = verdicts
        .last()
        .map(|verdict| (verdict.score, verdict.at_session_end));
    let was_score = before.map(|(score, _)| score);
    lessons::judged(txn, &agent, id, was_score, verdict.score)?;
    // The counts of a day are about the owner's chats.
    if let Some(turn) = Record::get(txn, id)?.filter(|turn| turn.meta.kind != TurnKind::Rollout) {
        txn.count_day(&agent, turn.meta.ended_ms, |day| {
            if let Some(overruled) = was_score {
                let n = day.with_score(overruled);
                *n = n.saturating_sub(1);
            }
            *day.with_score(verdict.score) += 1;
        })?;
    }
    let at_session_end = verdict.at_session_end;
    verdicts.push(masked(txn, verdict));
    values::put_json(txn, Table::Verdicts, &keys::turn(id), &verdicts)?;
    if state == TurnState::Captured {
        state::advance(txn, &agent, id, &state, &TurnState::Judged)?;
    }
    let was_at_end = before.is_some_and(|(_, at_session_end)| at_session_end);
    txn.count(&agent, |funnel| {
        funnel.judged += u64::from(before.is_none());
        let n = funnel.judged_at_session_end + u64::from(at_session_end);
        funnel.judged_at_session_end = n.saturating_sub(u64::from(was_at_end));
    })?;
    Ok(before.is_some())
}
