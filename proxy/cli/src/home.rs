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

/// All that lies in a home. What is not listed here is somebody else's, and `uninstall` leaves it.
const LAYOUT: [&str; 10] = [
    "config.yaml",
    "metaclaw.lock",
    "metaclaw.log",
    "reports",
    "run.json",
    "skills",
    "spend.json",
    "trainer",
    "turns",
    "wiring",
];

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

    /// What was spent today on asking models.
    pub(crate) fn spend(&self) -> PathBuf {
        self.dir.join("spend.json")
    }

    /// What a process in the background says.
    pub(crate) fn log_file(&self) -> PathBuf {
        self.dir.join("metaclaw.log")
    }

    /// What is known of agents that are pointed at the proxy.
    pub(crate) fn wiring(&self) -> metaclaw_wiring::Wiring {
        metaclaw_wiring::Wiring::new(self.dir.join("wiring"))
    }

    /// Everything in it, by name.
    pub(crate) fn entries(&self) -> io::Result<Vec<String>> {
        let read = match fs::read_dir(&self.dir) {
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let name =
            |entry: io::Result<fs::DirEntry>| Ok(entry?.file_name().to_string_lossy().into());
        let mut names: Vec<String> = read.map(name).collect::<io::Result<_>>()?;
        names.sort();
        Ok(names)
    }

    /// What of it is ours; nothing in a folder that never was a home.
    pub(crate) fn own_entries(&self) -> io::Result<Vec<String>> {
        let mut names = self.entries()?;
        let is_home = names
            .iter()
            .any(|name| name == "metaclaw.lock" || name == "config.yaml");
        // Of a file that was being written at a kill.
        let is_left_half = |name: &str| {
            let path = Path::new(name);
            name.starts_with('.') && path.extension().is_some_and(|it| it == "tmp")
        };
        names.retain(|name| is_home && (LAYOUT.contains(&name.as_str()) || is_left_half(name)));
        Ok(names)
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
