//! The gateway: what all requests share.

use std::{fmt, sync::Arc};

use metaclaw_chat::{AgentId, ChainHash, SessionId};
use metaclaw_skills::Library;
use rustls::RootCertStore;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    auth::Door,
    body::Bodies,
    capture::Budget,
    config::{ConfigError, GatewayConfig},
    identity::{Identifier, Identity, Lineage, Replies, SidePatterns},
    inject::{Given, Sessions},
    metrics::{Metrics, Watch},
    origin::Origins,
    record::{AT_ONCE, Recorder, Recordings, TurnSink, recorder},
    refusal::Refusal,
    routing::Upstreams,
    server::StalledStreams,
    services::Services,
    serving::Serving,
};

/// What the gateway is made of.
pub struct GatewayParts {
    /// Its settings.
    pub config: GatewayConfig,
    /// Where turns go.
    pub log: Arc<dyn TurnSink>,
    /// The conversations of the log, the newest first: the hash after the reply, and the session.
    pub known: Vec<(AgentId, ChainHash, SessionId)>,
    /// Skills and wishes.
    pub library: Library,
    /// The certificates that upstreams are trusted by, where they have no authority of their own.
    pub roots: Arc<RootCertStore>,
    /// The serving pointers.
    pub serving: Arc<Serving>,
    /// Routes that reach beyond the gateway.
    pub services: Services,
}

/// A gateway that does not listen yet.
pub struct Gateway {
    pub(crate) shared: Arc<Shared>,
    pub(crate) recordings: Recordings,
}

/// What all requests share.
pub(crate) struct Shared {
    pub config: GatewayConfig,
    pub door: Arc<Door>,
    pub origins: Origins,
    pub identifier: Identifier,
    pub sessions: Arc<Sessions>,
    pub serving: Arc<Serving>,
    pub upstreams: Upstreams,
    pub recorder: Recorder,
    /// Streams of HTTP/2, of which some may not be read.
    pub stalled: StalledStreams,
    pub bodies: Bodies,
    pub services: Services,
    pub metrics: Arc<Metrics>,
    streams: Arc<Semaphore>,
}

/// A request under way; counted until it is dropped.
pub(crate) struct Ticket {
    metrics: Arc<Metrics>,
    session: Option<InSession>,
    watch: Option<Watch>,
    _permit: OwnedSemaphorePermit,
}

/// A turn under way: its adapter stays loaded, and its session's pause begins at its end.
pub(crate) struct InSession {
    pub sessions: Arc<Sessions>,
    pub who: Identity,
    pub _given: Given,
}

impl fmt::Debug for GatewayParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GatewayParts")
            .field("config", &self.config)
            .field("serving", &self.serving)
            .field("services", &self.services)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gateway")
            .field("config", &self.shared.config)
            .finish_non_exhaustive()
    }
}

// === impl Gateway ===

impl Gateway {
    /// Puts a gateway together. Nothing runs before [`Gateway::serve`].
    ///
    /// # Errors
    ///
    /// [`ConfigError`] names the setting that cannot be used.
    pub fn new(parts: GatewayParts) -> Result<Self, ConfigError> {
        Self::with(parts, AT_ONCE)
    }

    /// The same, with room for so many turns that the log has not taken.
    pub(crate) fn with(parts: GatewayParts, at_once: usize) -> Result<Self, ConfigError> {
        let config = parts.config;
        config.check()?;
        let metrics = Arc::new(Metrics::default());
        let budget = Budget::of_captures(config.proxy.capture_memory.0, Arc::clone(&metrics));
        let replies = Arc::new(Replies::new());
        let (recorder, recordings) = recorder(
            parts.log,
            budget,
            Arc::clone(&replies),
            Arc::clone(&metrics),
            config.strict,
            at_once,
        );
        let door = Arc::new(Door::new(&config.proxy));
        let pin_idle = config.serving.pin_idle.0;
        let side = SidePatterns::new(&config.compat.side_patterns)?;
        let lineage = Lineage::new(pin_idle, parts.known);
        let serving = parts.serving;
        let sessions = Sessions::new(
            parts.library,
            Arc::clone(&serving),
            pin_idle,
            Arc::clone(&metrics),
        );
        let shared = Shared {
            identifier: Identifier::new(
                lineage,
                replies,
                side,
                &config.compat,
                config.agents.clone(),
            ),
            sessions: Arc::new(sessions),
            origins: Origins::new(&config.proxy.allow_origins)?,
            upstreams: Upstreams::new(&config, &parts.roots, Arc::clone(&door))?,
            // Beyond tokio's bound there would be a panic; nobody has as many.
            streams: Arc::new(Semaphore::new(
                config.proxy.max_streams.min(Semaphore::MAX_PERMITS),
            )),
            bodies: Bodies::new(&config.proxy, &metrics),
            services: parts.services,
            stalled: StalledStreams::new(),
            serving,
            recorder,
            metrics,
            door,
            config,
        };
        Ok(Self {
            shared: Arc::new(shared),
            recordings,
        })
    }

    /// Its door, to change who may come in.
    pub fn door(&self) -> Arc<Door> {
        Arc::clone(&self.shared.door)
    }

    /// What it counts.
    pub fn metrics(&self) -> Arc<Metrics> {
        Arc::clone(&self.shared.metrics)
    }
}

// === impl Shared ===

impl Shared {
    /// Takes one of the places of `proxy.max_streams`, or refuses at once.
    pub(crate) fn enter(&self) -> Result<Ticket, Refusal> {
        let permit = Arc::clone(&self.streams).try_acquire_owned();
        let limit = self.config.proxy.max_streams;
        let permit = permit.map_err(|_| Refusal::Busy { limit })?;
        self.metrics.active_streams.inc();
        Ok(Ticket {
            metrics: Arc::clone(&self.metrics),
            session: None,
            watch: None,
            _permit: permit,
        })
    }
}

// === impl Ticket ===

impl Ticket {
    /// One that stands for no request.
    #[cfg(test)]
    pub(crate) fn of_nobody() -> Self {
        let streams = Arc::new(Semaphore::new(1));
        Self {
            metrics: Arc::default(),
            session: None,
            watch: None,
            _permit: streams.try_acquire_owned().unwrap(),
        }
    }

    /// The request is a turn of a session.
    pub(crate) fn of(mut self, session: InSession) -> Self {
        self.session = Some(session);
        self
    }

    /// Its reply is timed from now on.
    pub(crate) fn watched(mut self, watch: Option<Watch>) -> Self {
        self.watch = watch;
        self
    }

    /// Bytes of the reply go to the agent.
    pub(crate) fn bytes(&mut self) {
        if let Some(watch) = &mut self.watch {
            watch.bytes();
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.metrics.active_streams.sub(1);
        if let Some(session) = &self.session {
            session.sessions.touch(&session.who);
        }
    }
}
