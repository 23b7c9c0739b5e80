//! The durable turn log on sled: turns with their verdicts and training states.
//!
//! A turn is written once and never lost: [`TurnLog::append`] returns after the flush. An acknowledged turn is in the
//! log, complete and once, even after a kill. Requests repeat their history, and a record contains only its new part.
//! README.md describes the files on disk.
//!
//! One thread owns the store (`worker`, `engine`). The handle sends jobs to it (`log`). Only `store` names sled.

mod append;
mod broken;
mod clock;
mod codec;
mod config;
mod conversations;
mod copy;
mod counter;
mod counts;
mod engine;
mod error;
mod export;
mod folder;
mod forget;
mod health;
mod import;
mod jobs;
mod journal;
mod keys;
mod learning;
mod lessons;
mod lines;
mod list;
mod log;
mod mask;
mod mend;
mod new_turn;
mod prompt;
mod query;
mod read;
mod record;
mod rollouts;
mod serving;
mod session;
mod session_names;
mod set_aside;
mod state;
mod statistics;
mod step;
mod store;
mod text;
mod texts;
mod tokens;
mod turn;
mod txn;
mod values;
mod verdicts;
mod work;
mod worker;

#[cfg(test)]
mod tests;

pub use self::{
    broken::BrokenPrompt,
    clock::ClockReadings,
    config::{Durability, TurnsConfig},
    conversations::{ConversationFilter, ConversationPage, ConversationSummary},
    counts::{BreakCounts, DailyCounts, DayStatistics, Funnel, LessonCounts, day_of},
    error::{ExportError, LogError, OpenError, TakeError},
    export::{Exported, ExportedTurn},
    health::{LogHealth, MovedAside, OpenOutcome},
    import::{
        Fingerprint, ImportOutcome, ImportedTurn, MAX_IMPORT, MAX_IMPORT_BYTES, MAX_RESTORE,
        RestoredTurn, Restoring,
    },
    jobs::Done,
    lessons::WISH,
    list::{MAX_LIST, TurnFilter, TurnSummary},
    log::{LogFuture, TurnLog},
    new_turn::{NewMessage, NewTurn},
    query::{LogReader, Replied},
    rollouts::{
        RolloutFilter,
        record::{Rollout, RolloutEnd, RolloutState},
    },
    serving::Choice,
    set_aside::SetAside,
    statistics::LogCounts,
    step::{NewStep, Step, StepOutcome, TakenBack},
    text::JsonText,
    turn::{
        BreakCause, LessonRef, Request, RolloutMark, Served, StateKind, StreamEnd, Tokens, Turn,
        TurnKind, TurnMeta, TurnState, Use,
    },
};
