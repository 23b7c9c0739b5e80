//! From what happened to a verdict: the judge's prompt, its answer, votes, rules. No network.
//!
//! [`may_complain`] tells where a judge is worth its price, [`prompt`] makes the messages for a judge model, [`vote`] reads its answer, [`verdict`] counts
//! votes; [`Rules`] judge without any model. Asking the model is the caller's work.

mod complaint;
mod evidence;
pub mod hint;
pub mod prompt;
mod rules;
pub mod verdict;
pub mod vote;
mod words;

pub use self::{
    complaint::may_complain,
    evidence::Evidence,
    rules::{On, Rule, RuleError, Rules},
    words::count_words,
};
