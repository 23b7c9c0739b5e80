//! What can go wrong, one enum per operation.

use std::{io, path::PathBuf};

use metaclaw_chat::TurnId;

use crate::turn::TurnState;

/// Why the log does not open.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it open.
    #[error(
        "the turn log {dir} is in use by {holder}: one process owns it; ask the running `metaclaw`, or stop it first", dir = .dir.display()
    )]
    Held {
        /// The log's folder.
        dir: PathBuf,
        /// `process N`, or who else could be read from the folder.
        holder: String,
    },
    /// The disk is full: opening writes.
    #[error("no space left on the disk of the turn log {dir}: free some; a metaclaw that runs then keeps turns again by itself", dir = .dir.display())]
    Full {
        /// The log's folder.
        dir: PathBuf,
    },
    /// The folder cannot be written.
    #[error("the turn log {dir} cannot be written: {source}", dir = .dir.display())]
    NotWritable {
        /// The log's folder.
        dir: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Its data are gone while its folder is marked as one that has some.
    #[error(
        "the turn log {dir} has lost its database: put a backup back, or delete {dir}/FORMAT to begin an empty log", dir = .dir.display()
    )]
    Vanished {
        /// The log's folder.
        dir: PathBuf,
    },
    /// It is of a later program.
    #[error("the turn log {dir} has format {found}; this program reads formats up to {known}", dir = .dir.display())]
    Format {
        /// The log's folder.
        dir: PathBuf,
        /// What its FORMAT file says.
        found: String,
        /// What is known here.
        known: u32,
    },
    /// It is damaged and could not be moved aside either.
    #[error("the turn log {dir} is damaged ({why}) and could not be moved aside: {source}", dir = .dir.display())]
    Damaged {
        /// The log's folder.
        dir: PathBuf,
        /// What the store said.
        why: String,
        /// Why moving failed.
        source: io::Error,
    },
    /// Anything else that the system said.
    #[error("the turn log {dir} does not open: {why}", dir = .dir.display())]
    Other {
        /// The log's folder.
        dir: PathBuf,
        /// What was said.
        why: String,
    },
}

/// Why the log did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// It was closed.
    #[error("the turn log is closed")]
    Closed,
    /// The store failed and is being reopened. A change may or may not have been made: read again.
    #[error("the turn log cannot be used for now: {why}")]
    Broken {
        /// What the store said.
        why: String,
    },
    /// There is no such turn.
    #[error("there is no turn {id} in the log")]
    NoSuchTurn {
        /// Which one.
        id: TurnId,
    },
    /// A value is larger than the log takes.
    #[error("{what} of {n_bytes} bytes is not stored: at most {max} bytes are")]
    TooLarge {
        /// What it is.
        what: &'static str,
        /// Its size, as JSON text.
        n_bytes: usize,
        /// The largest that is stored.
        max: usize,
    },
    /// What was given contradicts itself.
    #[error(
        "tokens of turn {id}: {n_ids} ids but {n_logprobs} log-probabilities and {n_sampling} of sampling"
    )]
    UnevenTokens {
        /// Of which turn.
        id: TurnId,
        /// Sampled ids.
        n_ids: usize,
        /// Log-probabilities.
        n_logprobs: usize,
        /// Log-probabilities of sampling.
        n_sampling: usize,
    },
    /// Something in the log does not read back.
    #[error("{what} in the turn log cannot be read: {why}")]
    Damaged {
        /// What it is.
        what: String,
        /// Why not.
        why: String,
    },
}

/// Why turns could not be taken for a training step. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TakeError {
    /// A turn is not free.
    #[error("turn {id} is not free for a training step: it is {state:?}, only judged ones are")]
    NotFree {
        /// Which one.
        id: TurnId,
        /// Where it stands.
        state: TurnState,
    },
    /// A turn belongs to another agent.
    #[error("turn {id} belongs to another agent")]
    NotTheirs {
        /// Which one.
        id: TurnId,
    },
    /// A turn is named twice.
    #[error("turn {id} is named twice in one training step")]
    Twice {
        /// Which one.
        id: TurnId,
    },
    /// No turns were named.
    #[error("a training step needs at least one turn")]
    Empty,
    /// The agent has a step that is not finished.
    #[error("training step {n} of this agent is still open: finish it first")]
    StepOpen {
        /// Its number.
        n: u64,
    },
    /// This step, or this attempt at it, was made before.
    #[error("training step {n}, attempt {attempt}, was made before in this lineage")]
    Exists {
        /// Its number.
        n: u64,
        /// The attempt that is in the log.
        attempt: u32,
    },
    /// The log failed.
    #[error(transparent)]
    Log(#[from] LogError),
}

/// Why a training step could not be finished. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FinishError {
    /// There is no such open step.
    #[error("training step {n} of this agent is not open")]
    NotOpen {
        /// Its number.
        n: u64,
    },
    /// The log failed.
    #[error(transparent)]
    Log(#[from] LogError),
}

/// Why an export ended early.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The log failed.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The file could not be written.
    #[error("the export cannot be written: {0}")]
    Write(#[from] io::Error),
}
