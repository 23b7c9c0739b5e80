//! A chat model, asked: one client for judge, evolver and teacher, over any OpenAI-compatible server.
//!
//! What is asked here is learning work: it has a deadline, it is retried where that can help, and it
//! has a budget. The chat itself never goes through this crate.

mod budget;
mod client;
mod config;
mod http;

pub use self::{
    budget::{Budget, BudgetConfig, Spent},
    client::{Answer, AskCounts, AskError, AskParams, ChatClient},
    config::{ConfigError, LlmConfig},
    http::{HttpError, http_client, loopback_client, tls_config},
};
