//! Counters with labels: requests by agent and upstream, and where their time went.
//!
//! Agents name themselves in a header, so their number is limited here: beyond [`MAX_AGENTS`] they share one label. The
//! other labels have few possible values.

use std::{collections::HashSet, sync::Mutex};

use metaclaw_chat::AgentId;
use metaclaw_dialects::Api;
use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder},
    metrics::{counter::Counter, family::Family, histogram::Histogram},
};
use smart_default::SmartDefault;

use crate::lock::lock;

/// Number of agents with their own label. Later ones are counted together.
pub(super) const MAX_AGENTS: usize = 64;
pub(super) const OTHER: &str = "_other";

/// Buckets for the first byte in seconds: from a cached answer to a model that thinks.
const FIRST_BYTE: [f64; 14] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0,
];
/// Buckets for our own time in seconds: normally tens of microseconds.
const ADDED: [f64; 12] = [
    0.000_02, 0.000_05, 0.000_1, 0.000_2, 0.000_5, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1, 1.0,
];
/// Buckets for a whole reply in seconds.
const STREAM: [f64; 13] = [
    0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 180.0, 600.0, 1800.0,
];

type Seconds = Family<Labels, Histogram, fn() -> Histogram>;

#[derive(Debug, SmartDefault)]
pub(crate) struct Traffic {
    pub(super) requests: Family<Answered, Counter>,
    #[default(Family::new_with_constructor(|| Histogram::new(FIRST_BYTE)))]
    pub(super) first_byte: Seconds,
    #[default(Family::new_with_constructor(|| Histogram::new(ADDED)))]
    pub(super) added: Seconds,
    #[default(Family::new_with_constructor(|| Histogram::new(STREAM)))]
    pub(super) stream: Seconds,
    agents: Mutex<HashSet<AgentId>>,
}

/// A request that was answered, or whose agent closed the connection before. A label is empty if it is not known: for a
/// request that was refused before it was read, or went to no upstream.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Answered {
    agent: String,
    api: ApiLabel,
    status: AnswerStatus,
    upstream: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Labels {
    pub api: ApiLabel,
    pub upstream: String,
}

/// A chat API, or none for requests that pass unread, and for our own routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct ApiLabel(pub Option<Api>);

/// The status, or none if the agent closed the connection before there was one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct AnswerStatus(Option<u16>);

// === impl Traffic ===

impl Traffic {
    pub(super) fn count(
        &self,
        api: ApiLabel,
        agent: Option<&AgentId>,
        upstream: Option<&str>,
        status: Option<u16>,
    ) {
        let agent = agent.map(|agent| {
            if self.admits(agent) {
                agent.as_str()
            } else {
                OTHER
            }
        });
        let labels = Answered {
            agent: agent.unwrap_or_default().to_owned(),
            api,
            status: AnswerStatus(status),
            upstream: upstream.unwrap_or_default().to_owned(),
        };
        self.requests.get_or_create(&labels).inc();
    }

    fn admits(&self, agent: &AgentId) -> bool {
        let mut agents = lock(&self.agents);
        agents.contains(agent) || (agents.len() < MAX_AGENTS && agents.insert(agent.clone()))
    }
}

// === impl AnswerStatus ===

impl EncodeLabelValue for AnswerStatus {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        match self.0 {
            Some(status) => u64::from(status).encode(encoder),
            None => "none".encode(encoder),
        }
    }
}

// === impl ApiLabel ===

impl EncodeLabelValue for ApiLabel {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        self.0.map_or("other", Api::name).encode(encoder)
    }
}
