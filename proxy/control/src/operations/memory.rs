//! Operations on memories: facts that the owner told.

use async_trait::async_trait;
use metaclaw_chat::AgentId;
use metaclaw_skills::{Memory, MemoryError, MemoryKind, MemoryScope, MemoryStore};
use serde::{Deserialize, Serialize};

use super::lessons::on_files;
use crate::{
    instance::Instance,
    operation::{Operation, OperationFailure},
};

/// The memories of an agent, or of all, the oldest first; with a query, those that share words with it, best first.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ListMemories {
    pub agent: Option<AgentId>,
    pub scope: Option<MemoryScope>,
    pub query: Option<String>,
    /// The most that are listed.
    pub limit: Option<usize>,
}

/// A change of the memories of one agent.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "snake_case")]
pub enum MemoryChange {
    /// Stores what the owner wrote by hand.
    Add {
        agent: AgentId,
        scope: Option<MemoryScope>,
        kind: MemoryKind,
        content: String,
        is_pinned: bool,
    },
    /// Deletes one memory of any agent.
    Forget { id: String },
}

/// The memories, and whether sessions get them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MemoriesView {
    pub memories: Vec<Memory>,
    /// `memory.enabled`.
    pub is_enabled: bool,
}

#[async_trait]
impl Operation for ListMemories {
    const PATH: &'static str = "memories";
    type Reply = MemoriesView;

    async fn perform(self, instance: &Instance) -> Result<MemoriesView, OperationFailure> {
        let store = instance.memory()?;
        on_files(move || Ok(view(&store, &self)?)).await
    }
}

#[async_trait]
impl Operation for MemoryChange {
    const PATH: &'static str = "memory";
    const SHOWN_BY: Option<&'static str> = Some("metaclaw memory list");
    type Reply = String;

    async fn perform(self, instance: &Instance) -> Result<String, OperationFailure> {
        let store = instance.memory()?;
        on_files(move || Ok(change(&store, self)?)).await
    }
}

fn view(store: &MemoryStore, wanted: &ListMemories) -> Result<MemoriesView, MemoryError> {
    let (agent, scope) = (wanted.agent.as_ref(), wanted.scope.as_ref());
    let limit = wanted.limit.unwrap_or(usize::MAX);
    let mut memories = match &wanted.query {
        Some(query) => {
            let hits = store.search(agent, scope, query, limit)?.into_iter();
            hits.map(|hit| hit.memory).collect()
        }
        None => store.list(agent, scope)?,
    };
    let too_many = memories.len().saturating_sub(limit);
    memories.drain(..too_many);
    Ok(MemoriesView {
        memories,
        is_enabled: store.config().is_on(),
    })
}

fn change(store: &MemoryStore, change: MemoryChange) -> Result<String, MemoryError> {
    match change {
        MemoryChange::Add {
            agent,
            scope,
            kind,
            content,
            is_pinned,
        } => {
            let scope = scope.unwrap_or_else(|| store.default_scope());
            let memory = store.write_down(&agent, &scope, kind, &content, is_pinned)?;
            let id = &memory.memory_id;
            let when = if agent == AgentId::shared() || store.is_on_for(&agent) {
                "from the next session on"
            } else {
                "once memory.enabled is true"
            };
            Ok(format!("remembered as {id}, {when}: {}", memory.content))
        }
        MemoryChange::Forget { id } => {
            let memory = store.forget(None, &id)?;
            Ok(format!("forgotten: {}", memory.content))
        }
    }
}
