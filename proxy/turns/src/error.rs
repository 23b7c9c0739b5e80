//! The errors of this crate, one enum per operation.

use std::{io, path::PathBuf};

use metaclaw_chat::{RolloutId, Size, Span, TurnId};

use crate::turn::TurnState;

/// Why the log cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("turns.cache: {given} is not allowed: at least {least}, as in \"8 MiB\"")]
    Cache { given: Size, least: Size },
    #[error(
        "{key}: {given} is not allowed: at least {least}, as in \"30 d\"; a number without a unit is in seconds"
    )]
    Retention {
        key: &'static str,
        given: Span,
        least: Span,
    },
    #[error("turns.mask: {pattern:?} is no regular expression that can be used: {why}")]
    Mask { pattern: String, why: String },
    #[error(
        "the turn log {dir} is in use by {holder}: one process owns it; ask the running `metaclaw`, or stop it first", dir = .dir.display()
    )]
    Held { dir: PathBuf, holder: String },
    #[error("no space left on the disk of the turn log {dir}: free some; a metaclaw that runs then keeps turns again by itself", dir = .dir.display())]
    Full { dir: PathBuf },
    #[error(
        "the turn log cannot use {path}: {source}; {remedy}. Nothing was moved or removed", path = .path.display()
    )]
    NotUsable {
        path: PathBuf,
        source: io::Error,
        remedy: String,
    },
    #[error(
        "the turn log {dir} has lost its database: put a backup back, or delete {dir}/FORMAT to begin an empty log", dir = .dir.display()
    )]
    Vanished { dir: PathBuf },
    #[error(
        "the turn log {dir} has format {found}, which this program does not read: it reads format {known}. Nothing was changed. \
         Export its turns with the metaclaw that wrote it (`metaclaw turns export > turns.jsonl`), move {dir} away, and bring \
         them back with `metaclaw turns import turns.jsonl`; or only move {dir} away, and an empty log begins", dir = .dir.display()
    )]
    Older {
        dir: PathBuf,
        found: String,
        known: u32,
    },
    #[error(
        "the turn log {dir} has format {found}, of a later metaclaw: this program knows formats up to {known}. Nothing was changed. \
         Start the metaclaw that wrote it, or a later one", dir = .dir.display()
    )]
    Newer {
        dir: PathBuf,
        found: String,
        known: u32,
    },
    #[error(
        "the turn log {dir} is damaged ({why}), and is repaired only once there is a copy of it, which cannot be made: {source}. \
         Nothing was changed. Make room for {n_mib} MiB on its disk, then start again", dir = .dir.display()
    )]
    NoCopy {
        dir: PathBuf,
        why: String,
        n_mib: u64,
        source: io::Error,
    },
    #[error(
        "the turn log {dir} does not open ({why}), and neither does an empty database beside it ({probe}): so it is not the log \
         that is damaged. Nothing was moved. See to the limits of memory, threads and open files of this process, and to the disk",
        dir = .dir.display()
    )]
    Environment {
        dir: PathBuf,
        why: String,
        probe: String,
    },
    #[error("the turn log {dir} is damaged ({why}) and could not be moved aside: {source}", dir = .dir.display())]
    Damaged {
        dir: PathBuf,
        why: String,
        source: io::Error,
    },
    #[error("the turn log {dir} does not open: {why}", dir = .dir.display())]
    Other { dir: PathBuf, why: String },
}

/// Why an operation of the log failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    #[error("the turn log is closed")]
    Closed,
    #[error("the turn log cannot be used for now: {why}")]
    Broken { why: String },
    #[error("there is no turn {id} in the log")]
    NoSuchTurn { id: TurnId },
    #[error("there is no rollout {id} in the log")]
    NoSuchRollout { id: RolloutId },
    #[error("rollout {id} is closed already: it keeps its outcome")]
    RolloutClosed { id: RolloutId },
    #[error("{what} of {n_bytes} bytes is not stored: at most {max} bytes are")]
    TooLarge {
        what: &'static str,
        n_bytes: usize,
        max: usize,
    },
    #[error("a turn of {n} messages is not stored: at most {max} messages are")]
    TooManyMessages { n: usize, max: usize },
    #[error("a new turn cannot be read: {why}")]
    Unreadable { why: String },
    #[error(
        "tokens of turn {id}: {n_ids} ids but {n_logprobs} log-probabilities and {n_sampling} of sampling"
    )]
    UnevenTokens {
        id: TurnId,
        n_ids: usize,
        n_logprobs: usize,
        n_sampling: usize,
    },
    #[error("{what} in the turn log cannot be read: {why}")]
    Damaged { what: String, why: String },
    #[error(transparent)]
    NotTaken(#[from] TakeError),
}

/// Makes an error for a part of a new turn, or of an export, that fits in no value.
impl From<serde_json::Error> for LogError {
    fn from(error: serde_json::Error) -> Self {
        let why = error.to_string();
        Self::Unreadable { why }
    }
}

/// Why no training step began. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TakeError {
    #[error("turn {id} is not free for a training step: it is {state:?}, only judged ones are")]
    NotFree { id: TurnId, state: TurnState },
    #[error("turn {id} belongs to another agent")]
    NotTheirs { id: TurnId },
    #[error("turn {id} is named twice in one training step")]
    Twice { id: TurnId },
    #[error("a training step needs at least one turn")]
    Empty,
    #[error("training step {n} of this agent is still open: finish it first")]
    StepOpen { n: u64 },
    #[error("training step {n}, attempt {attempt}, was made before in this lineage")]
    Exists { n: u64, attempt: u32 },
}

/// Why an export ended early.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error(transparent)]
    Log(#[from] LogError),
    #[error("the export cannot be written: {0}")]
    Write(#[from] io::Error),
}
