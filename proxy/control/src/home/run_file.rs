//! `run.json`: how subcommands find and call the running process.

use std::{fs, io, net::SocketAddr, path::Path};

use metaclaw_chat::if_there;
use metaclaw_settings::write_private;
use serde::{Deserialize, Serialize};

/// The addresses of the running process. Only the owner may read the file, because it contains the token.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunFile {
    pub pid: u32,
    /// The address for subcommands, on this machine only.
    pub control: SocketAddr,
    /// The token that subcommands must send. It is not the proxy's key.
    pub token: String,
    /// The base URL for agents, for example `http://127.0.0.1:30000/v1`.
    pub base_url: String,
    /// When it began to listen, in milliseconds since 1970.
    pub started_ms: u64,
    pub version: String,
}

// === impl RunFile ===

impl RunFile {
    /// Reads the file; returns `None` if there is none.
    pub(super) fn load(path: &Path) -> io::Result<Option<Self>> {
        let Some(bytes) = if_there(fs::read(path))? else {
            return Ok(None);
        };
        let run = serde_json::from_slice(&bytes)
            .map_err(|error| io::Error::other(format!("{}: {error}", path.display())))?;
        Ok(Some(run))
    }

    pub(super) fn write(&self, path: &Path) -> io::Result<()> {
        let bytes = serde_json::to_vec_pretty(self).map_err(io::Error::other)?;
        write_private(path, &bytes)
    }
}

impl std::fmt::Debug for RunFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunFile")
            .field("pid", &self.pid)
            .field("control", &self.control)
            .field("base_url", &self.base_url)
            .finish_non_exhaustive()
    }
}
