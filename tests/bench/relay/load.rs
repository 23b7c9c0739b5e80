//! Generates the load: a number of connections, each with one request at a time, for a given time.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow};
use tokio::{io::AsyncWriteExt as _, net::TcpStream, task::JoinSet, time::timeout_at};

use crate::{
    reading::{Came, Reading, Wanted},
    request::Requests,
    workload::{Kind, Reply, Workload},
};

/// How long after the end a reply may still arrive.
const PATIENCE: Duration = Duration::from_secs(60);
/// The number of failures whose messages are kept.
const TOLD: usize = 3;

/// The requests, and the server to send them to.
#[derive(Debug, Clone)]
pub struct Load {
    pub target: SocketAddr,
    pub workload: Workload,
    /// The expected reply.
    pub reply: Reply,
    /// Whether it must match byte for byte; otherwise only its end must match.
    pub exactly: bool,
    /// When the measurement begins.
    pub from: Instant,
    /// When it ends; requests in progress are completed.
    pub to: Instant,
}

/// The results.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The number of successful replies between `from` and `to`.
    pub n_within: usize,
    /// The number of successful replies at any time.
    pub n_well: usize,
    pub n_failed: usize,
    /// The messages of the first failures.
    pub failures: Vec<String>,
    /// For requests sent between `from` and `to`: the time from sending to the end of the reply.
    pub totals: Vec<Duration>,
    /// For the same requests: the time from sending to the first byte of the body.
    pub first_bytes: Vec<Duration>,
    /// For the same requests: the time between two events.
    pub gaps: Vec<Duration>,
}

// === impl Load ===

impl Load {
    pub async fn run(self) -> Outcome {
        let outcome = Arc::new(Mutex::new(Outcome::default()));
        let load = Arc::new(self);
        let mut connections = JoinSet::new();
        for _ in 0..load.workload.connections {
            let connection = connection(Arc::clone(&load), Arc::clone(&outcome));
            connections.spawn(connection);
        }
        connections.join_all().await;
        let mut outcome = outcome.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut outcome)
    }

    fn wanted(&self) -> Wanted<'_> {
        let whole = &self.reply.whole;
        match self.workload.kind {
            _ if self.exactly => Wanted::Exactly(whole),
            Kind::Plain | Kind::Tls => Wanted::EndsWith(b"}"),
            Kind::Burst | Kind::Paced => Wanted::EndsWith(b"data: [DONE]\n\n"),
        }
    }

    async fn connect(&self) -> Result<TcpStream> {
        let stream = TcpStream::connect(self.target)
            .await
            .context("no connection")?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

async fn connection(load: Arc<Load>, all: Arc<Mutex<Outcome>>) {
    let host = load.target.to_string();
    let mut requests = Requests::new(load.workload.size, load.workload.kind, &host);
    let mut reading = Reading::new();
    let mut own = Outcome::default();
    let mut stream = None;
    let give_up = tokio::time::Instant::from_std(load.to + PATIENCE);
    // Each connection sends at least one, however late it is.
    loop {
        let asked = ask(&load, &mut stream, requests.next(), &mut reading);
        let asked = timeout_at(give_up, asked).await;
        match asked.unwrap_or_else(|_| Err(anyhow!("no end within {PATIENCE:?}"))) {
            Ok(sent) => own.add(&load, sent, &reading.came),
            Err(error) => {
                stream = None;
                own.fail(format!("{error:#}"));
                // A peer that refuses everything should not get a million requests.
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        if Instant::now() >= load.to {
            break;
        }
    }
    all.lock().unwrap_or_else(PoisonError::into_inner).join(own);
}

/// Sends one request and reads its reply; returns when it was sent.
async fn ask(
    load: &Load,
    kept: &mut Option<TcpStream>,
    request: &[u8],
    reading: &mut Reading,
) -> Result<Instant> {
    let mut stream = match kept.take() {
        Some(stream) => stream,
        None => load.connect().await?,
    };
    let sent = Instant::now();
    stream
        .write_all(request)
        .await
        .context("the request was not taken")?;
    reading.reply(&mut stream, sent, load.wanted()).await?;
    if !reading.came.closes {
        *kept = Some(stream);
    }
    Ok(sent)
}

// === impl Outcome ===

impl Outcome {
    fn add(&mut self, load: &Load, sent: Instant, came: &Came) {
        self.n_well += 1;
        let ended = sent + came.total;
        if ended >= load.from && ended < load.to {
            self.n_within += 1;
        }
        if sent < load.from {
            return;
        }
        self.totals.push(came.total);
        self.first_bytes.push(came.first_byte);
        if load.workload.kind == Kind::Paced {
            let gaps = came
                .events
                .windows(2)
                .map(|two| two[1].saturating_sub(two[0]));
            self.gaps.extend(gaps);
        }
    }

    fn fail(&mut self, why: String) {
        self.n_failed += 1;
        if self.failures.len() < TOLD {
            self.failures.push(why);
        }
    }

    fn join(&mut self, other: Self) {
        self.n_within += other.n_within;
        self.n_well += other.n_well;
        self.n_failed += other.n_failed;
        self.failures.extend(other.failures);
        self.failures.truncate(TOLD);
        self.totals.extend(other.totals);
        self.first_bytes.extend(other.first_bytes);
        self.gaps.extend(other.gaps);
    }
}
