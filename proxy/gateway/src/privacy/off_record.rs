//! Remembers conversations that are off the record, so that they are recognised when they continue.

use std::{num::NonZeroUsize, sync::Mutex};

use lru::LruCache;
use metaclaw_chat::{AgentId, ChainHash, SaidHash, SessionId};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::{identity::Identity, lock::lock};

/// The number of conversations that are remembered. The one that was silent longest is removed first.
const BOUND: NonZeroUsize = NonZeroUsize::new(4_096).unwrap();

/// Identifies a conversation that is off the record. It contains no text.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Mark {
    /// Its client names the session.
    Session { agent: AgentId, session: SessionId },
    /// The conversation up to its last reply.
    Said {
        /// The hash of that conversation.
        chain: ChainHash,
    },
}

/// All conversations that are off the record. To store them over a restart, wait for [`OffRecord::changes`].
#[derive(Debug)]
pub struct OffRecord {
    marks: Mutex<LruCache<Mark, ()>>,
    changed: watch::Sender<u64>,
}

// === impl OffRecord ===

impl OffRecord {
    /// Starts with the marks of an earlier process, the latest last.
    pub fn new(known: Vec<Mark>) -> Self {
        let mut marks = LruCache::new(BOUND);
        for mark in known {
            marks.put(mark, ());
        }
        Self {
            marks: Mutex::new(marks),
            changed: watch::Sender::new(0),
        }
    }

    /// Returns all marks, the latest last.
    pub fn marks(&self) -> Vec<Mark> {
        let marks = lock(&self.marks);
        marks.iter().rev().map(|(mark, ())| mark.clone()).collect()
    }

    /// Notifies of changes.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    pub(super) fn is_empty(&self) -> bool {
        lock(&self.marks).is_empty()
    }

    /// Returns whether a conversation is off the record. For one without a session name, `chains` has the hash after
    /// each of its messages.
    pub(super) fn has(&self, who: &Identity, chains: &[ChainHash]) -> bool {
        let marks = lock(&self.marks);
        marks.contains(&session(who)) || said(chains).any(|mark| marks.contains(&mark))
    }

    /// Puts a conversation off the record. If it continues, its mark moves along, because a longer conversation is less
    /// likely to resemble another.
    pub(super) fn mark(&self, who: &Identity, chains: &[ChainHash]) {
        let is_new = lock(&self.marks).put(session(who), ()).is_none();
        let has_more = self.mark_said(who, chains);
        if is_new && !has_more {
            self.changed.send_modify(|n| *n += 1);
        }
    }

    /// Puts the text off the record, but not its session. Returns whether there was any text.
    pub(super) fn mark_said(&self, who: &Identity, chains: &[ChainHash]) -> bool {
        let mut marks = lock(&self.marks);
        let whole = chains.last().copied();
        let mut is_new = false;
        if let Some(whole) = whole.filter(|whole| *whole != ChainHash::start(&who.agent)) {
            for before in said(chains) {
                marks.pop(&before);
            }
            let chain = whole.then_said(SaidHash::ASSISTANT);
            marks.put(Mark::Said { chain }, ());
            is_new = true;
        }
        drop(marks);
        if is_new {
            self.changed.send_modify(|n| *n += 1);
        }
        is_new
    }

    pub(super) fn lift(&self, who: &Identity) {
        if lock(&self.marks).pop(&session(who)).is_some() {
            self.changed.send_modify(|n| *n += 1);
        }
    }
}

impl Default for OffRecord {
    fn default() -> Self {
        Self::new(Vec::new())
    }
}

fn session(who: &Identity) -> Mark {
    Mark::Session {
        agent: who.agent.clone(),
        session: who.session.clone(),
    }
}

fn said(chains: &[ChainHash]) -> impl Iterator<Item = Mark> {
    chains.iter().map(|chain| Mark::Said { chain: *chain })
}
