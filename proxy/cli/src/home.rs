//! MetaClaw's home folder: what lies where, who holds it, and where the running process is.

use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use crate::installed::Programs;

mod lock;
mod run_file;

pub(crate) use self::{
    lock::{HomeLock, LockError},
    run_file::RunFile,
};

/// All that lies in a home. What is not listed here is somebody else's, and `uninstall` leaves it.
const LAYOUT: [&str; 19] = [
    "auth-profiles.json",
    "config.yaml",
    INSTANCES,
    "learning",
    "metaclaw.lock",
    "metaclaw.log",
    "off.json",
    "off_record.jsonl",
    "programs",
    "replay",
    "reports",
    "run.json",
    "scheduler_state.json",
    "skills",
    "spend.json",
    "tinker.json",
    "trainer",
    "turns",
    "wiring",
];
/// Where other proxies of a home have what two processes cannot share.
const INSTANCES: &str = "instances";

/// A home folder. It may not exist yet.
///
/// Several proxies may have one home: settings, keys, wishes and skills are for all of them, and each has a
/// log of turns, weights and a run file of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Home {
    /// What is this proxy's alone.
    dir: PathBuf,
    /// What is for all of them; the same as `dir` but for a proxy that `--port` started beside another.
    shared: PathBuf,
    /// The port that names this proxy among them.
    port: Option<u16>,
}

// === impl Home ===

impl Home {
    /// The home at `dir`.
    pub(crate) fn at(dir: PathBuf) -> Self {
        Self {
            shared: dir.clone(),
            dir,
            port: None,
        }
    }

    /// The place of the proxy that `--port` names.
    pub(crate) fn instance(&self, port: u16) -> Self {
        Self {
            dir: self.shared.join(INSTANCES).join(port.to_string()),
            shared: self.shared.clone(),
            port: Some(port),
        }
    }

    /// The proxies of this home that run beside its own.
    pub(crate) fn running_instances(&self) -> Vec<u16> {
        let entries = fs::read_dir(self.shared.join(INSTANCES));
        let names = entries.into_iter().flatten().flatten();
        let ports = names.filter_map(|it| it.file_name().to_str()?.parse().ok());
        let runs = |port: &u16| matches!(self.instance(*port).holder(), Ok(Some(_)));
        let mut ports: Vec<u16> = ports.filter(runs).collect();
        ports.sort_unstable();
        ports
    }

    /// All proxies of this home, whether they run or not, its own first.
    pub(crate) fn all(&self) -> Vec<Self> {
        let entries = fs::read_dir(self.shared.join(INSTANCES));
        let names = entries.into_iter().flatten().flatten();
        let ports = names.filter_map(|it| it.file_name().to_str()?.parse().ok());
        let own = Self::at(self.shared.clone());
        let others: Vec<Self> = ports.map(|port| own.instance(port)).collect();
        [own].into_iter().chain(others).collect()
    }

    /// How a command says that it means this proxy: ` --port N`, or nothing.
    pub(crate) fn flag(&self) -> String {
        self.port
            .map(|port| format!(" --port {port}"))
            .unwrap_or_default()
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
        self.shared.join("config.yaml")
    }

    /// What `metaclaw auth` keeps.
    pub(crate) fn auth_profiles(&self) -> PathBuf {
        self.shared.join("auth-profiles.json")
    }

    /// What `metaclaw trainer install` brings.
    pub(crate) fn programs(&self) -> Programs {
        Programs::at(self.shared.join("programs"))
    }

    /// The skill library, where `skills.dir` names no other.
    pub(crate) fn skills(&self) -> PathBuf {
        self.shared.join("skills")
    }

    /// The log of turns.
    pub(crate) fn turns(&self) -> PathBuf {
        self.dir.join("turns")
    }

    /// The copy of the log that a replay works on; it is gone afterwards.
    pub(crate) fn replay(&self) -> PathBuf {
        self.dir.join("replay")
    }

    /// Adapters and checkpoints, where `trainer.checkpoint_dir` names no other.
    pub(crate) fn trainer(&self) -> PathBuf {
        self.dir.join("trainer")
    }

    /// The numbers of training steps, where `rl.log_dir` names no other place.
    pub(crate) fn learning(&self) -> PathBuf {
        self.dir.join("learning")
    }

    /// What was spent today on asking models.
    pub(crate) fn spend(&self) -> PathBuf {
        self.dir.join("spend.json")
    }

    /// What was asked of a training server by Tinker's API.
    pub(crate) fn cloud_spend(&self) -> PathBuf {
        self.dir.join("tinker.json")
    }

    /// The digests, one a day.
    pub(crate) fn reports(&self) -> PathBuf {
        self.dir.join("reports")
    }

    /// Who is only relayed: `metaclaw off`.
    pub(crate) fn off(&self) -> PathBuf {
        self.dir.join("off.json")
    }

    /// The conversations that are off the record.
    pub(crate) fn off_record(&self) -> PathBuf {
        self.dir.join("off_record.jsonl")
    }

    /// What is known of when its owner is away.
    pub(crate) fn scheduler_state(&self) -> PathBuf {
        self.dir.join("scheduler_state.json")
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
        HomeLock::acquire(&self.dir.join("metaclaw.lock"), doing, self.flag())
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
