//! A gateway between a client and an upstream that both speak plain bytes.

mod client;
mod log;
mod messages;
mod upstream;

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use metaclaw_capture::TurnSink;
use metaclaw_skills::{Library, SkillsConfig, WishesConfig};
use metaclaw_turns::Turn;
use rustls::RootCertStore;
use tokio::net::TcpListener;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::upstream::MODELS;
pub(super) use self::{
    client::{Client, Seen},
    log::Log,
    messages::{
        CHAT, SOON, STREAM, chunk, completion, conversation, delta, json_reply, post, post_chat,
    },
    upstream::{Exchange, Upstream},
};
use crate::{
    Gateway, GatewayConfig, GatewayParts, Metrics, PastReplies, Privacy, Provider, Secret,
    Services, Serving, gateway::QUEUE,
};

/// A gateway, an upstream named `llm` behind it, and a log that keeps what it gets.
pub(super) struct Harness {
    pub address: SocketAddr,
    pub upstream: Upstream,
    pub log: Arc<Log>,
    pub serving: Arc<Serving>,
    pub idle_adapters: Arc<Mutex<Vec<String>>>,
    pub library: Library,
    pub metrics: Arc<Metrics>,
    pub stop: CancellationToken,
    pub tasks: TaskTracker,
    _skills: tempfile::TempDir,
}

/// Changes to the default set-up.
#[derive(Default)]
pub(super) struct SetUp {
    pub config: GatewayConfig,
    /// SKILL.md and WISHES.md files by their path below the skills folder.
    pub lessons: Vec<(&'static str, &'static str)>,
    pub wishes: WishesConfig,
    pub skills: SkillsConfig,
    pub services: Option<Services>,
    pub memory: Option<metaclaw_skills::MemoryStore>,
    pub rollouts: Option<Arc<crate::Rollouts>>,
    pub privacy: Arc<Privacy>,
    pub no_llm: bool,
    /// The number of turns that may wait for the log. Without it, the usual number.
    pub at_once: Option<usize>,
    /// The number of connections at once. Without it, what the descriptors allow.
    pub max_connections: Option<usize>,
    /// The turns that the log has of the last hour.
    pub recent: Vec<Turn>,
}

impl Harness {
    pub(super) async fn start() -> Self {
        Self::with(SetUp::default()).await
    }

    pub(super) async fn with(mut set_up: SetUp) -> Self {
        let tasks = TaskTracker::new();
        let upstream = Upstream::start(&tasks).await;
        if !set_up.no_llm {
            let llm = set_up.config.upstreams.entry("llm".into()).or_default();
            let address = format!("http://{}", upstream.address);
            if llm.url.is_empty() {
                llm.url = format!("{address}/v1");
            } else {
                // Another's address is reached by way of the upstream, as by a proxy.
                llm.proxy = Some(address.into());
            }
            if llm.dialect == Provider::Vllm {
                *upstream.models.lock().unwrap() = Some(MODELS.to_owned());
            }
        }
        let skills = tempfile::tempdir().unwrap();
        for (path, text) in &set_up.lessons {
            let path = skills.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let (library, warnings) = Library::open(skills.path(), set_up.skills, set_up.wishes);
        assert!(warnings.is_empty(), "{warnings:?}");
        let log = Arc::new(Log::new());
        let idle_adapters = Arc::new(Mutex::new(Vec::new()));
        let idle = Arc::clone(&idle_adapters);
        let serving = Serving::new(move |name| idle.lock().unwrap().push(name.to_owned()));
        let services = set_up
            .services
            .unwrap_or_else(|| Services::none(Secret::from("admin")));
        let parts = GatewayParts {
            config: set_up.config,
            log: Arc::clone(&log) as Arc<dyn TurnSink>,
            past: Arc::clone(&log) as Arc<dyn PastReplies>,
            known: Vec::new(),
            recent: set_up.recent,
            library,
            memory: set_up.memory,
            roots: Arc::new(RootCertStore::empty()),
            serving: Arc::clone(&serving),
            privacy: Arc::clone(&set_up.privacy),
            services,
            rollouts: set_up.rollouts,
        };
        let library = parts.library.clone();
        let at_once = set_up.at_once.unwrap_or(QUEUE);
        let mut gateway = Gateway::with(parts, at_once).unwrap();
        if let Some(max_connections) = set_up.max_connections {
            gateway.max_connections = max_connections;
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let metrics = gateway.metrics();
        let stop = CancellationToken::new();
        tasks.spawn(gateway.serve(listener, stop.clone()));
        Self {
            address,
            upstream,
            log,
            serving,
            idle_adapters,
            library,
            metrics,
            stop,
            tasks,
            _skills: skills,
        }
    }

    pub(super) async fn client(&self) -> Client {
        Client::connect(self.address).await
    }

    /// Sends a request on a new connection.
    pub(super) async fn sent(&self, request: &[u8]) -> Client {
        let mut client = self.client().await;
        client.send(request).await;
        client
    }

    /// Sends a request on a new connection. Returns the client, and the request as the upstream got it.
    pub(super) async fn ask(&mut self, request: &[u8]) -> (Client, Exchange) {
        let client = self.sent(request).await;
        (client, self.upstream.next().await)
    }

    /// Sends a request, lets the upstream answer `reply`, and returns what both sides got.
    pub(super) async fn exchange(&mut self, request: &[u8], reply: &str) -> (Exchange, Seen) {
        let (mut client, mut exchange) = self.ask(request).await;
        exchange.send(reply.as_bytes()).await;
        let seen = client.read().await;
        (exchange, seen)
    }

    /// Runs a whole chat turn, in which the upstream answers `text`.
    pub(super) async fn chat(&mut self, headers: &str, body: &str, text: &str) -> Exchange {
        let request = post("/v1/chat/completions", headers, body);
        let reply = json_reply(&completion(text));
        self.exchange(&request, &reply).await.0
    }

    /// Sends a request that reaches no upstream, and returns the gateway's own answer.
    pub(super) async fn refused(&self, request: &[u8]) -> Seen {
        self.sent(request).await.read().await
    }
}
