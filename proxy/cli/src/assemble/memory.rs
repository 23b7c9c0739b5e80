//! The memory API, whose paths, bodies and answers are those of the Python original.

use http::StatusCode;
use metaclaw_chat::{AgentId, SessionId, now_ms};
use metaclaw_gateway::{Answering, MemoryCall, MemoryService, ServiceError};
use metaclaw_learner::{IngestedSession, Learner};
use metaclaw_skills::{
    BufferedTurn, MemoryError, MemoryScope, MemoryStore, memory_json, search_json, stats_json,
    summary_json,
};
use metaclaw_turns::TurnLog;
use serde_json::{Map, Value, json};
use tokio::task::spawn_blocking;

/// How many hits a search returns if the call does not say it, as in the original.
const LIMIT: usize = 20;
const MAX_LIMIT: usize = 1_000;

pub(super) struct MemoryAnswers {
    pub(super) memory: MemoryStore,
    pub(super) learner: Learner,
    pub(super) log: TurnLog,
}

// === impl MemoryAnswers ===

impl MemoryAnswers {
    async fn answer(&self, call: MemoryCall) -> Result<Value, ServiceError> {
        let (agent, fields) = (call.agent.clone(), Fields(&call.fields));
        match (call.method.as_str(), call.path.as_str()) {
            ("POST", "ingest") => {
                let (session, scope) = (fields.session()?, fields.scope("scope"));
                let read = self.ingest(agent, session, scope).await?;
                let sessions = read.iter().map(|read| {
                    json!({"session_id": read.session, "added": read.added, "turns": read.turns})
                });
                Ok(json!({
                    "added": n_added(&read),
                    "buffered_turns": read.iter().map(|read| read.turns).sum::<usize>(),
                    "sessions": sessions.collect::<Value>(),
                }))
            }
            ("POST", "flush_session") => {
                let (session, scope) = (fields.needed_session()?, fields.scope("scope_id"));
                let read = self.ingest(agent, Some(session), scope).await?;
                Ok(json!({"added": n_added(&read)}))
            }
            ("POST", "buffer_turn") => self.buffer(agent, &fields).await,
            _ => {
                let patience = self.memory.patience();
                let certain_ms = self.log.clock().confirmed_ms(patience, now_ms());
                self.on_files(move |memory| stored(memory, &call, certain_ms))
                    .await
            }
        }
    }

    /// Reads the buffered messages of one session, or of all sessions, for facts. If a scope is named, the messages get
    /// it first. If the caller has an agent, only the messages of that agent are read.
    async fn ingest(
        &self,
        agent: Option<AgentId>,
        session: Option<SessionId>,
        scope: Option<MemoryScope>,
    ) -> Result<Vec<IngestedSession>, ServiceError> {
        let fits = move |turn: &BufferedTurn| {
            agent.as_ref().is_none_or(|agent| turn.agent == *agent)
                && session
                    .as_ref()
                    .is_none_or(|session| turn.session == *session)
        };
        if let Some(scope) = scope {
            let fits = fits.clone();
            let rescoped =
                move |memory: &MemoryStore| memory.rescope(&scope, fits).map_err(refused);
            self.on_files(rescoped).await?;
        }
        let read = self.learner.ingest(Box::new(fits)).await;
        read.map_err(|error| internal(&error))
    }

    /// Adds a message of the owner to the buffer, and reads the session for facts if it has enough messages. The message
    /// belongs to all agents if the caller names none.
    async fn buffer(
        &self,
        agent: Option<AgentId>,
        fields: &Fields<'_>,
    ) -> Result<Value, ServiceError> {
        let session = fields.needed_session()?;
        let scope = fields.scope("scope_id");
        // `turn` also has the reply, which is not read because a model wrote it.
        let said = fields
            .0
            .get("turn")
            .and_then(|turn| turn["prompt_text"].as_str());
        let turn = BufferedTurn {
            agent: agent.clone().unwrap_or_else(AgentId::shared),
            session: session.clone(),
            scope: scope.unwrap_or_else(|| self.memory.default_scope()),
            turn: None,
            said: said
                .ok_or_else(|| bad_field("turn.prompt_text: a text is needed"))?
                .to_owned(),
            at_ms: now_ms(),
        };
        let n = self
            .on_files(move |memory| memory.buffer(turn).map_err(refused))
            .await?;
        if n < self.memory.config().flush_every {
            return Ok(json!({"flushed": false, "added": null}));
        }
        let read = self.ingest(agent, Some(session), None).await?;
        Ok(json!({"flushed": true, "added": n_added(&read)}))
    }

