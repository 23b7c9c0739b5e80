//! Which agents' weights are being trained: one training of each at a time.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use metaclaw_chat::AgentId;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

/// One lock for each agent. A step and a training from a data set hold it.
#[derive(Debug, Default)]
pub(crate) struct AgentLocks(Mutex<BTreeMap<AgentId, Arc<AsyncMutex<()>>>>);

// === impl AgentLocks ===

impl AgentLocks {
    /// Locks an agent, unless something is trained of it.
    pub(crate) fn try_lock(&self, agent: &AgentId) -> Option<OwnedMutexGuard<()>> {
        self.of(agent).try_lock_owned().ok()
    }

    /// Locks an agent once nothing else is trained of it. The longest waiter gets the lock first.
    pub(crate) async fn lock(&self, agent: &AgentId) -> OwnedMutexGuard<()> {
        self.of(agent).lock_owned().await
    }

    fn of(&self, agent: &AgentId) -> Arc<AsyncMutex<()>> {
        // Each change is one call, so a panic elsewhere leaves the map usable.
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(all.entry(agent.clone()).or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_agent_is_locked_once_and_others_are_free() {
        let locks = AgentLocks::default();
        let [one, other]: [AgentId; 2] = ["one", "other"].map(|name| name.parse().unwrap());
        let held = locks.lock(&one).await;
        assert!(locks.try_lock(&one).is_none());
        assert!(locks.try_lock(&other).is_some());
        drop(held);
        assert!(locks.try_lock(&one).is_some());
    }
}
