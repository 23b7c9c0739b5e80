//! A vLLM server that serves the policy model while another process trains it: loads and unloads adapters, and
//! continues token ids.
//!
//! Prompts are sent as ids to `/v1/completions`, and ids come back, so that no template or parser of the server is
//! involved. Log-probabilities are at temperature 1 as long as the server runs with its default
//! `--logprobs-mode raw_logprobs`.

mod client;
mod events;

#[cfg(test)]
mod tests;

pub use self::client::{VllmClient, VllmModels};
