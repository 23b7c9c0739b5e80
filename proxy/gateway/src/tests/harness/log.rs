//! A log that keeps the turns that it gets.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use metaclaw_capture::{Appending, TurnSink};
use metaclaw_chat::{AgentId, SessionId, TurnId, work};
use metaclaw_turns::{Done, LogError, NewTurn, Replied, Turn, TurnState};
use tokio::{sync::Semaphore, time::timeout};

use super::messages::SOON;
use crate::{Finding, PastReplies, RepliesFuture};

/// A log in memory. After [`Log::hold`], each turn waits until [`Log::let_go`].
pub(crate) struct Log {
    turns: Mutex<Vec<Turn>>,
    gate: Semaphore,
    pub(crate) broken: Mutex<Option<String>>,
    /// How often a session's replies were read.
    pub(crate) n_replies_read: AtomicUsize,
    /// The bytes that were looked at to make the last turn.
    pub(crate) n_looked_at: AtomicUsize,
    arrived: tokio::sync::Notify,
}

impl Log {
    pub(crate) fn new() -> Self {
        Self {
            turns: Mutex::default(),
            gate: Semaphore::new(Semaphore::MAX_PERMITS),
            broken: Mutex::default(),
            n_replies_read: AtomicUsize::new(0),
            n_looked_at: AtomicUsize::new(0),
            arrived: tokio::sync::Notify::new(),
        }
    }

    /// From now on turns wait for [`Log::let_go`].
    pub(crate) fn hold(&self) {
        self.gate.forget_permits(Semaphore::MAX_PERMITS);
    }

    pub(crate) fn let_go(&self, n_turns: usize) {
        self.gate.add_permits(n_turns);
    }

    pub(crate) fn turns(&self) -> Vec<Turn> {
        self.turns.lock().unwrap().clone()
    }

    /// Returns the turns, once there are so many.
    pub(crate) async fn wait(&self, n_turns: usize) -> Vec<Turn> {
        let wait = async {
            loop {
                let arrived = self.arrived.notified();
                let turns = self.turns();
                if turns.len() >= n_turns {
                    return turns;
                }
                arrived.await;
            }
        };
        timeout(SOON, wait).await.expect("turns in the log")
    }
}

/// Returns a turn as a log without other turns would return it.
fn read_back(turn: NewTurn, id: TurnId) -> Result<Turn, serde_json::Error> {
    Ok(Turn {
        id,
        request: turn.request()?,
        agent: turn.agent,
        session: turn.session,
        meta: turn.meta,
        parent: None,
        new_from: 0,
        reply: turn.reply,
        served: turn.served,
        state: TurnState::Captured,
        verdict: None,
        overruled: Vec::new(),
        uses: Vec::new(),
        tokens: turn.tokens,
    })
}

impl TurnSink for Log {
    fn append(&self, turn: NewTurn, done: Done) -> Appending<'_> {
        self.n_looked_at.store(work::looked_at(), Ordering::Relaxed);
        Box::pin(async move {
            self.gate.acquire().await.unwrap().forget();
            if let Some(why) = self.broken.lock().unwrap().clone() {
                return done(Err(LogError::Broken { why }));
            }
            let mut turns = self.turns.lock().unwrap();
            let seq = u32::try_from(turns.len() + 1).unwrap();
            let id = TurnId { session: 1, seq };
            match read_back(turn, id) {
                Ok(turn) => turns.push(turn),
                Err(error) => {
                    let why = error.to_string();
                    return done(Err(LogError::Unreadable { why }));
                }
            }
            self.arrived.notify_waiters();
            done(Ok(id));
            // What it reads is not part of the next turn.
            work::looked_at();
        })
    }

    fn oldest_unflushed(&self) -> Option<Duration> {
        None
    }
}

impl PastReplies for Log {
    fn conversation<'a>(&'a self, agent: &'a AgentId, reply_id: &'a str) -> Finding<'a> {
        let turns = self.turns();
        let is_it =
            |turn: &&Turn| turn.agent == *agent && turn.meta.reply_id.as_deref() == Some(reply_id);
        let found = turns.iter().rev().find(is_it).map(|turn| {
            let said = turn.request.messages.iter().chain(&turn.reply);
            said.cloned().collect()
        });
        Box::pin(async { Ok(found) })
    }

    fn replies<'a>(&'a self, agent: &'a AgentId, session: &'a SessionId) -> RepliesFuture<'a> {
        self.n_replies_read.fetch_add(1, Ordering::Relaxed);
        let is_it = |turn: &Turn| turn.agent == *agent && turn.session == *session;
        let turns = self.turns().into_iter().filter(is_it);
        let replies = turns.filter_map(|turn| {
            Some(Replied {
                upstream: turn.served.upstream,
                masked: turn.meta.masked,
                reply: turn.reply?,
            })
        });
        let replies = replies.collect();
        Box::pin(async { Ok(replies) })
    }
}
