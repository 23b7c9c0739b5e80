//! Kinds and reasons that several parts of the table use.

use super::super::kind::Kind::{self, Count, Number};

pub(super) const ANY: Kind = Count(0, u64::MAX);
/// Any whole number but 0.
pub(super) const SOME: Kind = Count(1, u64::MAX);
/// A number that is not negative.
pub(super) const POSITIVE: Kind = Number(0.0, f64::MAX);

pub(super) const LATER: &str = "not built yet";
pub(crate) const NO_MEMORY: &str = "there is no memory store: wishes and skills remember";
pub(crate) const NO_BEDROCK: &str =
    "Bedrock is not built: give an OpenAI-compatible address in llm.api_base";
pub(super) const NO_GOOGLE: &str =
    "Google's API is not asked: give the calendar's secret address in iCal format in scheduler.ics";
pub(super) const NO_EMBEDDINGS: &str = "not built yet: skills are found by words";
pub(super) const NO_AGENT_SETTINGS: &str = "not built yet for single agents";
pub(super) const NO_ADAPTERS: &str =
    "only OpenClaw can be pointed at the proxy: give this one the base URL";
