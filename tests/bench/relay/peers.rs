//! The compared programs: started with the upstream behind them, asked for their addresses and costs, and ended with
//! all their processes.

mod litellm;
mod nginx;
mod ours;
mod program;

use std::{net::SocketAddr, path::PathBuf};

use anyhow::Result;
use serde::{Deserialize, Serialize};

pub use self::ours::{LESSON, Ours, Recorded};
use self::program::Program;
use crate::{processes::Tree, upstream::Place};

/// A row of the table.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "snake_case")]
pub enum PeerName {
    /// The upstream itself.
    Direct,
    /// Debian's nginx as a reverse proxy without buffering.
    Nginx,
    /// LiteLLM's proxy.
    Litellm,
    /// MetaClaw with `turns.enabled: false`.
    Off,
    /// MetaClaw with the log of turns.
    On,
    /// The older release with `turns.enabled: false`.
    OldOff,
    /// The older release with the log of turns.
    OldOn,
}

/// The paths of the programs; a missing one is left out.
#[derive(Debug, Clone)]
pub struct Programs {
    /// The folder of `metaclaw`.
    pub ours: PathBuf,
    /// The folder of the older release's `metaclaw`.
    pub old: Option<PathBuf>,
    /// nginx.
    pub nginx: Option<PathBuf>,
    /// LiteLLM's command.
    pub litellm: Option<PathBuf>,
}

/// A running peer.
#[derive(Debug)]
pub enum Peer {
    /// There is no proxy.
    Direct(SocketAddr),
    /// A program with its configuration.
    Program(Box<Program>),
    /// MetaClaw.
    Ours(Box<Ours>),
}

// === impl PeerName ===

impl PeerName {
    /// Returns the peers that need nothing from the user, in the order of the table.
    pub const DEFAULT: [Self; 5] = [
        Self::Direct,
        Self::Nginx,
        Self::Litellm,
        Self::Off,
        Self::On,
    ];

    /// Returns the name in file names and tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Nginx => "nginx",
            Self::Litellm => "litellm",
            Self::Off => "ours-off",
            Self::On => "ours-on",
            Self::OldOff => "old-off",
            Self::OldOn => "old-on",
        }
    }

    /// Returns whether it must relay a reply byte for byte. LiteLLM writes each reply anew.
    pub fn is_exact(self) -> bool {
        self != Self::Litellm
    }

    /// Returns whether it is a `metaclaw`.
    pub fn is_ours(self) -> bool {
        matches!(self, Self::Off | Self::On | Self::OldOff | Self::OldOn)
    }

    /// Returns whether it is measured with an upstream behind TLS, because the load itself cannot use TLS.
    pub fn speaks_tls(self) -> bool {
        self.is_ours() || self == Self::Nginx
    }

    /// Starts it; returns `Err` with the reason if it is not installed.
    pub async fn start(
        self,
        programs: &Programs,
        upstream: &Place,
    ) -> Result<Result<Peer, &'static str>> {
        Ok(Ok(match self {
            Self::Direct => Peer::Direct(upstream.address),
            Self::Nginx => match &programs.nginx {
                Some(nginx) => Peer::Program(Box::new(nginx::start(nginx, upstream).await?)),
                None => {
                    return Ok(Err(
                        "nginx is not installed (Debian, Ubuntu: apt install nginx)",
                    ));
                }
            },
            Self::Litellm => match &programs.litellm {
                Some(litellm) => {
                    Peer::Program(Box::new(litellm::start(litellm, upstream.address).await?))
                }
                None => return Ok(Err("LiteLLM is not installed")),
            },
            Self::Off | Self::On => {
                let ours = Ours::start(&programs.ours, upstream, self == Self::On).await?;
                Peer::Ours(Box::new(ours))
            }
            Self::OldOff | Self::OldOn => match &programs.old {
                Some(folder) => {
                    let old = Ours::start(folder, upstream, self == Self::OldOn).await?;
                    Peer::Ours(Box::new(old))
                }
                None => return Ok(Err("--old names no older release")),
            },
        }))
    }
}

// === impl Peer ===

impl Peer {
    /// Returns its address.
    pub fn address(&self) -> SocketAddr {
        match self {
            Self::Direct(address) => *address,
            Self::Program(program) => program.address(),
            Self::Ours(ours) => ours.address(),
        }
    }

    /// Returns its processes, if it has any.
    pub fn processes(&self) -> Option<Tree> {
        let root = match self {
            Self::Direct(_) => None,
            Self::Program(program) => program.pid(),
            Self::Ours(ours) => Some(ours.pid()),
        };
        root.map(Tree::of)
    }
}
