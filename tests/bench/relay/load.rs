//! Generates the load: a number of connections, each with one request at a time, for a given time, or growing sessions.
//! Every reply is compared byte by byte, and every event of a stream has the time of its last byte.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{
    Request,
    client::conn::http1::{SendRequest, handshake},
};
use hyper_util::rt::TokioIo;
use tokio::{
    net::TcpStream,
    task::JoinSet,
    time::{timeout, timeout_at},
};

use crate::workload::{GrowingSession, Kind, Reply, Requests, Workload};

/// How long after the end a reply may still arrive.
const PATIENCE: Duration = Duration::from_secs(60);
/// The number of failures whose messages are kept.
const SHOWN: usize = 3;
/// The headers are those of OpenClaw's client.
const HEADERS: [(&str, &str); 16] = [
    ("connection", "keep-alive"),
    ("accept", "application/json"),
    ("content-type", "application/json"),
    ("user-agent", "OpenAI/JS 7.15.0"),
    ("x-stainless-retry-count", "0"),
    ("x-stainless-lang", "js"),
    ("x-stainless-package-version", "7.15.0"),
    ("x-stainless-os", "Linux"),
    ("x-stainless-arch", "x64"),
    ("x-stainless-runtime", "node"),
    ("x-stainless-runtime-version", "v24.21.0"),
    ("authorization", "Bearer sk-bench"),
    (
        "traceparent",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    ),
    ("accept-language", "*"),
    ("sec-fetch-mode", "cors"),
    ("accept-encoding", "gzip, deflate"),
];

/// The requests, and the server to send them to.
#[derive(Debug, Clone)]
pub struct Load {
    pub target: SocketAddr,
    /// What its requests have in addition to [`HEADERS`].
    pub headers: Vec<(&'static str, String)>,
    /// Whether only the mark of a reply is looked for.
    pub rewrites: bool,
    pub workload: Workload,
    /// The expected reply.
    pub reply: Reply,
    /// When the measurement begins.
    pub from: Instant,
    /// When it ends; requests in progress are completed.
    pub to: Instant,
}

/// The results. Times are those of requests sent after [`Load::from`].
#[derive(Debug, Default)]
pub struct Outcome {
    /// The number of successful replies between `from` and `to`.
    pub n_within: usize,
    /// The number of successful replies at any time.
    pub n_well: usize,
    pub n_failed: usize,
    /// The messages of the first failures.
    pub failures: Vec<String>,
    /// The time from sending to the end of the reply.
    pub totals: Vec<Duration>,
    /// The time from sending to the first byte of the body.
    pub first_bytes: Vec<Duration>,
    /// The time between two events of a paced stream.
    pub gaps: Vec<Duration>,
}

/// A growing session with its connection.
pub struct Growing {
    session: GrowingSession,
    kept: Option<Connection>,
}

/// A connection, whose own work is done by a task.
struct Connection {
    sender: SendRequest<Full<Bytes>>,
    _task: JoinSet<()>,
}

/// The times of one reply since it was asked for.
struct Came {
    sent: Instant,
    first_byte: Duration,
    total: Duration,
    events: Vec<Duration>,
}

// === impl Load ===

impl Load {
    pub async fn run(&self) -> Outcome {
        let mut connections = JoinSet::new();
        for _ in 0..self.workload.connections {
            let load = self.clone();
            connections.spawn(async move { load.keep_asking().await });
        }
        let mut all = Outcome::default();
        for own in connections.join_all().await {
            all.join(own);
        }
        all
    }

