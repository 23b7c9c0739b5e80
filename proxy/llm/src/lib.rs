//! Requests to a chat model: one client for judge, evolver and teacher, for any OpenAI-compatible server. Also requests
//! to a reward function, which answers JSON with JSON.
//!
//! These requests serve learning. Each has a deadline, retries if that can help, and a token budget. The chat itself
//! never goes through this crate.

mod azure;
mod client;
mod config;
mod http;
mod post;
mod prices;

pub use crate::{
    azure::is_azure,
    client::{Answer, AskCounts, AskError, AskParams, ChatClient},
    config::{ConfigError, ExtraParts, LlmConfig},
    http::{
        Budget, BudgetConfig, HttpError, Spent, bounded_body, http_client,
        http_client_with_brief_idle, loopback_client, tls_config,
    },
    post::{PostClient, PostError},
    prices::{ModelPrice, NotAPrice, dollars, list_prices, list_prices_as_of, price_of},
};
