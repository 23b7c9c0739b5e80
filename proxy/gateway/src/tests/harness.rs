//! A gateway between a client and an upstream that both speak plain bytes.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use metaclaw_capture::{Appending, TurnSink};
use metaclaw_chat::{AgentId, SessionId, TurnId};
use metaclaw_skills::{Library, SkillsConfig, WishesConfig};
use metaclaw_turns::{Done, LogError, NewTurn, Replied, Turn, TurnState};
use rustls::RootCertStore;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{Semaphore, mpsc},
    time::timeout,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    Finding, Gateway, GatewayConfig, GatewayParts, Metrics, PastReplies, Privacy, Provider,
    Replies, Secret, Services, Serving, gateway::QUEUE,
};

/// Nothing on one machine takes this long unless it hangs.
pub(super) const SOON: Duration = Duration::from_secs(10);

pub(super) const CHAT: &str = r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"What is the capital of France?"}]}"#;

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
    pub privacy: Arc<Privacy>,
    pub no_llm: bool,
    /// Turns that may wait for the log; all that may, where it is not said.
    pub at_once: Option<usize>,
    /// Connections at once; what the descriptors allow, where it is not said.
    pub max_connections: Option<usize>,
    /// How long a stream of HTTP/2 may not be read; minutes, where it is not said.
    pub stalled: Option<Duration>,
    /// What the log has of the last hour.
    pub recent: Vec<Turn>,
}

/// What the log got; holds each turn back until [`Log::let_go`] where it was told to.
pub(super) struct Log {
    turns: Mutex<Vec<Turn>>,
    gate: Semaphore,
    pub broken: Mutex<Option<String>>,
    /// How often a session's replies were read.
    pub n_replies_read: AtomicUsize,
    arrived: tokio::sync::Notify,
}

/// What a vLLM has: a base model and an adapter.
const MODELS: &str = r#"{"object":"list","data":[{"id":"m","object":"model","root":"/m","parent":null},{"id":"px","object":"model","root":"/a/px","parent":"m"}]}"#;

/// A server that hands each request to the test.
pub(super) struct Upstream {
    pub address: SocketAddr,
    exchanges: mpsc::Receiver<Exchange>,
    /// What it answers by itself when it is asked for its models; the test is handed that request otherwise.
    pub models: Arc<Mutex<Option<String>>>,
}

/// One request at the upstream, and the connection to answer on.
#[derive(Debug)]
pub(super) struct Exchange {
    /// Request line and headers, as they came.
    pub head: String,
    pub body: Vec<u8>,
    pub stream: TcpStream,
}

/// A response as the client saw it.
#[derive(Debug)]
pub(super) struct Seen {
    pub head: String,
    pub body: Vec<u8>,
    /// The message ended as its framing says; false is a cut.
    pub is_whole: bool,
}

/// A connection of the client.
pub(super) struct Client {
    pub stream: TcpStream,
    buffer: Vec<u8>,
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
            llm.url = format!("http://{}/v1", upstream.address);
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
            roots: Arc::new(RootCertStore::empty()),
            serving: Arc::clone(&serving),
            privacy: Arc::clone(&set_up.privacy),
            services,
        };
        let library = parts.library.clone();
        let at_once = set_up.at_once.unwrap_or(QUEUE);
        let mut gateway = Gateway::with(parts, at_once).unwrap();
        if let Some(max_connections) = set_up.max_connections {
            gateway.max_connections = max_connections;
        }
        if let Some(timeout) = set_up.stalled {
            gateway.stack.stalled.timeout = timeout;
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
        let stream = TcpStream::connect(self.address).await.unwrap();
        Client {
            stream,
            // Room for all, so that one read takes all that is there.
            buffer: Vec::with_capacity(1 << 20),
        }
    }

    /// Asks on a connection of its own; what the upstream got of it.
    pub(super) async fn ask(&mut self, request: &[u8]) -> (Client, Exchange) {
        let mut client = self.client().await;
        client.send(request).await;
        (client, self.upstream.next().await)
    }

    /// Asks, lets the upstream answer `reply`, and gives what the client saw.
    pub(super) async fn exchange(&mut self, request: &[u8], reply: &str) -> (Exchange, Seen) {
        let (mut client, mut exchange) = self.ask(request).await;
        exchange.send(reply.as_bytes()).await;
        let seen = client.read().await;
        (exchange, seen)
    }

    /// A whole chat turn that answers `text`.
    pub(super) async fn chat(&mut self, headers: &str, body: &str, text: &str) -> Exchange {
        let request = post("/v1/chat/completions", headers, body);
        let reply = json_reply(&completion(text));
        self.exchange(&request, &reply).await.0
    }

    /// Asks without an upstream; the answer is the gateway's own.
    pub(super) async fn refused(&self, request: &[u8]) -> Seen {
        let mut client = self.client().await;
        client.send(request).await;
        client.read().await
    }
}

