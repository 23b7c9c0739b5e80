//! A subcommand's side of the control listener.

use std::{io::Write, time::Duration};

use metaclaw_llm::{HttpError, loopback_client};
use serde::{Serialize, de::DeserializeOwned};

use crate::home::RunFile;

/// For answers that take no work.
const SHORT: Duration = Duration::from_secs(30);

/// The running process, as a subcommand talks to it.
#[derive(Debug)]
pub(crate) struct ControlClient {
    run: RunFile,
    http: reqwest::Client,
}

/// Why the running process gave no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ControlError {
    /// It cannot be asked.
    #[error("the running metaclaw (process {pid}) does not answer: {source}")]
    Unreachable { pid: u32, source: reqwest::Error },
    #[error("{0}")]
    Refused(String),
    /// The answer cannot be passed on.
    #[error("cannot write: {0}")]
    Write(#[from] std::io::Error),
    /// No client can be made.
    #[error(transparent)]
    Client(#[from] HttpError),
}

// === impl ControlClient ===

impl ControlClient {
    /// For the process that wrote `run`.
    pub(crate) fn new(run: RunFile) -> Result<Self, ControlError> {
        let http = loopback_client()?;
        Ok(Self { run, http })
    }

    /// Asks `what` of it.
    pub(crate) async fn ask<T: DeserializeOwned>(
        &self,
        what: &str,
        with: &impl Serialize,
    ) -> Result<T, ControlError> {
        self.order(what, with, SHORT).await
    }

    /// The same, where the work may take until `deadline`.
    pub(crate) async fn order<T: DeserializeOwned>(
        &self,
        what: &str,
        with: &impl Serialize,
        deadline: Duration,
    ) -> Result<T, ControlError> {
        let request = self.http.post(self.url(what)).json(with);
        let answer = self.send(request.timeout(deadline)).await?;
        answer.json().await.map_err(|error| self.unreachable(error))
    }

    /// Passes an answer on as it comes.
    pub(crate) async fn copy(&self, what: &str, to: &mut impl Write) -> Result<(), ControlError> {
        let mut answer = self.send(self.http.post(self.url(what))).await?;
        while let Some(bytes) = answer.chunk().await.map_err(|it| self.unreachable(it))? {
            to.write_all(&bytes)?;
        }
        Ok(())
    }

    /// Asks for lines, and passes each on as it comes.
    pub(crate) async fn lines(
        &self,
        what: &str,
        with: &impl Serialize,
        mut each: impl FnMut(&[u8]) -> std::io::Result<()>,
    ) -> Result<(), ControlError> {
        let request = self.http.post(self.url(what)).json(with);
        let mut answer = self.send(request).await?;
        let mut begun = Vec::new();
        while let Some(bytes) = answer.chunk().await.map_err(|it| self.unreachable(it))? {
            begun.extend_from_slice(&bytes);
            while let Some(end) = begun.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = begun.drain(..=end).collect();
                each(&line[..end])?;
            }
        }
        Ok(())
    }

    fn url(&self, what: &str) -> String {
        format!("http://{}/{what}", self.run.control)
    }

    async fn send(
        &self,
        request: reqwest::RequestBuilder,
    ) -> Result<reqwest::Response, ControlError> {
        let sent = request.bearer_auth(&self.run.token).send().await;
        let answer = sent.map_err(|error| self.unreachable(error))?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        let status = answer.status();
        let body: serde_json::Value = answer.json().await.unwrap_or_default();
        let said = body["error"].as_str().map(str::to_owned);
        Err(ControlError::Refused(
            said.unwrap_or_else(|| status.to_string()),
        ))
    }

    fn unreachable(&self, source: reqwest::Error) -> ControlError {
        ControlError::Unreachable {
            pid: self.run.pid,
            source,
        }
    }
}
