//! Why a sandbox cannot be made or used.

use std::io;

/// Why a sandbox cannot be made or used.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    #[error("sandbox.{field} 0 is not allowed: use a number from 1")]
    Limit { field: &'static str },
    #[error("{program} cannot be started: {source}")]
    Spawn {
        program: &'static str,
        source: io::Error,
    },
    #[error("{program} made no sandbox: {words}")]
    Refused {
        program: &'static str,
        words: String,
    },
    #[error(
        "no sandbox for the agent's commands: {reasons}. Install bubblewrap (Debian: apt install bubblewrap), podman or \
         docker, or set `sandbox: none`, with which commands run as you, without limits of memory, disk and network"
    )]
    NoneWorks { reasons: String },
    #[error("the sandbox cannot run a command: {words}")]
    Enter { words: String },
    #[error("file {name:?} is not allowed: a relative path without `..`")]
    FileName { name: String },
    #[error("cannot copy files into the sandbox: {words}")]
    Copy { words: String },
    #[error("cannot work with the sandbox: {0}")]
    Io(#[from] io::Error),
}
