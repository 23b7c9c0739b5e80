//! The tests that an adapter passes before it serves.
//!
//! What it would say is compared with what the base model says with the agent's wishes in the prompt (the
//! [reference](reference)), and what it knows with what the base model knows: an adapter is to do what its owner likes
//! and lose nothing else. The probes are texts of our own in `probes/`. What the tests of earlier steps came to stands in the
//! turn log; [`Series`] reads from there what follows: at which rate the next step is made, or how long none is.

mod base;
mod baseline_cache;
mod candidate_test;
mod capability;
mod checks;
mod comparison;
mod cusum;
mod evaluation;
mod evaluator;
mod internalized;
mod line;
mod measures;
mod obedience;
mod pairs;
mod preference;
mod probes;
mod reference;
mod regression;
mod report;
mod series;
mod tasks;
mod tools;
mod verdict_history;
mod wishes;

#[cfg(test)]
pub(crate) use self::probes::Probes;
pub(crate) use self::{
    candidate_test::{AdapterTestError, CandidateTest, test_adapter},
    evaluation::Gate,
    evaluator::{EvalReplies, Evaluator, Posed},
    regression::{regression, seen, taken_back},
    series::{IN_A_ROW, LastDeclined, Series},
    verdict_history::VerdictHistory,
};
pub use self::{
    evaluator::{KnowledgeNumbers, ReplyNumbers},
    report::{GateReport, GateTest},
};