    async fn on_files<T: Send + 'static>(
        &self,
        work: impl FnOnce(&MemoryStore) -> Result<T, ServiceError> + Send + 'static,
    ) -> Result<T, ServiceError> {
        let memory = self.memory.clone();
        let done = spawn_blocking(move || work(&memory)).await;
        done.unwrap_or_else(|error| Err(internal(&error)))
    }
}

impl MemoryService for MemoryAnswers {
    fn call(&self, call: MemoryCall) -> Answering<'_> {
        Box::pin(self.answer(call))
    }
}

/// Answers a call about stored memories. `certain_ms` is a time that is certain, by which old memories are deleted.
fn stored(
    memory: &MemoryStore,
    call: &MemoryCall,
    certain_ms: Option<u64>,
) -> Result<Value, ServiceError> {
    let (agent, fields) = (call.agent.as_ref(), Fields(&call.fields));
    let scope = fields.scope("scope");
    let or_default = |scope: Option<MemoryScope>| scope.unwrap_or_else(|| memory.default_scope());
    let list = |scope: Option<&MemoryScope>| memory.list(agent, scope).map_err(refused);
    let forget = |id: &str| {
        let forgotten = memory.forget(agent, id).map_err(refused);
        forgotten.map(|_| json!({"ok": true}))
    };
    Ok(match (call.method.as_str(), call.path.as_str()) {
        ("GET", "") => {
            let all = list(scope.as_ref())?;
            json!({"memories": all.iter().map(memory_json).collect::<Value>()})
        }
        ("GET", "search") => {
            let (query, limit) = (fields.text("q").unwrap_or_default(), fields.limit()?);
            let hits = memory.search(agent, scope.as_ref(), query, limit);
            search_json(&hits.map_err(refused)?)
        }
        ("GET", "stats") => {
            let scope = or_default(scope);
            stats_json(scope.as_str(), &list(Some(&scope))?)
        }
        ("GET", "health") => {
            let scope = or_default(scope);
            // A file that cannot be read is an error before this.
            let all = list(Some(&scope))?;
            let n_idle = all.iter().filter(|memory| !memory.is_active()).count();
            json!({
                "scope_id": scope, "passed": true, "issues": [], "summary": "All checks passed",
                "checks": {"integrity": {"passed": true, "issues": {}}, "not_in_use": {"passed": true, "count": n_idle}},
            })
        }
        ("GET", "summary") => {
            let policy = memory.policy().map_err(refused)?;
            summary_json(memory.config(), &policy, &list(None)?)
        }
        ("GET", id) if !id.contains('/') => {
            let found = memory.get(agent, id).map_err(refused)?;
            let unknown = || refused(MemoryError::Unknown(id.to_owned()));
            memory_json(&found.ok_or_else(unknown)?)
        }
        ("DELETE", id) if !id.is_empty() && !id.contains('/') => forget(id)?,
        ("POST", "forget") => {
            let missing = || bad_field("memory_id: a text is needed");
            forget(fields.text("memory_id").ok_or_else(missing)?)?
        }
        ("POST", "retrieve") => {
            let query = fields.text("task_description").unwrap_or_default();
            let (default, scope) = (AgentId::default_agent(), fields.scope("scope_id"));
            let recall = memory.recall(agent.unwrap_or(&default), &or_default(scope), query);
            let recall = recall.map_err(refused)?;
            json!({"rendered_prompt": recall.block.unwrap_or_default(), "unit_count": recall.memories.len()})
        }
        ("POST", "maintenance") => {
            let done = memory.consolidate(certain_ms).map_err(refused)?;
            json!({"scope_id": memory.default_scope(), "consolidation": done})
        }
        ("POST", other) => {
            let message = format!(
                "POST /v1/memory/{other} is not served: there are ingest, buffer_turn, flush_session, forget, retrieve and maintenance; `metaclaw memory add` stores a memory"
            );
            return Err(failure(StatusCode::NOT_FOUND, message));
        }
        (method, path) => {
            let message = format!("/v1/memory/{path} does not take {method}");
            return Err(failure(StatusCode::METHOD_NOT_ALLOWED, message));
        }
    })
}

