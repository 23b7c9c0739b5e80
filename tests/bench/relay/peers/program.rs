//! Another's program, run until it is dropped.

use std::{net::SocketAddr, process::Stdio, time::Duration};

use anyhow::{Context as _, Result, bail};
use metaclaw_tests::{home::signal, wait::found};
use rustix::process::Signal;
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    process::{Child, Command},
};

use crate::processes::Tree;

/// A cold LiteLLM imports for 7 s of CPU time in each of its processes.
const READY_WITHIN: Duration = Duration::from_secs(300);

/// Ended with all its processes when dropped.
#[derive(Debug)]
pub struct Program {
    child: Child,
    address: SocketAddr,
    folder: TempDir,
}

// === impl Program ===

impl Program {
    /// Runs `command` until it listens at `address`.
    pub(super) async fn run(
        mut command: Command,
        address: SocketAddr,
        folder: TempDir,
    ) -> Result<Self> {
        let said = std::fs::File::create(folder.path().join("said.log"))?;
        let child = command
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(said.try_clone()?)
            .stderr(said)
            .spawn()
            .with_context(|| {
                format!("cannot start {}", command.as_std().get_program().display())
            })?;
        let mut program = Self {
            child,
            address,
            folder,
        };
        let listens = found(READY_WITHIN, async || program.listens().await);
        listens.await.context("it did not listen in time")?;
        Ok(program)
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its first process, while it runs.
    pub(super) fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Something once it answers.
    async fn listens(&mut self) -> Result<Option<()>> {
        if answers(self.address).await.is_ok() {
            return Ok(Some(()));
        }
        if let Some(status) = self.child.try_wait()? {
            let said = std::fs::read_to_string(self.folder.path().join("said.log"));
            bail!("it ended with {status}: {}", said.unwrap_or_default());
        }
        Ok(None)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Killing the first process alone would leave its workers behind.
        for pid in self
            .child
            .id()
            .into_iter()
            .flat_map(|pid| Tree::of(pid).pids().to_owned())
        {
            // One that has ended already is as good.
            let _ = signal(pid, Signal::TERM);
        }
    }
}

/// Whether somebody answers there, whatever.
async fn answers(address: SocketAddr) -> Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    stream
        .write_all(b"GET /health/liveliness HTTP/1.1\r\nhost: bench\r\nconnection: close\r\n\r\n")
        .await?;
    let mut first = [0];
    stream.read_exact(&mut first).await?;
    Ok(())
}

/// An address that was free a moment ago, for programs that cannot choose one themselves.
pub(super) async fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0").await?.local_addr()?)
}
