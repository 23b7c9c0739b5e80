//! Who is compared: started with the upstream behind them, asked where they listen and what they
//! cost, and ended with all their processes.

mod litellm;
mod nginx;
mod ours;

use std::{net::SocketAddr, path::PathBuf, process::Stdio, time::Duration};

use anyhow::{Context as _, Result, bail};
use metaclaw_tests::home::signal;
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    process::{Child, Command},
};

pub use self::ours::{LESSON, Ours};
use crate::processes::Tree;

/// A cold LiteLLM imports for 7 s of CPU time in each of its processes.
const READY_WITHIN: Duration = Duration::from_secs(300);

/// A row of the table.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "snake_case")]
pub enum PeerName {
    /// The upstream itself.
    Direct,
    /// Debian's nginx as a reverse proxy that buffers nothing.
    Nginx,
    /// LiteLLM's proxy.
    Litellm,
    /// Ours with `turns.enabled: false`.
    Off,
    /// Ours with the log of turns.
    On,
}

/// Where the programs are; one that is missing is left out.
#[derive(Debug, Clone)]
pub struct Programs {
    /// The folder of `metaclaw`.
    pub ours: PathBuf,
    /// nginx.
    pub nginx: Option<PathBuf>,
    /// LiteLLM's command.
    pub litellm: Option<PathBuf>,
}

/// A peer that runs.
#[derive(Debug)]
pub enum Peer {
    /// Nothing stands between.
    Direct(SocketAddr),
    /// A program with its configuration.
    Program(Box<Program>),
    /// Ours.
    Ours(Box<Ours>),
}

/// Another's program; ended when dropped.
#[derive(Debug)]
pub struct Program {
    child: Child,
    address: SocketAddr,
    folder: TempDir,
}

// === impl PeerName ===

impl PeerName {
    /// All, in the order of the table.
    pub const ALL: [Self; 5] = [
        Self::Direct,
        Self::Nginx,
        Self::Litellm,
        Self::Off,
        Self::On,
    ];

    /// In file names and tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Nginx => "nginx",
            Self::Litellm => "litellm",
            Self::Off => "ours-off",
            Self::On => "ours-on",
        }
    }

    /// Whether it has to pass a reply on byte for byte. LiteLLM writes each anew.
    pub fn is_exact(self) -> bool {
        self != Self::Litellm
    }

    /// Starts it; `Err` with why there is none, where it is not installed.
    pub async fn start(
        self,
        programs: &Programs,
        upstream: SocketAddr,
    ) -> Result<Result<Peer, &'static str>> {
        Ok(Ok(match self {
            Self::Direct => Peer::Direct(upstream),
            Self::Nginx => match &programs.nginx {
                Some(nginx) => Peer::Program(Box::new(nginx::start(nginx, upstream).await?)),
                None => {
                    return Ok(Err(
                        "nginx is not installed (Debian, Ubuntu: apt install nginx)",
                    ));
                }
            },
            Self::Litellm => match &programs.litellm {
                Some(litellm) => Peer::Program(Box::new(litellm::start(litellm, upstream).await?)),
                None => return Ok(Err("LiteLLM is not installed")),
            },
            Self::Off | Self::On => {
                let ours = Ours::start(&programs.ours, upstream, self == Self::On).await?;
                Peer::Ours(Box::new(ours))
            }
        }))
    }
}

// === impl Peer ===

impl Peer {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        match self {
            Self::Direct(address) => *address,
            Self::Program(program) => program.address,
            Self::Ours(ours) => ours.address(),
        }
    }

    /// Its processes, if it has some of its own.
    pub fn processes(&self) -> Option<Tree> {
        let root = match self {
            Self::Direct(_) => None,
            Self::Program(program) => program.child.id(),
            Self::Ours(ours) => Some(ours.pid()),
        };
        root.map(Tree::of)
    }
}

// === impl Program ===

impl Program {
    /// Runs `command` until it listens at `address`.
    async fn run(mut command: Command, address: SocketAddr, folder: TempDir) -> Result<Self> {
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
        let listens = tokio::time::timeout(READY_WITHIN, program.listens());
        listens.await.context("it did not listen in time")??;
        Ok(program)
    }

    async fn listens(&mut self) -> Result<()> {
        loop {
            if answers(self.address).await.is_ok() {
                return Ok(());
            }
            if let Some(status) = self.child.try_wait()? {
                let said = std::fs::read_to_string(self.folder.path().join("said.log"));
                bail!("it ended with {status}: {}", said.unwrap_or_default());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
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
async fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0").await?.local_addr()?)
}
