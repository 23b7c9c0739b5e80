//! What learning records about a turn: its verdicts (all are kept and the last is valid), its token ids, and its
//! exclusion.

use metaclaw_chat::{TurnId, Verdict};

use crate::{
    log::{LogFuture, TurnLog},
    state, tokens,
    turn::{Tokens, TurnState},
    txn::Txn,
    verdicts,
};

// === impl TurnLog ===

impl TurnLog {
    /// Adds the reply's sampled ids. Returns false if the turn has ids, or may have none because its text was masked.
    ///
    /// # Errors
    /// Returns `LogError::UnevenTokens`, `LogError::NoSuchTurn`, or the store's error.
    pub fn add_tokens(&self, id: TurnId, tokens: Tokens) -> LogFuture<'_, bool> {
        self.write(move |txn| tokens::add(txn, id, &tokens))
    }

    /// Gives a turn its verdict. Returns false and changes nothing if it has one. A verdict from the end of the session
    /// is replaced by a verdict from what followed, and is kept as overruled.
    ///
    /// A captured turn becomes judged. An excluded or held-out one stays so.
    pub fn judge(&self, id: TurnId, verdict: Verdict) -> LogFuture<'_, bool> {
        let judge = move |txn: &mut Txn<'_>| {
            let before = verdicts::all(txn, id)?.pop();
            let gives_way = |old: &Verdict| old.at_session_end && !verdict.at_session_end;
            let is_free = before.as_ref().is_none_or(gives_way);
            if is_free {
                verdicts::add(txn, id, verdict)?;
            }
            Ok(is_free)
        };
        self.write(judge)
    }

    /// Gives a turn a verdict that overrules the present one, which is kept. Returns whether there was one.
    pub fn overrule(&self, id: TurnId, verdict: Verdict) -> LogFuture<'_, bool> {
        self.write(move |txn| verdicts::add(txn, id, verdict))
    }

    /// Makes a turn with a verdict that was excluded for one of these reasons a judged turn again. Returns false if it
    /// was not excluded for one of them.
    pub fn reopen(&self, id: TurnId, reasons: &[&str]) -> LogFuture<'_, bool> {
        let reasons: Vec<String> = reasons.iter().map(|&reason| reason.to_owned()).collect();
        let reopen = move |txn: &mut Txn<'_>| {
            let (agent, state) = state::of_turn(txn, id)?;
            let is_spent = matches!(&state, TurnState::Spent { why } if reasons.contains(why));
            let reopens = is_spent && !verdicts::all(txn, id)?.is_empty();
            if reopens {
                state::advance(txn, &agent, id, &state, &TurnState::Judged)?;
            }
            Ok(reopens)
        };
        self.write(reopen)
    }

    /// Excludes a captured or judged turn permanently, with the reason. Returns false if it is neither.
    pub fn spend(&self, id: TurnId, why: &str) -> LogFuture<'_, bool> {
        let why = why.to_owned();
        self.set_aside(id, TurnState::Spent { why })
    }

    /// Holds a captured or judged turn out for measuring. Returns false if it is neither.
    pub fn hold_out(&self, id: TurnId) -> LogFuture<'_, bool> {
        self.set_aside(id, TurnState::HeldOut)
    }

    fn set_aside(&self, id: TurnId, to: TurnState) -> LogFuture<'_, bool> {
        let set_aside = move |txn: &mut Txn<'_>| {
            let (agent, state) = state::of_turn(txn, id)?;
            let is_free = matches!(state, TurnState::Captured | TurnState::Judged);
            if is_free {
                state::advance(txn, &agent, id, &state, &to)?;
            }
            Ok(is_free)
        };
        self.write(set_aside)
    }
}
