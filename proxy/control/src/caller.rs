//! Where a command has its operations done.

use std::{io, pin::pin, sync::Arc, time::Duration};

use futures_util::StreamExt as _;

use crate::{
    client::ControlClient,
    instance::Instance,
    operation::{Operation, StreamedOperation},
};

/// Who does what a command wants: the process that runs, or this one on the files.
#[derive(Debug)]
pub enum ControlCaller {
    Process(ControlClient),
    Files(Arc<Instance>),
}

// === impl ControlCaller ===

impl ControlCaller {
    /// Whether a process runs and is asked.
    pub fn is_process(&self) -> bool {
        matches!(self, Self::Process(_))
    }

    /// Has an operation done.
    ///
    /// # Errors
    /// Why it is not done, or that the running process does not answer.
    pub async fn call<O: Operation>(&self, operation: O) -> anyhow::Result<O::Reply> {
        self.call_within(operation, O::DEADLINE).await
    }

    /// The same, where the running process may take until `deadline`.
    ///
    /// # Errors
    /// Why it is not done, or that the running process does not answer.
    pub async fn call_within<O: Operation>(
        &self,
        operation: O,
        deadline: Duration,
    ) -> anyhow::Result<O::Reply> {
        match self {
            Self::Process(client) => Ok(client.call_within(&operation, deadline).await?),
            Self::Files(instance) => {
                let done = operation.perform(instance).await;
                done.map_err(|failure| failure.error)
            }
        }
    }

    /// Has an operation done that answers in pieces, and passes each on. `note` is told what is worth a warning.
    ///
    /// # Errors
    /// Why it was not done to its end, or why a piece cannot be passed on.
    pub async fn stream<O: StreamedOperation>(
        &self,
        operation: O,
        note: fn(&str),
        mut each: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> anyhow::Result<()> {
        match self {
            Self::Process(client) => Ok(client.stream(&operation, each).await?),
            Self::Files(instance) => {
                let mut pieces = pin!(operation.stream(Arc::clone(instance), note));
                while let Some(piece) = pieces.next().await {
                    each(&piece?)?;
                }
                Ok(())
            }
        }
    }

    /// Lets go of the files.
    pub async fn close(&self) {
        if let Self::Files(instance) = self {
            instance.close().await;
        }
    }
}

/// Puts pieces of a stream together to lines, and passes each whole line on.
///
/// # Errors
/// Those of `each`.
pub fn by_line(
    mut each: impl FnMut(&[u8]) -> io::Result<()>,
) -> impl FnMut(&[u8]) -> io::Result<()> {
    let mut begun = Vec::new();
    move |piece| {
        begun.extend_from_slice(piece);
        while let Some(end) = begun.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = begun.drain(..=end).collect();
            each(&line[..end])?;
        }
        Ok(())
    }
}
