//! What the gate wants a runner of rollouts to try while it tests an adapter.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use metaclaw_chat::{AgentId, lock};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

const GONE_AFTER: Duration = Duration::from_secs(30);

/// Rollouts on held-out tasks that a runner is to make now. None is wanted if `held_out` is 0.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WantedRollouts {
    /// The adapter that has to answer, or none for the one that serves the agent.
    pub adapter: Option<String>,
    /// The number of rollouts.
    pub held_out: usize,
}

/// Where the gate says what it wants, and runners ask for it.
#[derive(Debug, Default)]
pub(crate) struct RolloutRequests(Mutex<BTreeMap<AgentId, AgentRequest>>);

#[derive(Debug, Default)]
struct AgentRequest {
    asked_at: Option<Instant>,
    wanted: WantedRollouts,
}

/// Takes what is wanted back when it is dropped.
pub(crate) struct RolloutRequest<'a> {
    requests: &'a RolloutRequests,
    agent: &'a AgentId,
}

// === impl RolloutRequests ===

impl RolloutRequests {
    /// Returns what is wanted of an agent's runner, and remembers that there is one.
    pub(crate) fn poll(&self, agent: &AgentId) -> WantedRollouts {
        let mut all = self.all();
        let of = all.entry(agent.clone()).or_default();
        of.asked_at = Some(Instant::now());
        of.wanted.clone()
    }

    pub(crate) fn has_runner(&self, agent: &AgentId) -> bool {
        let asked_at = self.all().get(agent).and_then(|of| of.asked_at);
        asked_at.is_some_and(|at| at.elapsed() <= GONE_AFTER)
    }

    /// Asks an agent's runner for rollouts until the result is dropped.
    pub(crate) fn ask<'a>(
        &'a self,
        agent: &'a AgentId,
        wanted: WantedRollouts,
    ) -> RolloutRequest<'a> {
        self.all().entry(agent.clone()).or_default().wanted = wanted;
        RolloutRequest {
            requests: self,
            agent,
        }
    }

    /// A panic elsewhere leaves a usable map, because each change is one call.
    fn all(&self) -> MutexGuard<'_, BTreeMap<AgentId, AgentRequest>> {
        lock(&self.0)
    }
}

// === impl RolloutRequest ===

impl Drop for RolloutRequest<'_> {
    fn drop(&mut self) {
        if let Some(of) = self.requests.all().get_mut(self.agent) {
            of.wanted = WantedRollouts::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_runner_is_told_what_is_wanted_and_is_gone_when_it_asks_no_more() {
        let (requests, agent) = (RolloutRequests::default(), AgentId::default_agent());
        assert!(!requests.has_runner(&agent));
        assert_eq!(requests.poll(&agent), WantedRollouts::default());
        let wanted = WantedRollouts {
            adapter: Some("a-1".to_owned()),
            held_out: 8,
        };
        let request = requests.ask(&agent, wanted.clone());
        assert_eq!(requests.poll(&agent), wanted);
        drop(request);
        assert_eq!(requests.poll(&agent), WantedRollouts::default());
        tokio::time::advance(GONE_AFTER).await;
        assert!(requests.has_runner(&agent));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(!requests.has_runner(&agent));
    }
}
