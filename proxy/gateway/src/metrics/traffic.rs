//! What is told apart by labels: requests by who asked and who answered, and where their time went.
//!
//! Agents name themselves in a header, so that their number is bounded here: beyond
//! [`MAX_AGENTS`] they share one label. The other labels have few values by nature.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, PoisonError, RwLock},
};

use metaclaw_chat::AgentId;
use metaclaw_dialects::Api;
use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder},
    metrics::{counter::Counter, family::Family, histogram::Histogram},
};

/// Agents that have a label of their own; those that come later are counted together.
pub(super) const MAX_AGENTS: usize = 64;
/// The label of all others.
pub(super) const OTHER: &str = "_other";
/// The label of what is not known: a request that was refused before it was read, or asked nobody.
const NONE: &str = "";

/// Seconds until the first byte: a cache's answer to a model that thinks.
const FIRST_BYTE: [f64; 14] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0,
];
/// Seconds of our own: tens of microseconds where all is well.
const ADDED: [f64; 12] = [
    0.000_02, 0.000_05, 0.000_1, 0.000_2, 0.000_5, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1, 1.0,
];
/// Seconds of a whole reply.
const STREAM: [f64; 13] = [
    0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 180.0, 600.0, 1800.0,
];

type Seconds = Family<Labels, Histogram, fn() -> Histogram>;

/// The labelled series.
#[derive(Debug)]
pub(crate) struct Traffic {
    pub(super) requests: Family<Answered, Counter>,
    pub(super) first_byte: Seconds,
    pub(super) added: Seconds,
    pub(super) stream: Seconds,
    agents: RwLock<HashSet<AgentId>>,
    /// By the upstream's name, one for each API and one for what is none.
    series_of: RwLock<HashMap<Arc<str>, [Arc<UpstreamSeries>; 4]>>,
}

/// One API at one upstream: its histograms, looked up once for a request.
#[derive(Debug)]
pub(crate) struct UpstreamSeries {
    pub(super) upstream: Arc<str>,
    pub(super) first_byte: Histogram,
    pub(super) added: Histogram,
    pub(super) stream: Histogram,
}

/// A request that was answered, or whose agent hung up before.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Answered {
    agent: Label,
    api: Route,
    status: Status,
    upstream: Label,
}

/// Which API, at whom.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Labels {
    api: Route,
    upstream: Label,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Label {
    Agent(AgentId),
    Upstream(Arc<str>),
    Fixed(&'static str),
}

/// A chat API; none of what passes unread, and of our own routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Route(Option<Api>);

/// The status; none where the agent hung up before there was one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Status(Option<u16>);

// === impl Traffic ===

impl Default for Traffic {
    fn default() -> Self {
        let seconds = Family::new_with_constructor;
        Self {
            requests: Family::default(),
            first_byte: seconds(|| Histogram::new(FIRST_BYTE)),
            added: seconds(|| Histogram::new(ADDED)),
            stream: seconds(|| Histogram::new(STREAM)),
            agents: RwLock::default(),
            series_of: RwLock::default(),
        }
    }
}

impl Traffic {
    /// The series of one API at one upstream. Names of upstreams come from the settings: they are few.
    pub(super) fn series(&self, api: Option<Api>, upstream: &str) -> Arc<UpstreamSeries> {
        let route = Route(api);
        let known = self
            .series_of
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(each) = known.get(upstream) {
            return Arc::clone(&each[route.index()]);
        }
        drop(known);
        let upstream: Arc<str> = upstream.into();
        let each = Route::ALL.map(|route| Arc::new(self.new_series(route, &upstream)));
        let mut known = self
            .series_of
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let each = known.entry(upstream).or_insert(each);
        Arc::clone(&each[route.index()])
    }

    fn new_series(&self, api: Route, upstream: &Arc<str>) -> UpstreamSeries {
        let labels = Labels {
            api,
            upstream: Label::Upstream(Arc::clone(upstream)),
        };
        UpstreamSeries {
            upstream: Arc::clone(upstream),
            first_byte: self.first_byte.get_or_create_owned(&labels),
            added: self.added.get_or_create_owned(&labels),
            stream: self.stream.get_or_create_owned(&labels),
        }
    }

    /// Counts a request.
    pub(super) fn count(
        &self,
        api: Option<Api>,
        agent: Option<AgentId>,
        upstream: Option<&UpstreamSeries>,
        status: Option<u16>,
    ) {
        let mut labels = Answered {
            agent: agent.map_or(Label::Fixed(NONE), Label::Agent),
            api: Route(api),
            status: Status(status),
            upstream: upstream.map_or(Label::Fixed(NONE), |series| {
                Label::Upstream(Arc::clone(&series.upstream))
            }),
        };
        if let Some(known) = self.requests.get(&labels) {
            known.inc();
            return;
        }
        if let Label::Agent(agent) = &labels.agent
            && !self.admits(agent)
        {
            labels.agent = Label::Fixed(OTHER);
        }
        self.requests.get_or_create(&labels).inc();
    }

    /// Whether an agent has a label of its own.
    fn admits(&self, agent: &AgentId) -> bool {
        let mut agents = self.agents.write().unwrap_or_else(PoisonError::into_inner);
        agents.contains(agent) || (agents.len() < MAX_AGENTS && agents.insert(agent.clone()))
    }
}

// === impl Label ===

impl EncodeLabelValue for Label {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        let text = match self {
            Self::Agent(agent) => agent.as_str(),
            Self::Upstream(name) => name,
            Self::Fixed(text) => text,
        };
        text.encode(encoder)
    }
}

impl EncodeLabelValue for Status {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        match self.0 {
            Some(status) => u64::from(status).encode(encoder),
            None => "none".encode(encoder),
        }
    }
}

// === impl Route ===

impl Route {
    /// All there are, each at its [`Route::index`].
    const ALL: [Self; 4] = [
        Self(Some(Api::Chat)),
        Self(Some(Api::Responses)),
        Self(Some(Api::Messages)),
        Self(None),
    ];

    fn index(self) -> usize {
        match self.0 {
            Some(Api::Chat) => 0,
            Some(Api::Responses) => 1,
            Some(Api::Messages) => 2,
            None => 3,
        }
    }
}

impl EncodeLabelValue for Route {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        self.0.map_or("other", Api::name).encode(encoder)
    }
}
