//! Which messages a request is sent without, so that its prompt fits a limit.
//!
//! Messages are dropped from the oldest on. Some never are: the system prompt, the last message of a user, and the last
//! part of the conversation, which the model answers. A model's calls and their results are one part, because every
//! upstream refuses one without the other. What is left begins with a user's message, as Anthropic's API and most chat
//! templates require.

use std::ops::Range;

use metaclaw_chat::Role;

use super::chat::ChatRequest;
use crate::{estimate, json};

const BESIDE: [&str; 4] = ["system", "instructions", "tools", "functions"];

/// How long a prompt may be, and what is added to it on its way.
#[derive(Debug, Clone, Copy)]
pub struct PromptLimit {
    /// The most estimated tokens.
    pub max_tokens: usize,
    /// Bytes that are added to the system prompt.
    pub system_bytes: usize,
    /// Bytes that are added to each message of a user.
    pub user_bytes: usize,
}

/// What a request is sent without.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrimmedPrompt {
    /// Runs of elements of the conversation, in order. The last element is in none.
    pub dropped: Vec<Range<usize>>,
    /// Elements in them.
    pub n_dropped: usize,
    /// Estimated tokens of the whole prompt.
    pub n_tokens: usize,
    /// Estimated tokens of what is left. This is above the limit if the rest may not be dropped.
    pub n_left: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SegmentKind {
    System,
    User,
    /// A reply, or a part of one.
    Model,
    /// Results of tools, with or without a user's words.
    Results,
}

/// Elements that are kept or dropped together.
#[derive(Debug)]
struct PromptSegment {
    items: Range<usize>,
    first: SegmentKind,
    last: SegmentKind,
    is_said: bool,
    n_bytes: usize,
}

// === impl ChatRequest ===

impl ChatRequest {
    /// Returns what has to be dropped for `limit`, or `None` if the request fits or nothing may be dropped.
    pub fn trim(&self, limit: PromptLimit) -> Option<TrimmedPrompt> {
        let n_items = self.conversation.items.len();
        // Texts are longer as JSON, so this is the most that they can count for.
        let most = self.raw().len() + limit.system_bytes + n_items * limit.user_bytes;
        if estimate::tokens(most, n_items) <= limit.max_tokens && !self.has_media() {
            return None;
        }
        let parts = self.parts(limit.user_bytes);
        let beside = BESIDE.iter().filter_map(|name| self.field_json(name));
        let beside = beside.map(n_bytes).sum::<usize>() + limit.system_bytes;
        let mut n_bytes = beside + parts.iter().map(|part| part.n_bytes).sum::<usize>();
        let n_tokens = estimate::tokens(n_bytes, n_items);
        let is_kept = kept(&parts);
        let mut trimmed = TrimmedPrompt {
            dropped: Vec::new(),
            n_dropped: 0,
            n_tokens,
            n_left: n_tokens,
        };
        let mut has_begun = false;
        for (part, is_kept) in parts.iter().zip(is_kept) {
            if is_kept {
                has_begun |= part.first != SegmentKind::System;
                continue;
            }
            let may_begin = has_begun || part.first == SegmentKind::User || trimmed.n_dropped == 0;
            if may_begin && trimmed.n_left <= limit.max_tokens {
                break;
            }
            n_bytes -= part.n_bytes;
            trimmed.push(&part.items);
            trimmed.n_left = estimate::tokens(n_bytes, n_items - trimmed.n_dropped);
        }
        (trimmed.n_dropped > 0).then_some(trimmed)
    }

    /// Returns the parts of the conversation, each user's message with `user_bytes` more than it has.
    fn parts(&self, user_bytes: usize) -> Vec<PromptSegment> {
        let mut parts: Vec<PromptSegment> = Vec::new();
        let mut messages = self.conversation.messages.iter().peekable();
        for (index, (item, text)) in self.conversation.items.iter().zip(self.items()).enumerate() {
            let (mut is_result, mut is_said) = (false, false);
            while let Some(message) = messages.next_if(|it| it.item.is_none_or(|at| at <= index)) {
                let is_its = message.item == Some(index);
                is_result |= is_its && message.role == Role::Tool;
                is_said |= is_its && message.is_said;
            }
            let kind = match item.role {
                _ if is_result => SegmentKind::Results,
                Some(Role::System) => SegmentKind::System,
                Some(Role::User) => SegmentKind::User,
                Some(Role::Assistant | Role::Tool | Role::Other) | None => SegmentKind::Model,
            };
            let with_line = if is_said { user_bytes } else { 0 };
            let part = PromptSegment {
                items: index..index + 1,
                first: kind,
                last: kind,
                is_said,
                n_bytes: n_bytes(text) + with_line,
            };
            let since = match kind {
                SegmentKind::Results => parts.iter().rposition(PromptSegment::has_model),
                SegmentKind::Model => parts.len().checked_sub(1),
                SegmentKind::System | SegmentKind::User => None,
            };
            let is_more =
                |since: &usize| kind == SegmentKind::Results || parts[*since].last == kind;
            match since.filter(is_more) {
                Some(since) => {
                    let rest: Vec<_> = parts.drain(since + 1..).chain([part]).collect();
                    for it in &rest {
                        parts[since].add(it);
                    }
                }
                None => parts.push(part),
            }
        }
        parts
    }
}

fn kept(parts: &[PromptSegment]) -> impl Iterator<Item = bool> + '_ {
    let last = parts.len().checked_sub(1);
    let said = parts.iter().rposition(|part| part.is_said);
    // The part with the last user's words may begin with the calls to which they were added.
    let before = said.and_then(|said| {
        let mut parts = parts.iter().take(said + 1);
        parts.rposition(|part| part.first == SegmentKind::User)
    });
    parts.iter().enumerate().map(move |(index, part)| {
        part.first == SegmentKind::System || [last, said, before].contains(&Some(index))
    })
}

/// Returns the bytes that a model reads of a JSON text. A text that no value can hold counts as it is.
fn n_bytes(json: &str) -> usize {
    let value = json::value(json.as_bytes());
    value.map_or(json.len(), |value| estimate::model_bytes(&value))
}

// === impl TrimmedPrompt ===

impl TrimmedPrompt {
    fn push(&mut self, items: &Range<usize>) {
        self.n_dropped += items.len();
        match self.dropped.last_mut() {
            Some(run) if run.end == items.start => run.end = items.end,
            Some(_) | None => self.dropped.push(items.clone()),
        }
    }
}

// === impl PromptSegment ===

impl PromptSegment {
    fn has_model(&self) -> bool {
        self.first == SegmentKind::Model
    }

    fn add(&mut self, next: &Self) {
        self.items.end = next.items.end;
        self.last = next.last;
        self.is_said |= next.is_said;
        self.n_bytes += next.n_bytes;
    }
}

#[cfg(test)]
mod tests;
