//! Reads the agent's own configuration, points it at the proxy, and restores it.
//!
//! Nothing is changed before the owner agrees, and then only a little: one additional entry, the primary model, and
//! the former model as its first fallback. If the proxy is gone, the agent only needs a retry. A copy of the file and a
//! record of the change are on the disk before the change ([`Wires`]). So after a crash at any point, the next start
//! can restore a valid state.
//!
//! The agents are rows of `data/agents.yaml`, which say which keys of which files make the agent use the proxy. [`Wires`]
//! sets these keys and restores the files. OpenClaw has a module beside its row, because its keys depend on the model
//! that it asks today, which becomes its fallback.

mod diff;
mod document;
mod files;
mod format;
mod found;
mod keys;
mod openclaw;
mod outcome;
mod profile;
mod rebase;
mod settings;
mod surroundings;
mod target;
mod today;
mod tree;
mod wire_record;
mod wires;

#[cfg(test)]
mod tests;

pub use self::{
    found::{Api, Credential, DetectError, Found},
    keys::Models,
    openclaw::{detect, entry::models},
    outcome::WiringError,
    profile::{AgentProfile, OPENCLAW, PROFILES, profile, remembering},
    settings::Settings,
    surroundings::Surroundings,
    target::Target,
    today::AskedToday,
    wire_record::WireRecord,
    wires::{WayBack, WirePlan, WireStanding, Wires},
};
