//! The tests that an adapter passes before it serves.
//!
//! What it would say is compared with what the base model says with the agent's wishes in the prompt (the reference), and
//! what it knows with what the base model knows: an adapter is to do what its owner likes and lose nothing else. The
//! results of the tests of earlier steps are in the turn log.
//!
//! Read the files in this order:
//!
//! | file | what it has |
//! |---|---|
//! | `report` | one test with its limit, and the results of all tests of one adapter |
//! | `probes` | the inputs of the tests: questions, general knowledge, requests of agents |
//! | `replies`, `requirement` | how replies are drawn and measured, and what is required of them |
//! | `preference`, `tasks` | pairs of held-out replies, held-out tasks |
//! | `base` | the base model's results, kept on disk |
//! | `evaluation` | the tests, one after another |
//! | `candidate_test` | a step's candidate before these tests, while the trainer may not answer |
//! | `evaluator` | the same numbers with nothing decided, for `eval` |
//! | `series`, `watch` | what follows: the rate of the next step, a rest, and an adapter that is taken back |

mod base;
mod candidate_test;
mod evaluation;
mod evaluator;
mod preference;
mod probes;
mod replies;
mod report;
mod requirement;
mod series;
mod tasks;
mod watch;

pub(crate) use self::{
    candidate_test::{AdapterTestError, CandidateTest, test_adapter},
    evaluation::Gate,
    evaluator::{EvalReplies, Evaluator, Posed},
    probes::Probes,
    series::{LastDeclined, Series},
    watch::{VerdictHistory, regression, seen, taken_back},
};
pub use self::{
    evaluator::{KnowledgeNumbers, ReplyNumbers},
    report::{GateReport, GateTest, ReplyPair},
};
