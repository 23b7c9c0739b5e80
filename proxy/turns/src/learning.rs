//! What learning notes on a turn: its verdicts, of which all are kept and the last is in force, its token ids, and
//! that it is set aside.

use metaclaw_chat::{TurnId, Verdict};

use crate::{
    error::LogError,
    keys, lessons,
    log::TurnLog,
    record::Record,
    state,
    store::{Source, Table},
    tokens,
    turn::{Tokens, TurnState},
    txn::Txn,
    values::{self, TxnError},
};

// === impl TurnLog ===

#[expect(
    clippy::missing_errors_doc,
    reason = "of all: the store's, or `LogError::NoSuchTurn`"
)]
impl TurnLog {
    /// Adds the ids that the reply was sampled as; false if the turn has some, or may have none as its text
    /// was masked.
    ///
    /// # Errors
    /// [`LogError::UnevenTokens`], [`LogError::NoSuchTurn`], or the store's.
    pub async fn add_tokens(&self, id: TurnId, tokens: Tokens) -> Result<bool, LogError> {
        self.write(move |txn| tokens::add(txn, id, &tokens)).await
    }

    /// Gives a turn its verdict; false, and nothing changed, if it has one.
    ///
    /// A captured turn is judged thereby; one that is spent or held out stays so.
    pub async fn judge(&self, id: TurnId, verdict: Verdict) -> Result<bool, LogError> {
        self.write(move |txn| add(txn, id, verdict, false)).await
    }

    /// Gives a turn a verdict that overrules the one it has, which is kept; whether it had one.
    pub async fn overrule(&self, id: TurnId, verdict: Verdict) -> Result<bool, LogError> {
        self.write(move |txn| Ok(!add(txn, id, verdict, true)?))
            .await
    }

    /// Sets a captured or judged turn aside for good, saying why; false if it is neither.
    pub async fn spend(&self, id: TurnId, why: &str) -> Result<bool, LogError> {
        let why = why.to_owned();
        self.set_aside(id, TurnState::Spent { why }).await
    }

    /// Keeps a captured or judged turn for measuring; false if it is neither.
    pub async fn hold_out(&self, id: TurnId) -> Result<bool, LogError> {
        self.set_aside(id, TurnState::HeldOut).await
    }

    async fn set_aside(&self, id: TurnId, to: TurnState) -> Result<bool, LogError> {
        let set_aside = move |txn: &mut Txn<'_>| {
            let (agent, state) = state::of_turn(txn, id)?;
            let is_free = matches!(state, TurnState::Captured | TurnState::Judged);
            if is_free {
                state::advance(txn, &agent, id, (&state, &to))?;
            }
            Ok(is_free)
        };
        self.write(set_aside).await
    }
}

/// All verdicts on a turn, the oldest first.
pub(crate) fn verdicts(source: &impl Source, id: TurnId) -> Result<Vec<Verdict>, TxnError> {
    let verdicts = values::get_json(source, Table::Verdicts, &keys::turn(id))?;
    Ok(verdicts.unwrap_or_default())
}

/// A verdict whose hints may be a person's words, as it is written.
fn masked(txn: &Txn<'_>, mut verdict: Verdict) -> Verdict {
    let votes = verdict.votes.iter_mut().map(|vote| &mut vote.hint);
    for hint in votes.chain([&mut verdict.hint]).flatten() {
        if let Some(masked) = txn.mask.text(hint) {
            *hint = masked;
        }
    }
    verdict
}

/// Adds a verdict, unless there is one and this does not overrule it; whether it is the first.
pub(crate) fn add(
    txn: &mut Txn<'_>,
    id: TurnId,
    verdict: Verdict,
    overrules: bool,
) -> Result<bool, TxnError> {
    let (agent, state) = state::of_turn(txn, id)?;
    let mut verdicts = verdicts(txn, id)?;
    let is_first = verdicts.is_empty();
    if !is_first && !overrules {
        return Ok(false);
    }
    let before = verdicts.last().map(|it| it.score);
    lessons::judged(txn, (&agent, id), before, verdict.score)?;
    if let Some(turn) = Record::get(txn, id)? {
        txn.count_day(&agent, turn.meta.ended_ms, |it| {
            if let Some(overruled) = verdicts.last() {
                let n = it.with_score(overruled.score);
                *n = n.saturating_sub(1);
            }
            *it.with_score(verdict.score) += 1;
        })?;
    }
    verdicts.push(masked(txn, verdict));
    values::put_json(txn, Table::Verdicts, &keys::turn(id), &verdicts)?;
    if state == TurnState::Captured {
        state::advance(txn, &agent, id, (&state, &TurnState::Judged))?;
    }
    if is_first {
        txn.count(&agent, |funnel| funnel.judged += 1)?;
    }
    Ok(is_first)
}
