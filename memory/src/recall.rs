//! Chooses the memories that a session gets.

use std::{
    fs::OpenOptions,
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use metaclaw_chat::AgentId;
use serde_json::json;

use crate::{memory::Memory, policy::MemoryPolicy, render, retrieve, scope::MemoryScope};

/// The largest telemetry file in bytes. A larger one is renamed to `.1`, and a new one begins.
const MAX_TELEMETRY: u64 = 16 << 20;

/// The memories of one session.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Recall {
    /// The text for the system prompt, or `None` without memories.
    pub block: Option<String>,
    /// The chosen memories, best first.
    pub memories: Vec<Memory>,
}

/// Chooses from the active memories of a scope: first the pinned ones, then those that share words with the query, and
/// then, if the policy adds them, the most important of the others. The result is within both limits.
pub(crate) fn choose(
    memories: &[&Memory],
    query: &str,
    policy: &MemoryPolicy,
    now_ms: u64,
) -> Recall {
    let all = || memories.iter().copied();
    let hits = retrieve::search(all(), query, policy, now_ms);
    let mut ranked: Vec<&Memory> =
        retrieve::by_standing(all().filter(|it| it.is_pinned()), policy, now_ms);
    ranked.extend(hits.iter().map(|hit| &hit.memory));
    if policy.adds_important {
        ranked.extend(retrieve::by_standing(all(), policy, now_ms));
    }
    let mut left = policy.max_tokens.saturating_sub(render::base_cost());
    let mut chosen: Vec<Memory> = Vec::new();
    for memory in ranked {
        // The same words may be in the agent's own file and in the shared one.
        let is_same =
            |it: &Memory| it.memory_id == memory.memory_id || it.content == memory.content;
        let is_there = chosen.iter().any(is_same);
        let cost = render::cost(memory);
        if chosen.len() < policy.max_units && !is_there && cost <= left {
            left -= cost;
            chosen.push(memory.clone());
        }
    }
    Recall {
        block: render::block(&chosen),
        memories: chosen,
    }
}

/// Adds a line about a recall to the telemetry file.
pub(crate) fn note(
    path: &Path,
    agent: &AgentId,
    scope: &MemoryScope,
    recall: &Recall,
    now_ms: u64,
) -> io::Result<()> {
    if std::fs::metadata(path).is_ok_and(|it| it.len() > MAX_TELEMETRY) {
        let mut aside = path.as_os_str().to_owned();
        aside.push(".1");
        std::fs::rename(path, aside)?;
    }
    let ids: Vec<&str> = recall
        .memories
        .iter()
        .map(|it| it.memory_id.as_str())
        .collect();
    let line = json!({
        "at_ms": now_ms, "agent": agent, "scope_id": scope, "memory_ids": ids,
        "tokens": recall.block.as_deref().map_or(0, metaclaw_skills::estimate_tokens),
    });
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(path)?;
    writeln!(file, "{line}")
}
