//! Keys of single agents, and those that are read and do nothing yet, or never will.

use super::shared::{ANY, LATER, NO_AGENT_SETTINGS, NO_BEDROCK, NO_MEMORY};
use crate::{
    key::{Key, State::Alias, inert, key},
    kind::Kind::{Bool, OneOf, OneOrMore, Text, Tree},
};

pub(super) const AGENTS: &[Key] = &[
    key(
        "agents.*.mode",
        OneOf(&["auto", "rl", "skills_only", "madmax"]),
        "",
        "as mode, for this agent; skills_only: the policy model answers it only where nobody else can",
    )
    .values(&[("madmax", Alias("auto"))]),
    key(
        "agents.*.upstream",
        OneOrMore,
        "",
        "whom it is answered by, in place of all others in routing.order; one name or several. A line in a user's message alone brings no chat here",
    ),
    inert("agents.*.skills_dir", Text, NO_AGENT_SETTINGS),
    inert("agents.*.wishes", Tree("a tree"), NO_AGENT_SETTINGS),
    inert("agents.*.rl", Tree("a tree"), NO_AGENT_SETTINGS),
    inert("agents.*.lora_output", Text, NO_AGENT_SETTINGS),
];

pub(super) const OLDER: &[Key] = &[
    inert("bedrock_region", Text, NO_BEDROCK),
    inert("openrouter.app_name", Text, LATER),
    inert("openrouter.app_url", Text, LATER),
    inert("openrouter.route", Text, LATER),
    inert("openrouter.fallback_models", Text, LATER),
    inert("openrouter.data_policy", Text, LATER),
    inert("memory.enabled", Bool, NO_MEMORY),
    inert("memory.dir", Text, NO_MEMORY),
    inert("memory.scope", Text, NO_MEMORY),
    inert("memory.store_path", Text, NO_MEMORY),
    inert("memory.policy_path", Text, NO_MEMORY),
    inert("memory.telemetry_path", Text, NO_MEMORY),
    inert("memory.retrieval_mode", Text, NO_MEMORY),
    inert("memory.use_embeddings", Bool, NO_MEMORY),
    inert("memory.embedding_mode", Text, NO_MEMORY),
    inert("memory.embedding_model", Text, NO_MEMORY),
    inert("memory.embedding_model_path", Text, NO_MEMORY),
    inert("memory.auto_upgrade_enabled", Bool, NO_MEMORY),
    inert("memory.auto_upgrade_interval_seconds", ANY, NO_MEMORY),
    inert("memory.auto_upgrade_require_review", Bool, NO_MEMORY),
    inert("memory.review_stale_after_hours", ANY, NO_MEMORY),
    inert("memory.max_injected_units", ANY, NO_MEMORY),
    inert("memory.max_injected_tokens", ANY, NO_MEMORY),
    inert("memory.auto_extract", Bool, NO_MEMORY),
    inert("memory.auto_consolidate", Bool, NO_MEMORY),
    inert("memory.ignore_turn_type", Bool, NO_MEMORY),
    inert("memory.manual_trigger", Bool, NO_MEMORY),
    inert("memory.flush_every", ANY, NO_MEMORY),
    inert("memory.top_k", ANY, NO_MEMORY),
    inert("memory.max_tokens", ANY, NO_MEMORY),
    inert("memory.consolidation_interval", ANY, NO_MEMORY),
    inert("memory.sidecar_url", Text, NO_MEMORY),
    inert(
        "wechat.enabled",
        Bool,
        "nothing is installed into other programs",
    ),
];
