//! The durable turn log on sled: what was said, judged, taken and trained.
//!
//! A turn is written once and never lost: [`TurnLog::append`] returns after the flush, and what it
//! has acknowledged is in the log, whole and once, whatever is killed afterwards. Requests repeat
//! their history; a record holds only what is new in it. docs/turn-log.md describes what lies on disk.
//!
//! One thread owns the store (`thread`, `engine`); the handle sends it jobs (`log`). Only `store` names
//! sled.

mod append;
mod blobs;
mod codec;
mod config;
mod diff;
mod engine;
mod error;
mod export;
mod health;
mod index;
mod keys;
mod log;
mod open;
mod query;
mod raw;
mod record;
mod resolve;
mod run;
mod state;
mod step;
mod store;
mod tail;
mod text;
mod thread;
mod times;
mod tokens;
mod turn;
mod txn;
mod view;
mod witness;

#[cfg(test)]
mod tests;

pub use self::{
    config::{Durability, TurnsConfig},
    error::{ExportError, FinishError, LogError, OpenError, TakeError},
    export::ExportFilter,
    health::{LogHealth, MovedAside, OpenOutcome},
    log::TurnLog,
    raw::{RawMessage, RawSetup, RawTurn},
    step::{NewStep, Step, StepOutcome},
    text::JsonText,
    thread::Done,
    turn::{
        LessonRef, NewTurn, Request, Served, StateKind, StreamEnd, Tokens, Turn, TurnKind,
        TurnState,
    },
    view::{Funnel, MAX_LIST, SessionSummary, TurnFilter, TurnSummary},
};
