//! Finds facts in what the owner types, and remembers them.
//!
//! The owner's messages wait in the store's buffer, which survives a restart. A session is read when it has enough
//! messages, ends, or is silent: by one request to a model for several messages, within the budget of learning, or by
//! rules if no model can be asked. Only the owner's own words are read: never a tool's result, a reply, or another
//! person's message.

use std::sync::atomic::Ordering;

use metaclaw_chat::{AgentId, now_ms};
use metaclaw_skills::{
    BufferedSession, BufferedTurn, Fact, FactQuestion, Memory, MemoryError, MemoryStore, Origin,
    Remembered, plain_facts,
};
use metaclaw_turns::{LogReader, Turn, TurnKind};
use tokio::task::spawn_blocking;

use crate::{
    owner_text::owner_says,
    shared::Shared,
    unread::UnreadTurns,
    wish_detection::{log_lesson, read_by_model},
};

/// After this silence, a session is read, however few messages it has.
const SILENCE_MS: u64 = 10 * 60 * 1_000;

/// What was read of one session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IngestedSession {
    pub session: metaclaw_chat::SessionId,
    /// How many memories are new.
    pub added: usize,
    /// How many messages were read.
    pub turns: usize,
}

/// Why nothing was remembered.
#[derive(Debug, thiserror::Error)]
pub enum IngestError {
    #[error(transparent)]
    Memory(#[from] MemoryError),
    #[error("remembering panicked: {0}")]
    Panicked(#[from] tokio::task::JoinError),
}

pub(crate) async fn buffer_turn(
    shared: &Shared,
    memory: &MemoryStore,
    turn: &Turn,
    turns: &UnreadTurns,
) -> Result<(), IngestError> {
    if !memory.is_on_for(&turn.agent) {
        return Ok(());
    }
    let Some(said) = words(memory, turn) else {
        return Ok(());
    };
    let buffered = BufferedTurn {
        agent: turn.agent.clone(),
        session: turn.session.clone(),
        scope: memory.scope_of(&turn.agent, &turn.session),
        turn: Some(turn.id),
        said,
        at_ms: turn.meta.ended_ms,
    };
    let n = on_files(memory, move |memory| memory.buffer(buffered)).await?;
    if shared.is_deleted(turn.id).await {
        let id = Some(turn.id);
        on_files(memory, move |memory| {
            memory.unbuffer(|turn| turn.turn == id)
        })
        .await?;
        return Ok(());
    }
    turns.note(LogReader::Facts).await;
    let config = memory.config();
    let is_due = n >= config.flush_every || turn.meta.is_last;
    if is_due && !config.manual_trigger {
        let (agent, session) = (turn.agent.clone(), turn.session.clone());
        let is_its = move |turn: &BufferedTurn| turn.agent == agent && turn.session == session;
        ingest(shared, memory, is_its).await?;
    }
    Ok(())
}

/// The owner's words in a turn. With `memory.ignore_turn_type`, those of a side turn count as well.
fn words(memory: &MemoryStore, turn: &Turn) -> Option<String> {
    if turn.meta.kind == TurnKind::Side && memory.config().ignore_turn_type {
        return turn.new_words().map(|words| words.text.into_owned());
    }
    owner_says(turn)
}

pub(crate) async fn ingest(
    shared: &Shared,
    memory: &MemoryStore,
    fits: impl Fn(&BufferedTurn) -> bool + Send + 'static,
) -> Result<Vec<IngestedSession>, IngestError> {
    let sessions = on_files(memory, move |memory| memory.buffered(fits)).await?;
    ingest_sessions(shared, memory, sessions).await
}

pub(crate) async fn ingest_silent(
    shared: &Shared,
    memory: &MemoryStore,
) -> Result<(), IngestError> {
    let mut sessions = on_files(memory, |memory| memory.buffered(|_| true)).await?;
    let now = now_ms();
    // A session of the future was buffered with a clock that was ahead.
    sessions.retain(|session| now.abs_diff(session.last_ms()) >= SILENCE_MS);
    ingest_sessions(shared, memory, sessions).await?;
    Ok(())
}

async fn ingest_sessions(
    shared: &Shared,
    memory: &MemoryStore,
    sessions: Vec<BufferedSession>,
) -> Result<Vec<IngestedSession>, IngestError> {
    let mut ingested = Vec::new();
    let mut first_error = Ok(());
    for session in sessions {
        // The file of one agent may be broken, and the sessions of the others are still read.
        match ingest_session(shared, memory, session).await {
            Ok(session) => ingested.push(session),
            Err(error) => first_error = first_error.and(Err(error)),
        }
    }
    first_error.map(|()| ingested)
}

async fn ingest_session(
    shared: &Shared,
    memory: &MemoryStore,
    session: BufferedSession,
) -> Result<IngestedSession, IngestError> {
    // A file that cannot be read must not cost a request to a model each minute.
    let agent = session.agent.clone();
    on_files(memory, move |memory| memory.list(Some(&agent), None)).await?;
    let said: Vec<&str> = session.turns.iter().map(|t| t.said.as_str()).collect();
    let facts = facts_in(shared, &said).await;
    let (name, turns) = (session.session.clone(), session.turns.len());
    let agent = session.agent.clone();
    let remembered = on_files(memory, move |memory| remember(memory, &session, &facts)).await?;
    let is_new = |remembered: &&Remembered| matches!(remembered, Remembered::New(_));
    let added = remembered.iter().filter(is_new).count();
    for one in &remembered {
        tell(&agent, one);
    }
    shared.count_lessons(&agent, now_ms(), added as u64).await;
    let n = shared.n_ingested.fetch_add(1, Ordering::AcqRel) + 1;
    if n.is_multiple_of(memory.config().consolidation_interval.max(1)) {
        consolidate(shared, memory).await;
    }
    Ok(IngestedSession {
        session: name,
        added,
        turns,
    })
}

/// Stores the facts of those messages that are still in the buffer, and removes these messages from it. The origin of a
/// fact is the turn that has its sentence.
fn remember(
    memory: &MemoryStore,
    session: &BufferedSession,
    facts: &[Fact],
) -> Result<Vec<Remembered>, MemoryError> {
    let mut remembered = Vec::new();
    // The owner may have deleted the session while the model was asked, or another call may have read it.
    let waiting = memory.buffered(|turn| session.turns.contains(turn))?;
    let Some(session) = waiting.first() else {
        return Ok(remembered);
    };
    for fact in facts {
        let sentence = fact.said.as_deref().unwrap_or(&fact.content);
        let has_it = |turn: &&BufferedTurn| turn.said.contains(sentence);
        let turn = session
            .turns
            .iter()
            .find(has_it)
            .or_else(|| session.turns.last());
        let Some(turn) = turn else { continue };
        let origin = Origin {
            agent: turn.agent.clone(),
            session: Some(turn.session.clone()),
            turn: turn.turn,
            sender: None,
            at_ms: turn.at_ms,
        };
        remembered.push(memory.remember(fact, &turn.scope, origin)?);
    }
    memory.unbuffer(|turn| session.turns.contains(turn))?;
    Ok(remembered)
}

async fn facts_in(shared: &Shared, said: &[&str]) -> Vec<Fact> {
    let by_model = match FactQuestion::new(said.iter().copied()) {
        Some(question) => {
            let read = |answer: &str| question.read(answer);
            read_by_model(shared, &question.messages(), read).await
        }
        None => None,
    };
    by_model.unwrap_or_else(|| plain_facts(said.iter().copied()))
}

pub(crate) async fn consolidate(shared: &Shared, memory: &MemoryStore) {
    let certain_ms = shared.log.clock().confirmed_ms(memory.patience(), now_ms());
    match on_files(memory, move |memory| memory.consolidate(certain_ms)).await {
        Ok(done) => tracing::debug!(?done, "memories were compared with each other"),
        Err(error) => tracing::warn!(%error, "memories could not be compared with each other"),
    }
}

async fn on_files<T: Send + 'static>(
    memory: &MemoryStore,
    work: impl FnOnce(&MemoryStore) -> Result<T, MemoryError> + Send + 'static,
) -> Result<T, IngestError> {
    let memory = memory.clone();
    let done = spawn_blocking(move || work(&memory)).await??;
    #[cfg(test)]
    crate::testing::progress::made();
    Ok(done)
}

/// Logs each memory twice: with the owner's words for the terminal, and without them for a log file, which may outlive the
/// words.
fn tell(agent: &AgentId, remembered: &Remembered) {
    match remembered {
        Remembered::New(Memory {
            memory_id: id,
            content,
            ..
        }) => {
            log_lesson!(info, "remembered as a fact, not as a wish, from the next session on: {content}  (metaclaw memory forget {id})";
                agent, memory = id, "a fact was remembered");
        }
        Remembered::Waits(Memory {
            memory_id: id,
            content,
            ..
        }) => {
            log_lesson!(warn, "a memory waits for your review: {content}  (metaclaw memory list)";
                agent, memory = id, "a memory waits for review");
        }
        Remembered::Again(_) => {}
    }
}

#[cfg(test)]
mod tests;
