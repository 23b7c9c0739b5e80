//! The tests that an adapter passes before it serves.
//!
//! What it would say is compared with what the base model says with the agent's wishes in the prompt (the
//! reference), and what it knows with what the base model knows: an adapter is to do what its owner likes
//! and lose nothing else. The probes are texts of our own in `probes/`. What the tests of earlier steps came to stands in the
//! turn log; [`Series`] reads from there what follows: at which rate the next step is made, or how long none is.

mod base;
mod candidate_test;
mod evaluation;
mod evaluator;
mod preference;
mod probes;
mod replies;
mod report;
mod series;
mod tasks;
mod watch;

pub(crate) use self::{
    candidate_test::{AdapterTestError, CandidateTest, test_adapter},
    evaluation::Gate,
    evaluator::{EvalReplies, Evaluator, Posed},
    probes::Probes,
    series::{IN_A_ROW, LastDeclined, Series},
    watch::{VerdictHistory, regression, seen, taken_back},
};
pub use self::{
    evaluator::{KnowledgeNumbers, ReplyNumbers},
    report::{GateReport, GateTest},
};
