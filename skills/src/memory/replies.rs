//! The replies of the memory API, in the shapes of the Python original.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    Memory, MemoryState,
    recall::{MemoryHit, MemoryPolicy},
};
use crate::config::MemoryConfig;

/// The longest text of a search result in characters, as in the original.
const EXCERPT: usize = 200;

/// Returns the reply of `GET /v1/memory/{id}`, and one element of a list.
pub fn memory_json(memory: &Memory) -> Value {
    let (status, why) = match &memory.state {
        MemoryState::Active => ("active", &[][..]),
        MemoryState::Superseded { .. } => ("superseded", &[][..]),
        MemoryState::Review { why } => ("review", why.as_slice()),
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
        "waits_because": why.iter().map(ToString::to_string).collect::<Value>(),
        "agent": memory.origin.agent,
        "source_session_id": memory.origin.session,
        "source_turn": memory.origin.turn.map(|turn| turn.to_string()),
    })
}

/// Returns the reply of `GET /v1/memory/search`.
pub fn search_json(hits: &[MemoryHit]) -> Value {
    let hits = hits.iter().map(|hit| {
        json!({
            "memory_id": hit.memory.memory_id,
            "type": hit.memory.kind,
            "score": rounded(hit.score),
            "content": hit.memory.content.chars().take(EXCERPT).collect::<String>(),
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
    let (mut n_active, mut n_waiting, mut by_type) = (0, 0, BTreeMap::<String, usize>::new());
    for memory in memories {
        match memory.state {
            MemoryState::Active => {
                n_active += 1;
                *by_type.entry(memory.kind.to_string()).or_default() += 1;
            }
            MemoryState::Review { .. } => n_waiting += 1,
            MemoryState::Superseded { .. } => {}
        }
    }
    let total = memories.len();
    let share = |n: usize, of: usize| rounded(n as f32 / of.max(1) as f32);
    let ratios = by_type.iter().map(|(kind, n)| (kind, share(*n, n_active)));
    let dominant = by_type.iter().max_by_key(|(_, n)| **n);
    json!({
        "scope_id": scope,
        "total": total,
        "active": n_active,
        "active_by_type": by_type,
        "memory_density": share(n_active, total),
        "dominant_type": dominant.map_or("", |(kind, _)| kind.as_str()),
        "type_count": by_type.len(),
        "type_ratios": ratios.collect::<BTreeMap<_, _>>(),
        "superseded": total - n_active - n_waiting,
        "waiting_for_review": n_waiting,
    })
}

/// Returns the reply of `GET /v1/memory/summary` for all memories.
pub fn summary_json(config: &MemoryConfig, policy: &MemoryPolicy, memories: &[Memory]) -> Value {
    let mut scopes = BTreeMap::<&str, [usize; 2]>::new();
    let mut n_active = 0;
    for memory in memories {
        let [active, total] = scopes.entry(memory.scope_id.as_str()).or_default();
        *active += usize::from(memory.is_active());
        *total += 1;
        n_active += usize::from(memory.is_active());
    }
    let listed = scopes.iter().map(
        |(scope, [active, total])| json!({"scope_id": scope, "active": active, "total": total}),
    );
    json!({
        "schema_version": 1,
        "scopes": listed.collect::<Value>(),
        "scope_count": scopes.len(),
        "total_active_memories": n_active,
        "policy": {
            "retrieval_mode": config.retrieval_mode,
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
    let seconds = i64::try_from(at_ms / 1_000).ok();
    let time = seconds.and_then(|seconds| Timestamp::from_second(seconds).ok());
    time.map(|time| time.to_string()).unwrap_or_default()
}
