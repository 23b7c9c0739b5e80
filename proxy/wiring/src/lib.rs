//! The agent's own configuration: what model it asks, how it is pointed at the proxy, and how all
//! of it is put back.
//!
//! Nothing is touched before its owner said yes, and then little: one entry more, the primary model,
//! and the former model as its first fallback, so that a proxy that is gone costs a retry and not
//! the agent. A copy of the file and a record of the change are on the disk before the change is
//! ([`Wiring`]), so that a crash at any point is settled by whoever looks next.
//!
//! OpenClaw is the one agent that is known. Another one is a variant of [`Agent`] and a module like
//! `openclaw`.

mod agent;
mod by_hand;
mod detect;
mod document;
mod files;
mod found;
mod openclaw;
mod outcome;
mod record;
mod target;
mod wiring;

#[cfg(test)]
mod tests;

pub use self::{
    agent::{Agent, Surroundings},
    detect::detect,
    found::{Api, Credential, DetectError, Found},
    outcome::{Outcome, WiringError},
    record::{Models, Record},
    target::Target,
    wiring::{Standing, Wiring},
};
