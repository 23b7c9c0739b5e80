//! Turns that were had elsewhere come into the log: all of a file, or none.

use std::sync::atomic::Ordering;

use metaclaw_chat::{TurnId, Verdict};

use crate::{
    append, error::LogError, learning, log::TurnLog, new_turn::NewTurn, store::StoreError, tokens,
    txn::Txn, values::TxnError,
};

/// Turns of one import: the log's thread does nothing else meanwhile.
pub const MAX_IMPORT: usize = 10_000;
/// Bytes of their texts and ids.
pub const MAX_IMPORT_BYTES: usize = 64 << 20;

/// A turn that was had elsewhere.
#[derive(Debug, Clone, PartialEq)]
pub struct ImportedTurn {
    pub turn: NewTurn,
    /// How it was judged there; without one it is judged here.
    pub verdict: Option<Verdict>,
}

/// What became of an import.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ImportOutcome {
    /// Turns that came into the log.
    pub n_new: usize,
    /// Turns that it had: the same reply, by id and text, to the same request.
    pub n_known: usize,
}

// === impl TurnLog ===

impl TurnLog {
    /// Appends turns with their verdicts in one transaction; returns when they are safe from a kill. Those that the log has
    /// are left as they are. Nobody who listens for new turns hears of them.
    ///
    /// # Errors
    /// [`LogError::TooLarge`], [`LogError::UnevenTokens`], [`LogError::Unreadable`], before anything is written;
    /// [`LogError::Broken`] when the store fails: then all of it is there or nothing.
    pub async fn import(&self, turns: Vec<ImportedTurn>) -> Result<ImportOutcome, LogError> {
        check(&turns)?;
        let first = turns.len() as u64;
        let first = self.next_key().fetch_add(first, Ordering::Relaxed);
        self.write(move |txn| import(txn, first, &turns)).await
    }
}

/// Everything that could be refused of them.
fn check(turns: &[ImportedTurn]) -> Result<(), LogError> {
    if turns.len() > MAX_IMPORT {
        return Err(LogError::TooLarge {
            what: "an import, in turns,",
            n_bytes: turns.len(),
            max: MAX_IMPORT,
        });
    }
    let n_bytes = turns.iter().map(|it| it.turn.n_bytes()).sum();
    if n_bytes > MAX_IMPORT_BYTES {
        return Err(LogError::TooLarge {
            what: "an import",
            n_bytes,
            max: MAX_IMPORT_BYTES,
        });
    }
    for (seq, imported) in (0..).zip(turns) {
        let tokens = imported.turn.tokens.as_ref();
        // Its place in the file, as it has none in the log yet.
        let place = TurnId { session: 0, seq };
        tokens.map_or(Ok(()), |ids| tokens::check(place, ids))?;
    }
    Ok(())
}

fn import(
    txn: &mut Txn<'_>,
    first: u64,
    turns: &[ImportedTurn],
) -> Result<ImportOutcome, TxnError> {
    let mut outcome = ImportOutcome::default();
    for (at, imported) in (0..).zip(turns) {
        let key = first.wrapping_add(at);
        let n_before = txn.appended.len();
        let id = append::append(txn, key, &imported.turn).map_err(all_or_none)?;
        if txn.appended.len() == n_before {
            outcome.n_known += 1;
            continue;
        }
        outcome.n_new += 1;
        if let Some(verdict) = imported.verdict.clone() {
            learning::add(txn, id, verdict).map_err(all_or_none)?;
        }
    }
    Ok(outcome)
}

/// What refuses in the middle has others before it: the whole transaction is off. Only damage can.
fn all_or_none(error: TxnError) -> TxnError {
    match error {
        TxnError::Refused(error) => TxnError::Store(StoreError::Other(error.to_string())),
        TxnError::Store(error) => TxnError::Store(error),
    }
}
