//! How a command finds the running process and asks it.

use std::{io, net::SocketAddr, time::Duration};

use anyhow::bail;
use axum::body::Bytes;
use futures_util::future::{BoxFuture, LocalBoxFuture};
use metaclaw_llm::{HttpError, loopback_client};
use reqwest::{
    RequestBuilder,
    header::{CONTENT_TYPE, HeaderValue},
};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::{
    home::{Home, RunFile},
    operation::{Operation, StreamedOperation},
};

/// A process that has the home and is not listening yet says where it is soon.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(20);

/// The running process, as a command talks to it.
#[derive(Debug)]
pub struct ControlClient {
    run: RunFile,
    http: reqwest::Client,
}

/// Why the running process gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// It cannot be asked.
    #[error("the running metaclaw (process {pid}) does not answer: {source}{hint}")]
    Unreachable {
        pid: u32,
        source: reqwest::Error,
        /// A note that the change may have been made, or nothing.
        hint: String,
    },
    #[error("{0}")]
    Refused(String),
    /// It answers in a way that this program does not know.
    #[error(
        "the running metaclaw (process {pid}) is version {theirs} and this command is version {ours}, which does not understand its answer ({source}): `metaclaw stop`, then `metaclaw start`",
        ours = env!("CARGO_PKG_VERSION")
    )]
    OtherVersion {
        pid: u32,
        theirs: String,
        source: serde_json::Error,
    },
    /// The answer cannot be passed on.
    #[error("cannot write: {0}")]
    Write(#[from] io::Error),
    /// No client can be made.
    #[error(transparent)]
    Client(#[from] HttpError),
}

#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct RefusedReply {
    pub(crate) error: Option<String>,
}

// === impl ControlError ===

impl ControlError {
    /// Adds a note that a change may have been made, unless there was no connection. `shown_by` is `None` for an
    /// operation that changes nothing.
    fn with_hint(mut self, shown_by: Option<&str>) -> Self {
        if let (Self::Unreachable { source, hint, .. }, Some(shown_by)) = (&mut self, shown_by)
            && !source.is_connect()
        {
            *hint = format!(
                ". The change may have been made, or the next start finishes it: `{shown_by}` shows it"
            );
        }
        self
    }
}

// === impl ControlClient ===

impl ControlClient {
    /// For the process that wrote `run`.
    ///
    /// # Errors
    /// When no HTTP client can be made.
    pub fn new(run: RunFile) -> Result<Self, ControlError> {
        let http = loopback_client()?;
        Ok(Self { run, http })
    }

    /// Finds the process that runs in a home; none where nothing runs.
    ///
    /// # Errors
    /// When a process has the home and does not say where it listens.
    pub fn of_running(home: &Home) -> BoxFuture<'_, anyhow::Result<Option<Self>>> {
        Box::pin(async move {
            let deadline = Instant::now() + LISTEN_TIMEOUT;
            loop {
                let Some(holder) = home.holder()? else {
                    return Ok(None);
                };
                match home.run_file()? {
                    Some(run) if run.pid == holder.pid => return Ok(Some(Self::new(run)?)),
                    // Left by a killed one, or not written yet.
                    _ if Instant::now() < deadline => tokio::time::sleep(PAUSE).await,
                    _ => bail!(
                        "`metaclaw {}` (process {}) has {} and does not say where it is: try again",
                        holder.doing,
                        holder.pid,
                        home.dir().display()
                    ),
                }
            }
        })
    }

    /// Where the control listener and the page are.
    pub fn address(&self) -> SocketAddr {
        self.run.control
    }

    /// Has it do an operation.
    ///
    /// # Errors
    /// [`ControlError`].
    pub async fn call<O: Operation>(&self, operation: &O) -> Result<O::Reply, ControlError> {
        self.call_within(operation, O::DEADLINE).await
    }

    /// The same, where the work may take until `deadline`.
    ///
    /// # Errors
    /// [`ControlError`].
    pub async fn call_within<O: Operation>(
        &self,
        operation: &O,
        deadline: Duration,
    ) -> Result<O::Reply, ControlError> {
        let request = self.request(
            O::PATH,
            serde_json::to_vec(operation).map_err(io::Error::from)?,
        );
        let answer = self.answer(request.timeout(deadline)).await;
        let answer = answer.map_err(|answer| answer.with_hint(O::SHOWN_BY))?;
        serde_json::from_slice(&answer).map_err(|source| ControlError::OtherVersion {
            pid: self.run.pid,
            theirs: self.run.version.clone(),
            source,
        })
    }

    /// Has it do an operation that answers in pieces, and passes each on as it comes.
    ///
    /// # Errors
    /// [`ControlError`], that of `each` included.
    pub async fn stream<O: StreamedOperation>(
        &self,
        operation: &O,
        each: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<(), ControlError> {
        let request = self.request(
            O::PATH,
            serde_json::to_vec(operation).map_err(io::Error::from)?,
        );
        self.pieces(request, each).await
    }

    // What follows does not know the operation, so that it is compiled once.

    fn answer(&self, request: RequestBuilder) -> BoxFuture<'_, Result<Bytes, ControlError>> {
        Box::pin(async move {
            let answer = self.send(request).await?;
            answer.bytes().await.map_err(|one| self.unreachable(one))
        })
    }

    fn pieces<'a>(
        &'a self,
        request: RequestBuilder,
        each: &'a mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> LocalBoxFuture<'a, Result<(), ControlError>> {
        Box::pin(async move {
            let mut answer = self.send(request).await?;
            while let Some(bytes) = answer.chunk().await.map_err(|one| self.unreachable(one))? {
                each(&bytes)?;
            }
            Ok(())
        })
    }

    fn request(&self, path: &str, body: Vec<u8>) -> RequestBuilder {
        let url = format!("http://{}/{path}", self.run.control);
        let json = HeaderValue::from_static("application/json");
        self.http.post(url).header(CONTENT_TYPE, json).body(body)
    }

    async fn send(&self, request: RequestBuilder) -> Result<reqwest::Response, ControlError> {
        let sent = request.bearer_auth(&self.run.token).send().await;
        let answer = sent.map_err(|error| self.unreachable(error))?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        let status = answer.status();
        let refused: RefusedReply = answer.json().await.unwrap_or_default();
        let said = refused.error.unwrap_or_else(|| status.to_string());
        Err(ControlError::Refused(said))
    }

    fn unreachable(&self, source: reqwest::Error) -> ControlError {
        ControlError::Unreachable {
            pid: self.run.pid,
            source,
            hint: String::new(),
        }
    }
}