    async fn keep_asking(&self) -> Outcome {
        let mut requests = Requests::new(self.workload);
        let mut own = Outcome::default();
        let mut kept = None;
        let give_up = (self.to + PATIENCE).into();
        // Each connection sends at least one, however late it is.
        loop {
            let asked = timeout_at(give_up, self.compared(&mut kept, requests.next())).await;
            match asked.unwrap_or_else(|_| Err(anyhow!("no end within {PATIENCE:?}"))) {
                Ok(came) => own.add(self, &came),
                Err(error) => {
                    kept = None;
                    own.n_failed += 1;
                    own.failures.push(format!("{error:#}"));
                    own.failures.truncate(SHOWN);
                    // A peer that refuses everything should not get a million requests.
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
            if Instant::now() >= self.to {
                return own;
            }
        }
    }

    /// Runs some turns of growing sessions, all at once. An agent pauses between two turns.
    pub async fn grow(&self, sessions: &mut Vec<Growing>, n_turns: usize) -> Outcome {
        let mut running = JoinSet::new();
        for mut session in sessions.drain(..) {
            let load = self.clone();
            running.spawn(async move {
                let mut own = Outcome::default();
                for _ in 0..n_turns {
                    tokio::time::sleep(load.workload.pause()).await;
                    let asked = timeout(PATIENCE, session.turn(&load)).await;
                    match asked.unwrap_or_else(|_| Err(anyhow!("no end within {PATIENCE:?}"))) {
                        Ok(came) => own.add(&load, &came),
                        Err(error) => {
                            session.kept = None;
                            own.n_failed += 1;
                            own.failures.push(format!("{error:#}"));
                            own.failures.truncate(SHOWN);
                        }
                    }
                }
                (session, own)
            });
        }
        let mut all = Outcome::default();
        for (session, own) in running.join_all().await {
            sessions.push(session);
            all.join(own);
        }
        all
    }

    async fn compared(&self, kept: &mut Option<Connection>, body: Bytes) -> Result<Came> {
        let (came, reply) = self.ask(kept, body).await?;
        let whole = &self.reply.whole;
        if self.rewrites {
            let mark = self.reply.mark;
            let text = String::from_utf8_lossy(&reply);
            ensure!(text.contains(mark), "no {mark:?} in {text}");
        } else if reply != *whole {
            let n_same = reply.iter().zip(whole).take_while(|(a, b)| a == b).count();
            bail!("the reply's bytes differ from byte {n_same} on");
        }
        Ok(came)
    }

    async fn ask(&self, kept: &mut Option<Connection>, body: Bytes) -> Result<(Came, Vec<u8>)> {
        let mut connection = match kept.take().filter(|kept| !kept.sender.is_closed()) {
            Some(connection) => connection,
            None => Connection::open(self.target).await?,
        };
        let mut request =
            Request::post("/v1/chat/completions").header("host", self.target.to_string());
        for (name, value) in HEADERS {
            request = request.header(name, value);
        }
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        let request = request.body(Full::new(body))?;
        connection.sender.ready().await?;
        let sent = Instant::now();
        let response = connection.sender.send_request(request).await?;
        ensure!(response.status() == 200, "{}", response.status());
        let mut body = response.into_body();
        let (mut reply, mut first_byte, mut events) = (Vec::new(), None, Vec::new());
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame?.into_data() else {
                continue;
            };
            let now = sent.elapsed();
            first_byte.get_or_insert(now);
            let n_before = reply.len();
            reply.extend_from_slice(&data);
            if self.workload.kind == Kind::Paced {
                // An event ends with an empty line, which may have begun in the previous piece.
                let since = &reply[n_before.saturating_sub(1)..];
                let ends = since.windows(2).filter(|two| two == b"\n\n");
                events.extend(ends.map(|_| now));
            }
        }
        *kept = Some(connection);
        let came = Came {
            sent,
            first_byte: first_byte.unwrap_or_default(),
            total: sent.elapsed(),
            events,
        };
        Ok((came, reply))
    }
}

// === impl Growing ===

impl Growing {
    pub fn new() -> Self {
        Self {
            session: GrowingSession::new(),
            kept: None,
        }
    }

    async fn turn(&mut self, load: &Load) -> Result<Came> {
        let (came, reply) = load.ask(&mut self.kept, self.session.request()).await?;
        self.session.continue_with(&reply)?;
        Ok(came)
    }
}

// === impl Connection ===

impl Connection {
    async fn open(target: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(target).await.context("no connection")?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        let mut task = JoinSet::new();
        task.spawn(async move {
            // The sender is told of the error too.
            let _ = connection.await;
        });
        Ok(Self {
            sender,
            _task: task,
        })
    }
}

// === impl Outcome ===

impl Outcome {
    fn add(&mut self, load: &Load, came: &Came) {
        self.n_well += 1;
        let ended = came.sent + came.total;
        if ended >= load.from && ended < load.to {
            self.n_within += 1;
        }
        if came.sent >= load.from {
            self.totals.push(came.total);
            self.first_bytes.push(came.first_byte);
            let gaps = came
                .events
                .windows(2)
                .map(|two| two[1].saturating_sub(two[0]));
            self.gaps.extend(gaps);
        }
    }

    pub fn join(&mut self, other: Self) {
        self.n_within += other.n_within;
        self.n_well += other.n_well;
        self.n_failed += other.n_failed;
        self.failures.extend(other.failures);
        self.failures.truncate(SHOWN);
        self.totals.extend(other.totals);
        self.first_bytes.extend(other.first_bytes);
        self.gaps.extend(other.gaps);
    }
}
