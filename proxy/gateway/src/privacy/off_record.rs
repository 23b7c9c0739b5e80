//! What was said off the record: marks by which its conversations are known when they go on.

use std::{num::NonZeroUsize, sync::Mutex};

use lru::LruCache;
use metaclaw_chat::{AgentId, ChainHash, SaidHash, SessionId};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::{identity::Identity, lock::lock};

/// Conversations that are remembered; the one that was silent longest goes first.
const BOUND: NonZeroUsize = NonZeroUsize::new(4_096).unwrap();

/// What a conversation is known by that is off the record. Not a word of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Mark {
    /// Its client names it.
    Session { agent: AgentId, session: SessionId },
    /// What was said up to its last reply.
    Said {
        /// The hash of that.
        chain: ChainHash,
    },
}

/// All that is off the record. Whoever keeps it over a restart waits for [`OffRecord::changes`].
#[derive(Debug)]
pub struct OffRecord {
    marks: Mutex<LruCache<Mark, ()>>,
    changed: watch::Sender<u64>,
}

// === impl OffRecord ===

impl OffRecord {
    /// With marks of an earlier process, the latest last.
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

    /// All marks, the latest last.
    pub fn marks(&self) -> Vec<Mark> {
        let marks = lock(&self.marks);
        marks.iter().rev().map(|(mark, ())| mark.clone()).collect()
    }

    /// Tells when there are others.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    pub(super) fn is_empty(&self) -> bool {
        lock(&self.marks).is_empty()
    }

    /// Whether a conversation is off the record; `chains` has the hash after each of its messages, of one that is
    /// known by them.
    pub(super) fn has(&self, who: &Identity, chains: &[ChainHash]) -> bool {
        let marks = lock(&self.marks);
        marks.contains(&session(who)) || said(chains).any(|mark| marks.contains(&mark))
    }

    /// Puts a conversation off the record. One that goes on takes its mark along: the longer it is, the less is it
    /// like another.
    pub(super) fn mark(&self, who: &Identity, chains: &[ChainHash]) {
        let is_new = lock(&self.marks).put(session(who), ()).is_none();
        let has_more = self.mark_said(who, chains);
        if is_new && !has_more {
            self.changed.send_modify(|n| *n += 1);
        }
    }

    /// Puts off the record what was said, and not the session that it was said in; whether anything was.
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

    /// A session begins anew.
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
