//! Kinds and reasons that several parts of the table use.

use super::super::kind::Kind::{self, Count, Number};

pub(super) const ANY: Kind = Count(0, u64::MAX);
/// Any whole number but 0.
pub(super) const SOME: Kind = Count(1, u64::MAX);
/// A number that is not negative.
pub(super) const POSITIVE: Kind = Number(0.0, f64::MAX);

pub(super) const LATER: &str = "not built yet";
pub(super) const NO_MEMORY: &str = "there is no memory store: wishes and skills remember";
pub(super) const NO_BEDROCK: &str =
    "Bedrock is not built: give an OpenAI-compatible address in llm.api_base";
pub(super) const NO_CLI: &str =
    "signing in through a provider's command line is not built: give llm.api_base and llm.api_key";
pub(super) const NO_CLOUD: &str = "not built yet: use local or remote";
pub(super) const NO_EMBEDDINGS: &str = "not built yet: bm25 is used";
pub(super) const NO_AGENT_SETTINGS: &str = "not built yet for single agents";
pub(super) const NO_ADAPTERS: &str =
    "only OpenClaw can be pointed at the proxy: give this one the base URL";
