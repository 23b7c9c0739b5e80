//! From what happened to a verdict: the judge's prompt, its answer, votes, rules, scores of a reward function. No network.
//!
//! [`may_complain`] tells where a judge is worth its price, [`Policy`] says what a judge model is asked and how its answers are read and counted; [`Rules`]
//! judge without any model; [`grade`] reads what a reward function answers. Asking is the caller's work.

mod complaint;
mod evidence;
pub mod grade;
pub mod hint;
mod policy;
pub mod prompt;
mod rules;
pub mod verdict;
pub mod vote;
mod words;

pub use self::{
    complaint::may_complain,
    evidence::Evidence,
    policy::{Policy, Questions},
    rules::{On, Rule, RuleError, Rules},
    words::count_words,
};
