//! Imports turns from elsewhere: all of a file, or none.

use std::{future::ready, sync::atomic::Ordering};

use metaclaw_chat::{TurnId, Verdict};

use crate::{
    append,
    error::LogError,
    log::{LogFuture, TurnLog},
    new_turn::NewTurn,
    tokens,
    txn::Txn,
    values::{TxnError, TxnResult},
    verdicts,
};

/// The largest number of turns in one import, because the log's thread does nothing else in the meantime.
pub const MAX_IMPORT: usize = 10_000;
/// The largest number of bytes of their texts and ids.
pub const MAX_IMPORT_BYTES: usize = 64 << 20;

/// A turn from elsewhere.
#[derive(Debug, Clone, PartialEq)]
pub struct ImportedTurn {
    pub turn: NewTurn,
    /// Its verdict there. Without one, the turn is judged here.
    pub verdict: Option<Verdict>,
}

/// The result of an import.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ImportOutcome {
    /// Number of turns that were added.
    pub n_new: usize,
    /// Number of turns that the log had: the same reply, by id and text, to the same request.
    pub n_known: usize,
}

// === impl TurnLog ===

impl TurnLog {
    /// Appends turns with their verdicts in one transaction. Returns when they are safe from a kill. Turns that the log
    /// has are not changed. Subscribers for new turns are not notified.
    ///
    /// # Errors
    /// Returns [`LogError::TooLarge`], [`LogError::UnevenTokens`] or [`LogError::Unreadable`] before anything is
    /// written, and [`LogError::Broken`] if the store fails. In the last case, all turns are there or none.
    pub fn import(&self, turns: Vec<ImportedTurn>) -> LogFuture<'_, ImportOutcome> {
        if let Err(error) = check(&turns) {
            return Box::pin(ready(Err(error)));
        }
        let first = self
            .next_key()
            .fetch_add(turns.len() as u64, Ordering::Relaxed);
        self.write(move |txn| import(txn, first, &turns))
    }
}

/// Checks everything for which turns can be refused.
fn check(turns: &[ImportedTurn]) -> Result<(), LogError> {
    if turns.len() > MAX_IMPORT {
        return Err(LogError::TooLarge {
            what: "an import, in turns,",
            n_bytes: turns.len(),
            max: MAX_IMPORT,
        });
    }
    let n_bytes = turns.iter().map(|imported| imported.turn.n_bytes()).sum();
    if n_bytes > MAX_IMPORT_BYTES {
        return Err(LogError::TooLarge {
            what: "an import",
            n_bytes,
            max: MAX_IMPORT_BYTES,
        });
    }
    for (seq, imported) in (0..).zip(turns) {
        let tokens = imported.turn.tokens.as_ref();
        // The error gives the turn's place in the file, because it has no id in the log yet.
        let place = TurnId { session: 0, seq };
        tokens.map_or(Ok(()), |ids| tokens::check(place, ids))?;
    }
    Ok(())
}

fn import(txn: &mut Txn<'_>, first: u64, turns: &[ImportedTurn]) -> TxnResult<ImportOutcome> {
    let mut outcome = ImportOutcome::default();
    for (at, imported) in (0..).zip(turns) {
        let key = first.wrapping_add(at);
        let n_before = txn.appended.len();
        let id = append::append(txn, key, &imported.turn).map_err(TxnError::fail_all)?;
        if txn.appended.len() == n_before {
            outcome.n_known += 1;
            continue;
        }
        outcome.n_new += 1;
        if let Some(verdict) = imported.verdict.clone() {
            verdicts::add(txn, id, verdict).map_err(TxnError::fail_all)?;
        }
    }
    Ok(outcome)
}
