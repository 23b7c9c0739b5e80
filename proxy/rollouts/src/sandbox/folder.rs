//! No sandbox: commands run as this user, in a temporary folder.

use std::path::Path;

use tempfile::TempDir;
use tokio::process::Command;

use super::exec::Exec;

const ENTER: &str = "exec \"$@\" 2>&1";

#[derive(Debug)]
pub(super) struct Folder(TempDir);

// === impl Folder ===

impl Folder {
    pub(super) fn new() -> std::io::Result<Self> {
        TempDir::new().map(Self)
    }

    pub(super) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(super) fn command(&self, exec: &Exec) -> Command {
        let mut command = Command::new("/bin/bash");
        command.args(["-c", ENTER, "bash"]).args(&exec.argv);
        command.current_dir(self.path()).env_clear();
        command.env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin");
        command.env("HOME", self.path()).env("LANG", "C.UTF-8");
        command
    }
}
