//! Reads the agent's own configuration, points it at the proxy, and restores it.
//!
//! Nothing is changed before the owner said yes, and then only a little: one additional entry, the primary model, and
//! the former model as its first fallback. If the proxy is gone, the agent only needs a retry. A copy of the file and a
//! record of the change are on the disk before the change ([`Wiring`]). So after a crash at any point, the next start
//! can restore a valid state.
//!
//! OpenClaw is the only agent so far. To add another one, add a variant of [`Agent`] and a module like `openclaw`.

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
