//! The running process, asked by its own subcommands: loopback only, with a token of its own.
//!
//! The token is not the proxy's key: whoever may chat may not thereby stop, train or read the log.

mod answer;
mod client;
mod export;
mod lessons;
mod replay;
mod server;
mod training;
mod wire;

pub(crate) use self::{
    client::{ControlClient, ControlError},
    export::{missing, write as write_lines},
    server::serve,
    wire::{
        AdapterChoice, AdapterView, Forget, LessonsView, LogStatus, LostAdapter, SkillChange,
        SkillView, Status, TrainerStatus, TurnsQuery, WishChange,
    },
};
