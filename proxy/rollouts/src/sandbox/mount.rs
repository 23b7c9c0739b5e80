//! Files of this machine that a sandbox shows in places of its own.

use std::path::PathBuf;

/// A file or folder of this machine that commands in a sandbox can read at `target` and cannot change.
#[derive(Debug, Clone)]
pub struct SandboxMount {
    pub source: PathBuf,
    /// An absolute path in the sandbox.
    pub target: PathBuf,
}
