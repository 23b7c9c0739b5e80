//! The tests that an adapter passes before it serves.
//!
//! What it would say is compared with what the base model says with the agent's wishes in the prompt (the
//! [reference](reference)), and what it knows with what the base model knows: an adapter is to do what its owner likes
//! and lose nothing else. The probes are texts of our own in `probes/`. What the tests of earlier steps came to stands in the
//! turn log; [`Series`] reads from there what follows: at which rate the next step is made, or how long none is.

mod base;
mod capability;
mod checks;
mod comparison;
mod cusum;
mod evaluation;
mod kept;
mod line;
mod measures;
mod obedience;
mod preference;
mod probes;
mod readings;
mod reference;
mod report;
mod series;
mod tools;
mod untold;

#[cfg(test)]
pub(crate) use self::probes::Probes;
pub(crate) use self::{
    cusum::change_point,
    evaluation::{Candidate, Gate},
    preference::PreferencePair,
    readings::{Heard, Posed, Readings},
    series::{IN_A_ROW, LastDeclined, Series},
};
pub use self::{
    readings::{KnowledgeNumbers, ReplyNumbers},
    report::{GateReport, GateTest},
};