struct Fields<'c>(&'c Map<String, Value>);

// === impl Fields ===

impl<'c> Fields<'c> {
    fn text(&self, name: &str) -> Option<&'c str> {
        let text = self.0.get(name)?.as_str()?.trim();
        Some(text).filter(|text| !text.is_empty())
    }

    fn scope(&self, name: &str) -> Option<MemoryScope> {
        self.text(name).map(MemoryScope::new)
    }

    fn session(&self) -> Result<Option<SessionId>, ServiceError> {
        let named = self.text("session_id").map(str::parse::<SessionId>);
        named
            .transpose()
            .map_err(|error| bad_field(&format!("session_id: {error}")))
    }

    fn needed_session(&self) -> Result<SessionId, ServiceError> {
        let missing = || bad_field("session_id: a text is needed");
        self.session()?.ok_or_else(missing)
    }

    fn limit(&self) -> Result<usize, ServiceError> {
        let Some(given) = self.0.get("limit").and_then(Value::as_str) else {
            return Ok(LIMIT);
        };
        let limit = given.parse().ok().filter(|n| (1..=MAX_LIMIT).contains(n));
        limit.ok_or_else(|| bad_field(&format!("limit: {given:?} is not 1 to {MAX_LIMIT}")))
    }
}

fn n_added(read: &[IngestedSession]) -> usize {
    read.iter().map(|session| session.added).sum()
}

fn refused(error: MemoryError) -> ServiceError {
    match error {
        MemoryError::Unknown(_) => failure(StatusCode::NOT_FOUND, "memory not found"),
        error => internal(&error),
    }
}

fn bad_field(message: &str) -> ServiceError {
    failure(StatusCode::BAD_REQUEST, message)
}

fn internal(error: &dyn std::error::Error) -> ServiceError {
    failure(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
}

pub(super) fn failure(status: StatusCode, message: impl Into<String>) -> ServiceError {
    let message = message.into();
    ServiceError { status, message }
}

#[cfg(test)]
mod tests {
    use http::Method;
    use metaclaw_skills::{MemoryConfig, MemoryKind};

    use super::*;

    #[test]
    fn calls_are_answered_about_the_scope_that_they_name_and_bad_ones_are_refused() {
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
        let answer = |method: Method, path: &str, fields: Value| {
            let call = MemoryCall {
                agent: None,
                method,
                path: path.to_owned(),
                fields: fields.as_object().unwrap().clone(),
            };
            stored(&memory, &call, None)
        };
        for (fields, counted) in [
            (json!({}), "default"),
            (json!({"scope": ""}), "default"),
            (json!({"scope": "user:bob"}), "user:bob"),
        ] {
            let stats = answer(Method::GET, "stats", fields).unwrap();
            assert_eq!(
                (&stats["scope_id"], &stats["total"]),
                (&json!(counted), &json!(1))
            );
        }
        let hits = answer(Method::GET, "search", json!({"q": "bob", "limit": "3"})).unwrap();
        let id = hits[0]["memory_id"].as_str().unwrap();
        let one = answer(Method::GET, id, json!({})).unwrap();
        assert_eq!(one["content"], "My name is Bob.");
        for (method, path, fields, status, message) in [
            (
                Method::GET,
                "search",
                json!({"limit": "0"}),
                400,
                "limit: \"0\" is not 1 to 1000",
            ),
            (Method::GET, "0badcafe", json!({}), 404, "memory not found"),
            (
                Method::DELETE,
                "0badcafe",
                json!({}),
                404,
                "memory not found",
            ),
            (
                Method::POST,
                "forget",
                json!({}),
                400,
                "memory_id: a text is needed",
            ),
            (
                Method::POST,
                "action-plan",
                json!({}),
                404,
                "POST /v1/memory/action-plan is not served",
            ),
            (
                Method::PUT,
                "x",
                json!({}),
                405,
                "/v1/memory/x does not take PUT",
            ),
        ] {
            let refused = answer(method, path, fields).unwrap_err();
            assert_eq!(refused.status, status, "{path}");
            assert!(refused.message.starts_with(message), "{}", refused.message);
        }
        answer(Method::DELETE, id, json!({})).unwrap();
        assert_eq!(memory.list(None, None).unwrap().len(), 1);
    }
}