impl Log {
    fn new() -> Self {
        Self {
            turns: Mutex::default(),
            gate: Semaphore::new(Semaphore::MAX_PERMITS),
            broken: Mutex::default(),
            n_replies_read: AtomicUsize::new(0),
            arrived: tokio::sync::Notify::new(),
        }
    }

    /// From now on turns wait for [`Log::let_go`].
    pub(super) fn hold(&self) {
        self.gate.forget_permits(Semaphore::MAX_PERMITS);
    }

    pub(super) fn let_go(&self, n_turns: usize) {
        self.gate.add_permits(n_turns);
    }

    pub(super) fn turns(&self) -> Vec<Turn> {
        self.turns.lock().unwrap().clone()
    }

    /// The turns, once there are as many.
    pub(super) async fn wait(&self, n_turns: usize) -> Vec<Turn> {
        let wait = async {
            loop {
                let arrived = self.arrived.notified();
                let turns = self.turns();
                if turns.len() >= n_turns {
                    return turns;
                }
                arrived.await;
            }
        };
        timeout(SOON, wait).await.expect("turns in the log")
    }
}

/// A turn as a log would give it back that knows no other.
fn read_back(turn: NewTurn, id: TurnId) -> Result<Turn, serde_json::Error> {
    Ok(Turn {
        id,
        request: turn.request()?,
        agent: turn.agent,
        session: turn.session,
        meta: turn.meta,
        parent: None,
        new_from: 0,
        reply: turn.reply,
        served: turn.served,
        state: TurnState::Captured,
        verdict: None,
        overruled: Vec::new(),
        uses: Vec::new(),
        tokens: turn.tokens,
    })
}

impl TurnSink for Log {
    fn append(&self, turn: NewTurn, done: Done) -> Appending<'_> {
        Box::pin(async move {
            self.gate.acquire().await.unwrap().forget();
            if let Some(why) = self.broken.lock().unwrap().clone() {
                return done(Err(LogError::Broken { why }));
            }
            let mut turns = self.turns.lock().unwrap();
            let seq = u32::try_from(turns.len() + 1).unwrap();
            let id = TurnId { session: 1, seq };
            match read_back(turn, id) {
                Ok(turn) => turns.push(turn),
                Err(error) => {
                    let why = error.to_string();
                    return done(Err(LogError::Unreadable { why }));
                }
            }
            self.arrived.notify_waiters();
            done(Ok(id));
        })
    }

    fn oldest_unflushed(&self) -> Option<Duration> {
        None
    }
}

impl PastReplies for Log {
    fn conversation<'a>(&'a self, agent: &'a AgentId, reply_id: &'a str) -> Finding<'a> {
        let turns = self.turns();
        let is_it =
            |turn: &&Turn| turn.agent == *agent && turn.meta.reply_id.as_deref() == Some(reply_id);
        let found = turns.iter().rev().find(is_it).map(|turn| {
            let said = turn.request.messages.iter().chain(&turn.reply);
            said.cloned().collect()
        });
        Box::pin(async { Ok(found) })
    }

    fn replies<'a>(&'a self, agent: &'a AgentId, session: &'a SessionId) -> Replies<'a> {
        self.n_replies_read.fetch_add(1, Ordering::Relaxed);
        let is_it = |turn: &Turn| turn.agent == *agent && turn.session == *session;
        let turns = self.turns().into_iter().filter(is_it);
        let replies = turns.filter_map(|turn| {
            Some(Replied {
                upstream: turn.served.upstream,
                masked: turn.meta.masked,
                reply: turn.reply?,
            })
        });
        let replies = replies.collect();
        Box::pin(async { Ok(replies) })
    }
}

