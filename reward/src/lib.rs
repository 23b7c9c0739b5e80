//! Computes a verdict: the judge's prompt, its answer, votes, rules, scores of a reward function. This crate uses no
//! network.
//!
//! [`may_complain`] tells whether a judge is worth its cost. [`Policy`] makes the judge model's prompts, and reads and
//! counts its answers. [`Rules`] judge without a model. [`grade`] reads a reward function's answer. The caller sends
//! the requests.

mod evidence;
pub mod grade;
pub mod hint;
mod patterns;
mod policy;
pub mod prompt;
mod rules;
pub mod verdict;

pub use crate::{
    evidence::Evidence,
    policy::{Policy, Questions},
    rules::{On, Rule, RuleError, Rules, may_complain, plain_verdict},
};
