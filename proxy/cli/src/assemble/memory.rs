//! The store of memories, and the answers of the memory API.

use http::StatusCode;
use metaclaw_chat::{AgentId, now_ms};
use metaclaw_control::home::Home;
use metaclaw_gateway::{
    Answering, MemoryCall, MemoryRequest, MemoryService, ServiceError, StoredRequest,
};
use metaclaw_learner::{IngestError, IngestedSession, Learner};
use metaclaw_memory::{
    BufferedTurn, MemoryError, MemoryScope, MemoryStore, memory_json, search_json, stats_json,
    summary_json,
};
use metaclaw_settings::Loaded;
use metaclaw_turns::TurnLog;
use serde_json::{Value, json};
use tokio::task::spawn_blocking;

/// The store of the settings. It is there even with `memory.enabled: false`, for commands.
pub(crate) fn memory(loaded: &Loaded, home: &Home) -> MemoryStore {
    let config = loaded.config.memory.clone();
    let folder = config.dir.clone().unwrap_or_else(|| home.memory());
    MemoryStore::open(folder, config)
}

/// Answers `/v1/memory/..` as the Python original does.
pub(super) struct MemoryAnswers {
    pub(super) memory: MemoryStore,
    pub(super) learner: Learner,
    pub(super) log: TurnLog,
}

// === impl MemoryAnswers ===

impl MemoryAnswers {
    /// Reads the buffered messages of one session, or of all sessions, for facts. If the caller has an agent, only that
    /// agent's messages are read.
    async fn ingest(
        &self,
        agent: Option<AgentId>,
        session: Option<metaclaw_chat::SessionId>,
    ) -> Result<Vec<IngestedSession>, ServiceError> {
        let fits = move |turn: &BufferedTurn| {
            let is_callers = agent.as_ref().is_none_or(|agent| turn.agent == *agent);
            is_callers
                && session
                    .as_ref()
                    .is_none_or(|session| turn.session == *session)
        };
        self.learner
            .ingest(Box::new(fits))
            .await
            .map_err(|error| match error {
                IngestError::Memory(error) => refused(&error),
                IngestError::Panicked(_) => failed(error.to_string()),
            })
    }

    /// Adds a message of the owner to the buffer, and reads the session for facts if it has enough messages. The message
    /// belongs to all agents if the caller names none.
    async fn buffer(
        &self,
        agent: Option<AgentId>,
        turn: BufferedTurn,
    ) -> Result<Value, ServiceError> {
        let session = turn.session.clone();
        let n = self.on_files(move |memory| memory.buffer(turn)).await?;
        if n < self.memory.config().flush_every {
            return Ok(json!({"flushed": false, "added": null}));
        }
        let read = self.ingest(agent, Some(session)).await?;
        Ok(json!({"flushed": true, "added": added(&read)}))
    }

    async fn on_files<T: Send + 'static>(
        &self,
        work: impl FnOnce(&MemoryStore) -> Result<T, MemoryError> + Send + 'static,
    ) -> Result<T, ServiceError> {
        let memory = self.memory.clone();
        let done = spawn_blocking(move || work(&memory)).await;
        done.map_err(|error| failed(error.to_string()))?
            .map_err(|error| refused(&error))
    }

    async fn answer(&self, call: MemoryCall) -> Result<Value, ServiceError> {
        let MemoryCall { agent, request } = call;
        let default_scope = self.memory.default_scope();
        match request {
            MemoryRequest::Ingest { session, scope } => {
                if let Some(scope) = scope {
                    let (agent, session) = (agent.clone(), session.clone());
                    self.on_files(move |memory| {
                        rescope(memory, agent.as_ref(), session.as_ref(), &scope)
                    })
                    .await?;
                }
                let read = self.ingest(agent, session).await?;
                let turns: usize = read.iter().map(|it| it.turns).sum();
                let sessions = read.iter().map(
                    |it| json!({"session_id": it.session, "added": it.added, "turns": it.turns}),
                );
                Ok(
                    json!({"added": added(&read), "buffered_turns": turns, "sessions": sessions.collect::<Value>()}),
                )
            }
            MemoryRequest::BufferTurn {
                session,
                scope,
                said,
            } => {
                let turn = BufferedTurn {
                    agent: agent.clone().unwrap_or_else(AgentId::shared),
                    session,
                    scope: scope.unwrap_or(default_scope),
                    turn: None,
                    said,
                    at_ms: now_ms(),
                };
                self.buffer(agent, turn).await
            }
            MemoryRequest::FlushSession { session, scope } => {
                if let Some(scope) = scope {
                    let (agent, session) = (agent.clone(), session.clone());
                    self.on_files(move |memory| {
                        rescope(memory, agent.as_ref(), Some(&session), &scope)
                    })
                    .await?;
                }
                let read = self.ingest(agent, Some(session)).await?;
                Ok(json!({"added": added(&read)}))
            }
            MemoryRequest::Stored(request) => {
                let patience = self.memory.patience();
                let certain_ms = self.log.clock().confirmed_ms(patience, now_ms());
                let reads =
                    move |memory: &MemoryStore| stored(memory, agent.as_ref(), request, certain_ms);
                let answer = self.on_files(reads).await?;
                let not_found = || ServiceError {
                    status: StatusCode::NOT_FOUND,
                    message: "memory not found".to_owned(),
                };
                answer.ok_or_else(not_found)
            }
        }
    }
}

