//! The home and the working folder of an agent.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use tempfile::TempDir;
use tokio::{process::Command, time::timeout};

/// The time limit of one answer; the slowest agent takes 20 s on a busy machine.
pub(super) const ANSWER_WITHIN: Duration = Duration::from_secs(180);

/// A home and a working folder for one agent, deleted when dropped.
#[derive(Debug)]
pub struct Room {
    folder: TempDir,
}

// === impl Room ===

impl Room {
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for name in ["home", "work"] {
            std::fs::create_dir(folder.path().join(name)).expect("a writable folder");
        }
        Self { folder }
    }

    pub(super) fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    /// Returns the working folder.
    pub fn work(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    /// Writes a file of its home.
    pub(super) fn configure(&self, file: &str, text: &str) {
        let file = self.home().join(file);
        let folder = file.parent().expect("a file below the home");
        std::fs::create_dir_all(folder).expect("a writable home");
        std::fs::write(file, text).expect("a writable home");
    }

    /// Creates a program in this home, without the caller's environment variables; `path` comes first in its `PATH`.
    pub(super) fn command(&self, program: &Path, path: &Path) -> Command {
        let mut command = Command::new(program);
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin", path.display());
        command
            .current_dir(self.work())
            .env_clear()
            .env("PATH", path)
            .env("HOME", self.home())
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }
}

/// Runs a program that must succeed; returns its output.
pub(super) async fn run(mut command: Command) -> String {
    let output = timeout(ANSWER_WITHIN, command.output()).await;
    let output = output.expect("it ends in time").expect("it runs");
    let [said, logs] = [&output.stdout, &output.stderr].map(|it| String::from_utf8_lossy(it));
    assert!(output.status.success(), "{command:?}: {said}{logs}");
    said.into_owned()
}
