//! A chat model, asked: one client for judge, evolver and teacher, over any OpenAI-compatible server; and a reward
//! function, which answers JSON with JSON.
//!
//! What is asked here is learning work: it has a deadline, it is retried where that can help, and it
//! has a budget. The chat itself never goes through this crate.

mod azure;
mod budget;
mod client;
mod config;
mod http;
mod post;

pub use self::{
    azure::is_azure,
    budget::{Budget, BudgetConfig, Spent},
    client::{Answer, AskCounts, AskError, AskParams, ChatClient},
    config::{ConfigError, LlmConfig},
    http::{HttpError, http_client, http_client_with_brief_idle, loopback_client, tls_config},
    post::{PostClient, PostError},
};