impl Upstream {
    pub(super) async fn start(tasks: &TaskTracker) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, exchanges) = mpsc::channel(1_000);
        let models = Arc::new(Mutex::new(None));
        let own = Arc::clone(&models);
        tasks.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // One request a connection; what is asked on it later is the test's to read.
                let mut exchange = Exchange::read(stream).await;
                let models: Option<String> = own.lock().unwrap().clone();
                if let (Ok(exchange), Some(models)) = (&mut exchange, models)
                    && exchange.head.starts_with("GET /v1/models ")
                {
                    let answer = json_reply(&models);
                    exchange.send(answer.as_bytes()).await;
                    continue;
                }
                if let Ok(exchange) = exchange
                    && sender.send(exchange).await.is_err()
                {
                    return;
                }
            }
        });
        Self {
            address,
            exchanges,
            models,
        }
    }

    pub(super) async fn next(&mut self) -> Exchange {
        timeout(SOON, self.exchanges.recv())
            .await
            .expect("a request at the upstream")
            .unwrap()
    }

    pub(super) fn is_unasked(&mut self) -> bool {
        self.exchanges.try_recv().is_err()
    }
}

impl Exchange {
    async fn read(mut stream: TcpStream) -> io::Result<Self> {
        let mut buffer = Vec::new();
        let end = loop {
            if let Some(end) = find(&buffer, b"\r\n\r\n") {
                break end + 4;
            }
            if stream.read_buf(&mut buffer).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        };
        let head = String::from_utf8(buffer[..end].to_vec()).unwrap();
        let mut body = buffer.split_off(end);
        if let Some(n_bytes) = header(&head, "content-length") {
            let n_bytes: usize = n_bytes.parse().unwrap();
            while body.len() < n_bytes {
                if stream.read_buf(&mut body).await? == 0 {
                    break;
                }
            }
        }
        Ok(Self { head, body, stream })
    }

    pub(super) async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    pub(super) fn body(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(super) fn header(&self, name: &str) -> Option<String> {
        header(&self.head, name)
    }

    /// The gateway has closed the connection.
    pub(super) async fn is_closed(&mut self) -> bool {
        let mut rest = [0; 64];
        match timeout(SOON, self.stream.read(&mut rest)).await {
            Ok(Ok(n_bytes)) => n_bytes == 0,
            Ok(Err(_)) => true,
            Err(_) => false,
        }
    }
}

impl Client {
    pub(super) async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    /// Reads until the text has come.
    pub(super) async fn until(&mut self, text: &str) {
        let wait = async {
            while find(&self.buffer, text.as_bytes()).is_none() {
                let n_bytes = self.stream.read_buf(&mut self.buffer).await.unwrap();
                let seen = String::from_utf8_lossy(&self.buffer);
                assert_ne!(n_bytes, 0, "the connection ended; seen: {seen}");
            }
        };
        timeout(SOON, wait).await.expect(text);
    }

    /// Whether nothing more comes for a while.
    pub(super) async fn is_silent(&mut self) -> bool {
        let more = self.stream.read_buf(&mut self.buffer);
        timeout(Duration::from_millis(100), more).await.is_err()
    }

    /// Reads one response to its end, whichever that is.
    pub(super) async fn read(&mut self) -> Seen {
        timeout(SOON, self.response()).await.expect("a response")
    }

    /// Reads a long chunked response to its end and throws it away; how many bytes it had.
    pub(super) async fn count(&mut self) -> u64 {
        const END: &[u8] = b"\r\n0\r\n\r\n";
        let mut n_bytes = 0;
        loop {
            self.stream.read_buf(&mut self.buffer).await.unwrap();
            if self.buffer.ends_with(END) {
                return n_bytes + self.buffer.len() as u64;
            }
            let kept = self.buffer.len().saturating_sub(END.len());
            self.buffer.drain(..kept);
            n_bytes += kept as u64;
        }
    }

