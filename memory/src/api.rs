//! Replies of the memory API, in the shapes of the Python original.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    config::{MemoryConfig, RetrievalMode},
    memory::{Memory, MemoryState},
    policy::MemoryPolicy,
    retrieve::MemoryHit,
};

/// The longest text of a search result in characters, as in the original.
const EXCERPT: usize = 200;

/// Returns the reply of `GET /v1/memory/{id}`, and one element of a list.
pub fn memory_json(memory: &Memory) -> Value {
    let (status, why) = match &memory.state {
        MemoryState::Active => ("active", Vec::new()),
        MemoryState::Superseded { .. } => ("superseded", Vec::new()),
        MemoryState::Review { why } => ("review", why.iter().map(ToString::to_string).collect()),
    };
    json!({
        "memory_id": memory.memory_id,
        "scope_id": memory.scope_id,
        "type": memory.kind,
        "content": memory.content,
        "summary": "",
        "importance": rounded(memory.importance),
        "entities": [],
        "topics": [],
        "tags": [],
        "pinned": memory.is_pinned(),
        "created_at": iso(memory.origin.at_ms),
        "updated_at": iso(memory.updated_ms),
        "expires_at": "",
        "status": status,
        "waits_because": why,
        "agent": memory.origin.agent,
        "source_session_id": memory.origin.session,
        "source_turn": memory.origin.turn.map(|turn| turn.to_string()),
    })
}

/// Returns the reply of `GET /v1/memory/search`.
pub fn search_json(hits: &[MemoryHit]) -> Value {
    let hits = hits.iter().map(|hit| {
        let content: String = hit.memory.content.chars().take(EXCERPT).collect();
        json!({
            "memory_id": hit.memory.memory_id,
            "type": hit.memory.kind,
            "score": rounded(hit.score),
            "content": content,
            "importance": rounded(hit.memory.importance),
            "access_count": 0,
            "matched_terms": hit.matched_terms,
            "created_at": iso(hit.memory.origin.at_ms),
        })
    });
    hits.collect()
}

/// Returns the reply of `GET /v1/memory/stats` for the memories of a scope.
pub fn stats_json(scope: &str, memories: &[Memory]) -> Value {
    let active: Vec<&Memory> = memories.iter().filter(|it| it.is_active()).collect();
    let (n_active, total) = (active.len(), memories.len());
    let mut by_type = BTreeMap::<&str, usize>::new();
    for memory in &active {
        *by_type.entry(memory.kind.as_str()).or_default() += 1;
    }
    let share = |n: usize, of: usize| rounded(n as f32 / of.max(1) as f32);
    let ratios: BTreeMap<&str, f64> = by_type
        .iter()
        .map(|(kind, n)| (*kind, share(*n, n_active)))
        .collect();
    let dominant = by_type
        .iter()
        .max_by_key(|(_, n)| **n)
        .map_or("", |(kind, _)| *kind);
    let waiting = memories
        .iter()
        .filter(|it| matches!(it.state, MemoryState::Review { .. }));
    let superseded = memories
        .iter()
        .filter(|it| matches!(it.state, MemoryState::Superseded { .. }));
    json!({
        "scope_id": scope,
        "total": total,
        "active": n_active,
        "active_by_type": by_type,
        "memory_density": share(n_active, total),
        "dominant_type": dominant,
        "type_count": by_type.len(),
        "type_ratios": ratios,
        "superseded": superseded.count(),
        "waiting_for_review": waiting.count(),
    })
}

/// Returns the reply of `GET /v1/memory/summary` for all memories.
pub fn summary_json(config: &MemoryConfig, policy: &MemoryPolicy, memories: &[Memory]) -> Value {
    let mut scopes = BTreeMap::<&str, (usize, usize)>::new();
    for memory in memories {
        let counts = scopes.entry(memory.scope_id.as_str()).or_default();
        counts.0 += usize::from(memory.is_active());
        counts.1 += 1;
    }
    let mode = match config.retrieval_mode {
        RetrievalMode::Auto => "auto",
        RetrievalMode::Keyword => "keyword",
        RetrievalMode::Hybrid => "hybrid",
    };
    let listed: Vec<Value> = scopes
        .iter()
        .map(
            |(scope, (active, total))| json!({"scope_id": scope, "active": active, "total": total}),
        )
        .collect();
    json!({
        "schema_version": 1,
        "scopes": listed,
        "scope_count": scopes.len(),
        "total_active_memories": scopes.values().map(|it| it.0).sum::<usize>(),
        "policy": {
            "retrieval_mode": mode,
            "max_injected_units": policy.max_units,
            "max_injected_tokens": policy.max_tokens,
        },
    })
}

fn rounded(number: f32) -> f64 {
    (f64::from(number) * 10_000.0).round() / 10_000.0
}

/// Returns a time in ISO 8601, in UTC and whole seconds.
fn iso(at_ms: u64) -> String {
    let at = i64::try_from(at_ms / 1_000)
        .ok()
        .and_then(|s| Timestamp::from_second(s).ok());
    at.map(|at| at.to_string()).unwrap_or_default()
}
