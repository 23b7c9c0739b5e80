//! One request on its way through, as the metrics see it.

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use metaclaw_chat::AgentId;
use metaclaw_dialects::Api;
use tokio::time::Instant;

use super::{Metrics, traffic::Lane};

/// A request, from its headers to the answer's. Counted when it is dropped, however it ended: also
/// where the agent hung up before there was an answer.
#[derive(Debug)]
pub(crate) struct Visit {
    metrics: Arc<Metrics>,
    api: Option<Api>,
    agent: Option<AgentId>,
    lane: Option<Arc<Lane>>,
    status: Option<u16>,
    came: Instant,
    /// Since when the time is ours: the agent has sent all of its request.
    read: Instant,
    /// Of that, the time that upstreams took.
    theirs: Duration,
}

/// A reply on its way to the agent.
#[derive(Debug)]
pub(crate) struct Watch {
    lane: Arc<Lane>,
    came: Instant,
    has_begun: bool,
}

// === impl Visit ===

impl Visit {
    /// A request whose headers have come.
    pub(crate) fn new(metrics: &Arc<Metrics>, path: &str) -> Self {
        let now = Instant::now();
        Self {
            metrics: Arc::clone(metrics),
            api: Api::of_path(path),
            agent: None,
            lane: None,
            status: None,
            came: now,
            read: now,
            theirs: Duration::ZERO,
        }
    }

    /// Its body has come: what follows is our own time.
    pub(crate) fn has_read(&mut self) {
        self.read = Instant::now();
    }

    /// Who asks.
    pub(crate) fn is_of(&mut self, agent: &AgentId) {
        self.agent = Some(agent.clone());
    }

    /// Waits for an upstream; the time is theirs. Pinned, as a future that is handed over takes its size
    /// twice.
    pub(crate) async fn ask<T>(
        &mut self,
        upstream: &str,
        asking: Pin<&mut impl Future<Output = T>>,
    ) -> T {
        let is_known = |lane: &Arc<Lane>| *lane.upstream == *upstream;
        if !self.lane.as_ref().is_some_and(is_known) {
            self.lane = Some(self.metrics.traffic.lane(self.api, upstream));
        }
        let asked = Instant::now();
        let answer = asking.await;
        self.theirs += asked.elapsed();
        answer
    }

    /// What times the reply; nothing where nobody was asked.
    pub(crate) fn watch(&self) -> Option<Watch> {
        Some(Watch {
            lane: Arc::clone(self.lane.as_ref()?),
            came: self.came,
            has_begun: false,
        })
    }

    /// The answer goes to the agent.
    pub(crate) fn answered(mut self, status: u16) {
        self.status = Some(status);
        if let Some(lane) = &self.lane {
            let ours = self.read.elapsed().saturating_sub(self.theirs);
            lane.added.observe(ours.as_secs_f64());
        }
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let (agent, lane) = (self.agent.take(), self.lane.as_deref());
        let traffic = &self.metrics.traffic;
        traffic.count(self.api, agent, lane, self.status);
    }
}

// === impl Watch ===

impl Watch {
    /// Bytes of the reply go to the agent.
    pub(crate) fn bytes(&mut self) {
        if !self.has_begun {
            self.has_begun = true;
            let seconds = self.came.elapsed().as_secs_f64();
            self.lane.first_byte.observe(seconds);
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let seconds = self.came.elapsed().as_secs_f64();
        self.lane.stream.observe(seconds);
    }
}