impl MemoryService for MemoryAnswers {
    fn call(&self, call: MemoryCall) -> Answering<'_> {
        Box::pin(self.answer(call))
    }
}

/// Answers a request about memories that are stored, with the time that is certain for what is deleted by its age, or returns `None` if there is no such memory.
fn stored(
    memory: &MemoryStore,
    agent: Option<&AgentId>,
    request: StoredRequest,
    certain_ms: Option<u64>,
) -> Result<Option<Value>, MemoryError> {
    let name =
        |scope: &Option<MemoryScope>| scope.clone().unwrap_or_else(|| memory.default_scope());
    Ok(Some(match request {
        StoredRequest::List { scope } => {
            let all = memory.list(agent, scope.as_ref())?;
            json!({"memories": all.iter().map(memory_json).collect::<Value>()})
        }
        StoredRequest::Search {
            query,
            scope,
            limit,
        } => search_json(&memory.search(agent, scope.as_ref(), &query, limit)?),
        StoredRequest::Stats { scope } => {
            let scope = name(&scope);
            stats_json(scope.as_str(), &memory.list(agent, Some(&scope))?)
        }
        StoredRequest::Health { scope } => {
            let scope = name(&scope);
            // A file that cannot be read is an error before this.
            let all = memory.list(agent, Some(&scope))?;
            let waiting = all.iter().filter(|it| !it.is_active()).count();
            json!({
                "scope_id": scope, "passed": true, "issues": [], "summary": "All checks passed",
                "checks": {"integrity": {"passed": true, "issues": {}}, "not_in_use": {"passed": true, "count": waiting}},
            })
        }
        StoredRequest::Summary => summary_json(
            memory.config(),
            &memory.policy()?,
            &memory.list(agent, None)?,
        ),
        StoredRequest::Get { id } => return Ok(memory.get(agent, &id)?.as_ref().map(memory_json)),
        StoredRequest::Retrieve { query, scope } => {
            let default = AgentId::default_agent();
            let recall = memory.recall(agent.unwrap_or(&default), &name(&scope), &query)?;
            json!({"rendered_prompt": recall.block.unwrap_or_default(), "unit_count": recall.memories.len()})
        }
        StoredRequest::Forget { id } => match memory.forget(agent, &id) {
            Ok(_) => json!({"ok": true}),
            Err(MemoryError::Unknown(_)) => return Ok(None),
            Err(error) => return Err(error),
        },
        StoredRequest::Maintenance => {
            json!({"scope_id": memory.default_scope(), "consolidation": memory.consolidate(certain_ms)?})
        }
    }))
}

/// Gives buffered messages another scope.
fn rescope(
    memory: &MemoryStore,
    agent: Option<&AgentId>,
    session: Option<&metaclaw_chat::SessionId>,
    scope: &MemoryScope,
) -> Result<(), MemoryError> {
    memory.rescope(scope, |turn| {
        agent.is_none_or(|agent| turn.agent == *agent)
            && session.is_none_or(|session| turn.session == *session)
    })
}

fn added(read: &[IngestedSession]) -> usize {
    read.iter().map(|it| it.added).sum()
}

fn refused(error: &MemoryError) -> ServiceError {
    failed(error.to_string())
}

fn failed(message: String) -> ServiceError {
    ServiceError {
        status: StatusCode::INTERNAL_SERVER_ERROR,
        message,
    }
}

#[cfg(test)]
mod tests {
    use metaclaw_memory::{MemoryConfig, MemoryKind};

    use super::*;

    #[test]
    fn counts_are_those_of_the_scope_that_they_name() {
        let dir = tempfile::tempdir().unwrap();
        let memory = MemoryStore::open(dir.path(), MemoryConfig::default());
        let agent = AgentId::default_agent();
        for (scope, text) in [
            ("default", "My name is Anna."),
            ("user:bob", "My name is Bob."),
        ] {
            let scope = MemoryScope::new(scope);
            memory
                .write_down(&agent, &scope, MemoryKind::Semantic, text, false)
                .unwrap();
        }
        for (asked, counted) in [(None, "default"), (Some("user:bob"), "user:bob")] {
            let scope = asked.map(MemoryScope::new);
            let stats = stored(&memory, None, StoredRequest::Stats { scope }, None);
            let stats = stats.unwrap().unwrap();
            assert_eq!(
                (&stats["scope_id"], &stats["total"]),
                (&json!(counted), &json!(1))
            );
        }
    }
}
