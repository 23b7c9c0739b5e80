//! Finds memories by their words: BM25, as for skills, with weights for importance and age.
//!
//! Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009), with k1 = 1.2 and b = 0.75.

use std::collections::{BTreeMap, BTreeSet};

use metaclaw_skills::terms;

use crate::{memory::Memory, policy::MemoryPolicy};

const K1: f32 = 1.2;
const B: f32 = 0.75;
const MS_PER_HOUR: f32 = 3_600_000.0;

/// A memory that a search found.
#[derive(Debug, Clone, PartialEq)]
pub struct MemoryHit {
    pub memory: Memory,
    /// Higher is better.
    pub score: f32,
    /// The words of the query that the memory has, in lower case and without their endings.
    pub matched_terms: Vec<String>,
}

/// Returns the memories that share words with a query, best first. Of equal scores, the newer memory comes first, and then
/// the one with the greater id, so that the order is always the same.
pub(crate) fn search<'m>(
    memories: impl Iterator<Item = &'m Memory>,
    query: &str,
    policy: &MemoryPolicy,
    now_ms: u64,
) -> Vec<MemoryHit> {
    let asked: BTreeSet<String> = terms(query).into_iter().collect();
    let read: Vec<(&Memory, Vec<String>)> = memories.map(|it| (it, terms(&it.content))).collect();
    let total: usize = read.iter().map(|(_, words)| words.len()).sum();
    let mean_length = (total as f32 / read.len().max(1) as f32).max(1.0);
    let mut n_with = BTreeMap::<&str, usize>::new();
    for (_, words) in &read {
        let different: BTreeSet<&str> = words.iter().map(String::as_str).collect();
        for word in different.into_iter().filter(|word| asked.contains(*word)) {
            *n_with.entry(word).or_default() += 1;
        }
    }
    let rarity = |word: &str| {
        let n = n_with.get(word).copied().unwrap_or_default() as f32;
        (1.0 + (read.len() as f32 - n + 0.5) / (n + 0.5)).ln()
    };
    let mut hits = Vec::new();
    for (memory, words) in &read {
        let norm = K1 * (1.0 - B + B * words.len() as f32 / mean_length);
        let mut matched_terms = Vec::new();
        let mut relevance = 0.0;
        for word in &asked {
            let n = words.iter().filter(|it| *it == word).count() as f32;
            if n > 0.0 {
                relevance += rarity(word) * n * (K1 + 1.0) / (n + norm);
                matched_terms.push(word.clone());
            }
        }
        if !matched_terms.is_empty() {
            let score = (policy.keyword_weight * relevance + standing(memory, policy, now_ms))
                * policy.kind_weight(memory.kind)
                * (0.8 + 0.2 * memory.confidence);
            let memory = (*memory).clone();
            hits.push(MemoryHit {
                memory,
                score,
                matched_terms,
            });
        }
    }
    hits.sort_by(|a, b| {
        let (a, b) = ((a.score, &a.memory), (b.score, &b.memory));
        b.0.total_cmp(&a.0).then_with(|| newest_first(a.1, b.1))
    });
    hits
}

/// Returns memories by importance and age alone, best first.
pub(crate) fn by_standing<'m>(
    memories: impl Iterator<Item = &'m Memory>,
    policy: &MemoryPolicy,
    now_ms: u64,
) -> Vec<&'m Memory> {
    let value = |it: &Memory| standing(it, policy, now_ms) * policy.kind_weight(it.kind);
    let mut all: Vec<&Memory> = memories.collect();
    all.sort_by(|a, b| {
        value(b)
            .total_cmp(&value(a))
            .then_with(|| newest_first(a, b))
    });
    all
}

/// The part of a score that does not depend on the query.
fn standing(memory: &Memory, policy: &MemoryPolicy, now_ms: u64) -> f32 {
    let age_hours = now_ms.saturating_sub(memory.updated_ms) as f32 / MS_PER_HOUR;
    let recency = (1.0 - age_hours / policy.recent_hours).max(0.0);
    policy.importance_weight * memory.importance + policy.recency_weight * recency
}

fn newest_first(a: &Memory, b: &Memory) -> std::cmp::Ordering {
    let key = |it: &Memory| (it.updated_ms, it.memory_id.clone());
    key(b).cmp(&key(a))
}
