//! MetaClaw's home folder: what lies where, who holds it, and where the running process is.

use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

mod lock;
mod private;
mod run_file;

pub(crate) use self::{
    lock::{HomeLock, LockError},
    private::write_private,
    run_file::RunFile,
};

/// A home folder. It may not exist yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Home {
    dir: PathBuf,
}

// === impl Home ===

impl Home {
    /// The home at `dir`.
    pub(crate) fn at(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// Makes the folder, for its owner alone.
    pub(crate) fn create(&self) -> io::Result<()> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.dir)
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.dir.join("config.yaml")
    }

    /// The skill library, where `skills.dir` names no other.
    pub(crate) fn skills(&self) -> PathBuf {
        self.dir.join("skills")
    }

    /// The log of turns.
    pub(crate) fn turns(&self) -> PathBuf {
        self.dir.join("turns")
    }

    /// Adapters and checkpoints, where `trainer.checkpoint_dir` names no other.
    pub(crate) fn trainer(&self) -> PathBuf {
        self.dir.join("trainer")
    }

    /// What is known of when its owner is away.
    pub(crate) fn scheduler_state(&self) -> PathBuf {
        self.dir.join("scheduler_state.json")
    }

    /// What a process in the background says.
    pub(crate) fn log_file(&self) -> PathBuf {
        self.dir.join("metaclaw.log")
    }

    /// Takes the home for this process.
    ///
    /// # Errors
    ///
    /// [`LockError::Held`] names the process that has it.
    pub(crate) fn lock(&self, doing: &str) -> Result<HomeLock, LockError> {
        HomeLock::acquire(&self.dir.join("metaclaw.lock"), doing)
    }

    /// Whether a process has the home, and which.
    pub(crate) fn holder(&self) -> Result<Option<lock::Holder>, LockError> {
        HomeLock::holder(&self.dir.join("metaclaw.lock"))
    }

    /// What the running process wrote about itself.
    pub(crate) fn run_file(&self) -> io::Result<Option<RunFile>> {
        RunFile::load(&self.run_path())
    }

    /// Says where this process is.
    pub(crate) fn publish(&self, run: &RunFile) -> io::Result<()> {
        run.write(&self.run_path())
    }

    /// Takes back what `publish` said.
    pub(crate) fn retract(&self) -> io::Result<()> {
        match fs::remove_file(self.run_path()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn run_path(&self) -> PathBuf {
        self.dir.join("run.json")
    }
}

#[cfg(test)]
mod tests;
