//! Our own policy model among the upstreams: it moves, it may be away, and it may hang.
//!
//! A trainer that was stopped, or hangs, neither answers nor closes its connections. So it is asked every
//! few seconds whether it is there; where it is silent, what waits for it goes on to the next upstream, and
//! nobody is sent there until it answers again.

use std::{sync::Arc, time::Duration};

use rustls::RootCertStore;
use tokio::time::{MissedTickBehavior, interval};

use crate::{
    config::{ConfigError, GatewayConfig, POLICY},
    failure::Failure,
    serving::{Endpoint, Serving},
    upstream::{Client, Upstream, policy_client},
};

/// How often it is asked whether it is there, and how long it may take to say so, unless
/// `upstreams.policy.connect` is shorter.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// How the policy model is asked, wherever it is.
#[derive(Debug)]
pub(super) struct Policy {
    serving: Arc<Serving>,
    client: Arc<Client>,
    heartbeat: Duration,
    idle: Option<Duration>,
    fail_over: Vec<Failure>,
}

// === impl Policy ===

impl Policy {
    pub(super) fn new(
        config: &GatewayConfig,
        roots: &RootCertStore,
        serving: Arc<Serving>,
    ) -> Result<Self, ConfigError> {
        let own = config.upstreams.get(POLICY).cloned().unwrap_or_default();
        Ok(Self {
            serving,
            client: Arc::new(policy_client(&own, roots)?),
            heartbeat: own.connect.0.min(HEARTBEAT),
            idle: own.idle.map(|idle| idle.0),
            fail_over: config.routing.fail_over.clone(),
        })
    }

    /// It, where it is served and answers.
    pub(super) fn upstream(&self) -> Option<Upstream> {
        let endpoint = self
            .serving
            .policy()
            .filter(|endpoint| !endpoint.is_silent())?;
        Some(self.at(endpoint))
    }

    fn at(&self, endpoint: Arc<Endpoint>) -> Upstream {
        Upstream::policy(
            endpoint,
            Arc::clone(&self.client),
            &self.fail_over,
            self.idle,
        )
    }

    /// Notes for ever whether it answers.
    pub(super) async fn watch(&self) {
        let mut ticks = interval(self.heartbeat);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.tick().await;
        loop {
            ticks.tick().await;
            if let Some(endpoint) = self.serving.policy() {
                let is_there = self
                    .at(Arc::clone(&endpoint))
                    .is_there(self.heartbeat)
                    .await;
                endpoint.set_silent(!is_there);
            }
        }
    }
}
