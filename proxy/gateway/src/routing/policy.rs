//! Our own policy model as an upstream. Its server may move, be unreachable, or hang.
//!
//! A trainer that was stopped, or hangs, neither answers nor closes its connections. Therefore the proxy checks every
//! few seconds whether it answers. If not, waiting requests go to the next upstream, and no request is sent there until
//! it answers again.

use std::{sync::Arc, time::Duration};

use rustls::RootCertStore;
use tokio::time::{MissedTickBehavior, interval};

use crate::{
    config::{ConfigError, GatewayConfig, POLICY},
    failure::Failure,
    serving::{Endpoint, Serving},
    upstream::{Client, Upstream, policy_client},
};

/// The interval of the check, and its deadline unless `upstreams.policy.connect` is shorter.
const HEARTBEAT: Duration = Duration::from_secs(5);

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
