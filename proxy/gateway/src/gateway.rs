//! The gateway: the state that all requests share.

use std::sync::Arc;

use metaclaw_capture::{CaptureConfig, TurnSink, Worker, recorder};
use metaclaw_chat::{AgentId, ChainHash, SessionId, Span};
use metaclaw_dialects::request::KnownValues;
use metaclaw_skills::{Library, MemoryStore};
use metaclaw_turns::Turn;
use rustls::RootCertStore;
use tokio_util::task::TaskTracker;

use crate::{
    accept::max_connections,
    admission::Admission,
    auth::{Authenticator, layer::AuthLayer, names::AgentNames},
    body_limit::BodyLimitLayer,
    chat::Chat,
    config::{ConfigError, GatewayConfig},
    histories::{HeardLog, Histories},
    identity::{Delegations, Identifier, Lineage, SidePatterns},
    metrics::Metrics,
    origin::{OriginLayer, Origins},
    past_replies::PastReplies,
    privacy::{Keeper, Privacy},
    probes::ProbesLayer,
    rollouts::Rollouts,
    routing::Upstreams,
    services::Services,
    serving::Serving,
    sessions::SessionContexts,
    stack::{Served, Stack},
};

/// Captures that may wait to be read and handed to the log. A log that stops for a second loses nothing. Their bytes
/// stay within `proxy.capture_memory`. Beyond either limit, a turn is dropped and counted.
pub(crate) const QUEUE: usize = 16_384;

/// The parts from which the gateway is made.
#[derive(derive_more::Debug)]
#[debug("GatewayParts({config:?}, {serving:?}, {services:?})")]
pub struct GatewayParts {
    pub config: GatewayConfig,
    pub log: Arc<dyn TurnSink>,
    /// Finds the conversation up to a reply.
    pub past: Arc<dyn PastReplies>,
    /// The conversations of the log, the newest first: the hash after the reply, and the session.
    pub known: Vec<(AgentId, ChainHash, SessionId)>,
    /// The turns of the last hour, the newest first, because a sub-agent that was started in one continues its work.
    pub recent: Vec<Turn>,
    pub library: Library,
    /// What the owner told, or none where nothing is remembered.
    pub memory: Option<MemoryStore>,
    /// The certificates that upstreams are checked with, unless they have their own authority.
    pub roots: Arc<RootCertStore>,
    pub serving: Arc<Serving>,
    /// Which agents are only relayed, and what is off the record.
    pub privacy: Arc<Privacy>,
    /// Routes that other crates serve.
    pub services: Services,
    /// The open rollouts, or none where nothing is recorded.
    pub rollouts: Option<Arc<Rollouts>>,
}

/// A gateway that does not listen yet.
#[derive(derive_more::Debug)]
#[debug("Gateway({drain:?}, {max_connections})")]
pub struct Gateway {
    pub(crate) stack: Stack,
    pub(crate) worker: Worker,
    /// Tasks besides the connections. They run until the gateway ends.
    pub(crate) tasks: TaskTracker,
    pub(crate) drain: Span,
    pub(crate) max_connections: usize,
}

// === impl Gateway ===

impl Gateway {
    /// Makes a gateway. Nothing runs before [`Gateway::serve`].
    ///
    /// # Errors
    ///
    /// Returns [`ConfigError`], which names the unusable setting.
    pub fn new(parts: GatewayParts) -> Result<Self, ConfigError> {
        Self::with(parts, QUEUE)
    }

    /// Makes a gateway with room for so many turns that the log has not accepted.
    pub(crate) fn with(parts: GatewayParts, at_once: usize) -> Result<Self, ConfigError> {
        let config = parts.config;
        config.check()?;
        let metrics = Arc::new(Metrics::default());
        let capture = CaptureConfig {
            memory: config.proxy.capture_memory.0,
            queue: at_once,
            strict: config.strict,
        };
        let mends = config.routing.mend_history;
        let histories = mends.then(|| Arc::new(Histories::new(Arc::clone(&parts.past))));
        let log = HeardLog::around(parts.log, histories.as_ref());
        let (recorder, worker) = recorder(log, capture, Arc::clone(&metrics.capture));
        let names = names(&config, &parts.library, &parts.known, &metrics);
        let authenticator = Arc::new(Authenticator::new(&config.proxy, names));
        let pin_idle = config.serving.pin_idle.0;
        let sessions = Arc::new(SessionContexts::new(
            parts.library,
            parts.memory,
            Arc::clone(&parts.serving),
            pin_idle,
            Arc::clone(&metrics),
        ));
        let serving = Arc::clone(&parts.serving);
        let upstreams = Upstreams::new(&config, &parts.roots, serving, Arc::clone(&authenticator))?;
        let upstreams = Arc::new(upstreams);
        let identifier = Identifier::new(
            Lineage::new(pin_idle, parts.known),
            Delegations::new(&parts.recent),
            SidePatterns::new(&config.compat.side_patterns)?,
            &config.compat,
            upstreams.agents(),
        );
        let keeper = Keeper::new(parts.privacy, &config.privacy.phrases, Arc::clone(&metrics))?;
        let tasks = TaskTracker::new();
        let stack = Stack {
            metrics: Arc::clone(&metrics),
            origin: OriginLayer {
                origins: Arc::new(Origins::new(&config.proxy.allow_origins)?),
                authenticator: Arc::clone(&authenticator),
            },
            probes: ProbesLayer {
                authenticator: Arc::clone(&authenticator),
                metrics: Arc::clone(&metrics),
                recorder: recorder.clone(),
                services: parts.services.clone(),
                serving: parts.serving,
                upstreams: Arc::clone(&upstreams),
            },
            admission: Admission::new(config.proxy.max_streams, &metrics),
            auth: AuthLayer {
                authenticator,
                admin_token: parts.services.admin_token.clone(),
                rollouts: parts.rollouts.clone(),
            },
            served: Served {
                body_limit: BodyLimitLayer::new(&config.proxy, &metrics, &tasks),
                upstreams: Arc::clone(&upstreams),
                chat: Arc::new(Chat {
                    known: KnownValues::default(),
                    identifier,
                    keeper,
                    sessions,
                    upstreams,
                    histories,
                    sampling: config.serving.sampling(),
                    max_context_tokens: config.max_context_tokens,
                    past: parts.past,
                    recorder: (!config.unrecorded).then_some(recorder),
                }),
                services: parts.services,
                rollouts: parts.rollouts,
            },
        };
        Ok(Self {
            stack,
            worker,
            tasks,
            drain: config.proxy.drain,
            max_connections: max_connections(),
        })
    }

    /// Returns the authenticator, whose keys can be changed.
    pub fn authenticator(&self) -> Arc<Authenticator> {
        Arc::clone(&self.stack.auth.authenticator)
    }

    /// Returns the upstreams, which can be changed.
    pub fn upstreams(&self) -> Arc<Upstreams> {
        Arc::clone(&self.stack.served.upstreams)
    }

    pub fn metrics(&self) -> Arc<Metrics> {
        Arc::clone(&self.stack.metrics)
    }
}

fn names(
    config: &GatewayConfig,
    library: &Library,
    known: &[(AgentId, ChainHash, SessionId)],
    metrics: &Metrics,
) -> AgentNames {
    let settings = config.agents.keys().cloned();
    let of_log = known.iter().map(|(agent, ..)| agent.clone());
    let used = library.agents().into_iter().chain(of_log);
    AgentNames::new(settings, used, Arc::clone(&metrics.other_agents))
}