    async fn response(&mut self) -> Seen {
        let mut at_end = false;
        loop {
            if let Some((seen, n_bytes)) = parse(&self.buffer, at_end) {
                self.buffer.drain(..n_bytes);
                return seen;
            }
            assert!(
                !at_end,
                "no response: {}",
                String::from_utf8_lossy(&self.buffer)
            );
            // A reset is an end as well.
            at_end = !matches!(self.stream.read_buf(&mut self.buffer).await, Ok(n) if n > 0);
        }
    }
}

impl Seen {
    pub(super) fn status(&self) -> u16 {
        self.head.split(' ').nth(1).unwrap().parse().unwrap()
    }

    pub(super) fn header(&self, name: &str) -> Option<String> {
        header(&self.head, name)
    }

    pub(super) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

/// A response, and how many bytes it takes: with a length, another one may follow.
fn parse(buffer: &[u8], at_end: bool) -> Option<(Seen, usize)> {
    let end = find(buffer, b"\r\n\r\n")? + 4;
    let head = String::from_utf8(buffer[..end].to_vec()).unwrap();
    let rest = &buffer[end..];
    let mut taken = buffer.len();
    let (body, is_whole) = if let Some(n_bytes) = header(&head, "content-length") {
        let n_bytes: usize = n_bytes.parse().unwrap();
        taken = taken.min(end + n_bytes);
        (
            rest[..rest.len().min(n_bytes)].to_vec(),
            rest.len() >= n_bytes,
        )
    } else if header(&head, "transfer-encoding").is_some() {
        dechunk(rest)
    } else {
        (rest.to_vec(), at_end)
    };
    let seen = Seen {
        head,
        body,
        is_whole,
    };
    (is_whole || at_end).then_some((seen, taken))
}

fn dechunk(mut rest: &[u8]) -> (Vec<u8>, bool) {
    let mut body = Vec::new();
    while let Some(line) = find(rest, b"\r\n") {
        let size = std::str::from_utf8(&rest[..line]).unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        let chunk = &rest[line + 2..];
        if size == 0 {
            return (body, chunk.starts_with(b"\r\n"));
        }
        body.extend_from_slice(&chunk[..chunk.len().min(size)]);
        rest = chunk.get(size + 2..).unwrap_or_default();
    }
    (body, false)
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack
        .windows(needle.len())
        .position(|window| window == needle)
}

fn header(head: &str, name: &str) -> Option<String> {
    head.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.eq_ignore_ascii_case(name)
            .then(|| value.trim().to_owned())
    })
}

/// A request with a body; `headers` as lines, each with its line end.
pub(super) fn post(path: &str, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    let head = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n");
    format!("{head}{headers}\r\n{body}").into_bytes()
}

pub(super) fn post_chat(body: &str) -> Vec<u8> {
    post("/v1/chat/completions", "", body)
}

/// A whole reply. It closes its connection, as the upstream here reads one request on each.
pub(super) fn json_reply(body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

/// The beginning of a streamed reply.
pub(super) const STREAM: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n";

pub(super) fn chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}

pub(super) fn delta(text: &str) -> String {
    format!(
        "data: {{\"id\":\"chatcmpl-1\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n"
    )
}

pub(super) fn completion(text: &str) -> String {
    format!(
        r#"{{"id":"chatcmpl-1","choices":[{{"index":0,"message":{{"role":"assistant","content":"{text}"}},"finish_reason":"stop"}}],"usage":{{"prompt_tokens":9,"completion_tokens":2}}}}"#
    )
}

/// A body that asks `texts` in turn, with answers between them.
pub(super) fn conversation(texts: &[&str]) -> String {
    let said = texts.iter().enumerate().map(|(i, text)| {
        let role = if i % 2 == 0 { "user" } else { "assistant" };
        format!(r#"{{"role":"{role}","content":"{text}"}}"#)
    });
    let messages = said.collect::<Vec<_>>().join(",");
    format!(r#"{{"model":"m","messages":[{messages}]}}"#)
}
