//! How a command calls an operation: in the running process, or in its own.

use std::{io, sync::Arc, time::Duration};

use futures_util::{StreamExt as _, future::BoxFuture};

use crate::{
    client::ControlClient,
    instance::Instance,
    operation::{Operation, StreamedOperation},
};

/// The place where operations are carried out: the running process, or this process on the files of the home.
#[derive(Debug)]
pub enum ControlCaller {
    Process(ControlClient),
    Files(Arc<Instance>),
}

// === impl ControlCaller ===

impl ControlCaller {
    /// Whether operations go to a running process.
    pub fn is_process(&self) -> bool {
        matches!(self, Self::Process(_))
    }

    /// Calls an operation and waits for its reply.
    ///
    /// # Errors
    /// If the operation fails, or the running process does not answer.
    pub async fn call<O: Operation>(&self, operation: O) -> anyhow::Result<O::Reply> {
        self.call_within(operation, O::DEADLINE).await
    }

    /// Calls an operation. The running process has until `deadline` to reply.
    ///
    /// # Errors
    /// If the operation fails, or the running process does not answer.
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

    /// Calls an operation whose reply is a stream, and calls `each` with each piece. `note` gets the warnings.
    ///
    /// # Errors
    /// If the operation fails before its end, or `each` fails.
    pub async fn stream<O: StreamedOperation>(
        &self,
        operation: O,
        note: fn(&str),
        mut each: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> anyhow::Result<()> {
        match self {
            Self::Process(client) => Ok(client.stream(&operation, &mut each).await?),
            Self::Files(instance) => {
                let mut pieces = operation.stream(Arc::clone(instance), note);
                while let Some(piece) = pieces.next().await {
                    each(&piece?)?;
                }
                Ok(())
            }
        }
    }

    /// Closes the files of the home, if this process has opened them.
    pub fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            if let Self::Files(instance) = self {
                instance.close().await;
            }
        })
    }
}

/// Joins the pieces of a stream into lines, and calls `each` with each complete line.
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
