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
        BRIEF, CHAT, CHATS, DONE, END, MESSAGES, NO_ROUTE, RESPONSES, SOON, STREAM, bare, begun,
        chunk, completion, conversation, delta, get, json_reply, post, post_chat, reply, request,
        says, streamed,
    },
    upstream::{Exchange, Upstream},
};
use crate::{
    Endpoint, Failure, Gateway, GatewayConfig, GatewayParts, Metrics, PastReplies, Privacy,
    Provider, Secret, Services, Serving, UpstreamConfig, Upstreams, gateway::QUEUE,
    metrics::Counts,
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
    pub upstreams: Arc<Upstreams>,
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
        let (metrics, upstreams) = (gateway.metrics(), gateway.upstreams());
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
            upstreams,
            stop,
            tasks,
            _skills: skills,
        }
    }

    /// Starts with this upstream.
    pub(super) async fn before(llm: UpstreamConfig) -> Self {
        Self::with(SetUp::before(llm)).await
    }

    /// Starts with these lessons.
    pub(super) async fn taught(lessons: &[(&'static str, &'static str)]) -> Self {
        Self::with(SetUp::taught(lessons)).await
    }

    /// Starts the server of a policy model.
    pub(super) async fn policy(
        &self,
        as_configured: impl FnOnce(Endpoint) -> Endpoint,
    ) -> Upstream {
        let policy = Upstream::start(&self.tasks).await;
        let url = format!("http://{}", policy.address);
        let endpoint = Endpoint::new(&url, Some(Secret::from("sk-trainer")), "base").unwrap();
        self.serving.set_policy(Some(as_configured(endpoint)));
        policy
    }

    pub(super) async fn client(&self) -> Client {
        Client::connect(self.address).await
    }

    /// Sends a request on a new connection.
    pub(super) async fn sent(&self, request: &(impl AsRef<[u8]> + ?Sized)) -> Client {
        let mut client = self.client().await;
        client.send(request).await;
        client
    }

    /// Sends a request on a new connection. Returns the client, and the request as the upstream got it.
    pub(super) async fn ask(
        &mut self,
        request: &(impl AsRef<[u8]> + ?Sized),
    ) -> (Client, Exchange) {
        let client = self.sent(request).await;
        (client, self.upstream.next().await)
    }

    /// Sends a chat, whose streamed reply has begun with this text.
    pub(super) async fn stream(&mut self, text: &str) -> (Client, Exchange) {
        let (mut client, mut exchange) = self.ask(&post_chat(CHAT)).await;
        exchange.begin(text).await;
        client.until(&delta(text)).await;
        (client, exchange)
    }

    /// Sends a request, lets the upstream answer `reply`, and returns what both sides got.
    pub(super) async fn exchange(
        &mut self,
        request: &(impl AsRef<[u8]> + ?Sized),
        reply: &(impl AsRef<[u8]> + ?Sized),
    ) -> (Exchange, Seen) {
        let (mut client, mut exchange) = self.ask(request).await;
        exchange.send(reply).await;
        let seen = client.read().await;
        (exchange, seen)
    }

    /// Runs a whole chat turn, in which the upstream answers `text`.
    pub(super) async fn chat(&mut self, headers: &str, body: &str, text: &str) -> Exchange {
        let request = post(CHATS, headers, body);
        self.exchange(&request, &says(text)).await.0
    }

    /// Runs a whole chat turn with these messages, the user's and the assistant's in turn.
    pub(super) async fn talk(&mut self, headers: &str, texts: &[&str]) -> Exchange {
        self.chat(headers, &conversation(texts), "ok").await
    }

    /// Sends a request that reaches no upstream, and returns the gateway's own answer.
    pub(super) async fn refused(&self, request: &(impl AsRef<[u8]> + ?Sized)) -> Seen {
        self.sent(request).await.read().await
    }

    /// Returns what `read` reads from each turn in the log, once there are so many.
    pub(super) async fn turns<T>(&self, n_turns: usize, read: impl Fn(Turn) -> T) -> Vec<T> {
        let turns = self.log.wait(n_turns).await.into_iter();
        turns.map(read).collect()
    }

    /// Waits until the counters are so.
    pub(super) async fn until(&self, is_so: impl Fn(&Counts) -> bool) {
        while !is_so(&self.metrics.counts()) {
            tokio::task::yield_now().await;
        }
    }
}

impl SetUp {
    /// With this upstream.
    pub(super) fn before(llm: UpstreamConfig) -> Self {
        let mut set_up = Self::default();
        set_up.config.upstreams.insert("llm".into(), llm);
        set_up
    }

    /// Without an upstream.
    pub(super) fn without_llm() -> Self {
        Self {
            no_llm: true,
            ..Self::default()
        }
    }

    pub(super) fn taught(lessons: &[(&'static str, &'static str)]) -> Self {
        Self {
            lessons: lessons.to_vec(),
            ..Self::default()
        }
    }

    /// With a key of the proxy for all agents.
    pub(super) fn with_key(key: &str) -> Self {
        let mut set_up = Self::default();
        set_up.config.proxy.api_key = Some(Secret::from(key));
        set_up
    }

    pub(super) fn llm(&mut self) -> &mut UpstreamConfig {
        self.config.upstreams.entry("llm".into()).or_default()
    }

    /// Adds an upstream that is asked after the others for these failures.
    pub(super) fn with_second(
        &mut self,
        second: &Upstream,
        fail_over: &[Failure],
    ) -> &mut UpstreamConfig {
        self.config.routing.order = vec!["llm".into(), "second".into()];
        self.config.routing.fail_over = fail_over.to_vec();
        let config = self.config.upstreams.entry("second".into()).or_default();
        config.url = second.url();
        config
    }
}
