//! MetaClaw's home folder: what lies where, who holds it, and where the running process is.

use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use metaclaw_chat::if_there;

mod lock;
mod run_file;

pub use metaclaw_settings::write_private;

pub use self::{
    lock::{Holder, HomeLock, HomeLockError},
    run_file::RunFile,
};

/// All that lies in a home. What is not listed here is somebody else's, and `uninstall` leaves it.
const LAYOUT: [&str; 24] = [
    "auth-profiles.json",
    "calendar_token.json",
    "config.yaml",
    "forgetting.json",
    INSTANCES,
    "learning",
    "memory",
    "metaclaw.lock",
    "metaclaw.log",
    "off.json",
    "off_record.jsonl",
    "page.key",
    "programs",
    "replay",
    "reports",
    "rollouts",
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
pub struct Home {
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
    pub fn at(dir: PathBuf) -> Self {
        Self {
            shared: dir.clone(),
            dir,
            port: None,
        }
    }

    /// The place of the proxy that `--port` names.
    #[must_use]
    pub fn instance(&self, port: u16) -> Self {
        Self {
            dir: self.shared.join(INSTANCES).join(port.to_string()),
            shared: self.shared.clone(),
            port: Some(port),
        }
    }

    /// The proxies of this home that run beside its own.
    pub fn running_instances(&self) -> Vec<u16> {
        let entries = fs::read_dir(self.shared.join(INSTANCES));
        let names = entries.into_iter().flatten().flatten();
        let ports = names.filter_map(|it| it.file_name().to_str()?.parse().ok());
        let runs = |port: &u16| matches!(self.instance(*port).holder(), Ok(Some(_)));
        let mut ports: Vec<u16> = ports.filter(runs).collect();
        ports.sort_unstable();
        ports
    }

    /// All proxies of this home, whether they run or not, its own first.
    pub fn all(&self) -> Vec<Self> {
        let entries = fs::read_dir(self.shared.join(INSTANCES));
        let names = entries.into_iter().flatten().flatten();
        let ports = names.filter_map(|it| it.file_name().to_str()?.parse().ok());
        let own = Self::at(self.shared.clone());
        let others: Vec<Self> = ports.map(|port| own.instance(port)).collect();
        [own].into_iter().chain(others).collect()
    }

    /// How a command says that it means this proxy: ` --port N`, or nothing.
    pub fn flag(&self) -> String {
        self.port
            .map(|port| format!(" --port {port}"))
            .unwrap_or_default()
    }

    /// Makes the folder, for its owner alone.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn create(&self) -> io::Result<()> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.dir)
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn config(&self) -> PathBuf {
        self.shared.join("config.yaml")
    }

    /// What `metaclaw auth` keeps.
    pub fn auth_profiles(&self) -> PathBuf {
        self.shared.join("auth-profiles.json")
    }

    /// The token of Google's calendar, where the settings name no other file.
    pub fn calendar_token(&self) -> PathBuf {
        self.shared.join("calendar_token.json")
    }

    /// What `metaclaw trainer install` brings.
    pub fn programs(&self) -> PathBuf {
        self.shared.join("programs")
    }

    /// The skill library, where `skills.dir` names no other.
    pub fn skills(&self) -> PathBuf {
        self.shared.join("skills")
    }

    /// What the owner told, where `memory.dir` names no other folder.
    pub fn memory(&self) -> PathBuf {
        self.shared.join("memory")
    }

    /// The log of turns.
    pub fn turns(&self) -> PathBuf {
        self.dir.join("turns")
    }

    /// The copy of the log that a replay works on; it is gone afterwards.
    pub fn replay(&self) -> PathBuf {
        self.dir.join("replay")
    }

    /// Adapters and checkpoints, where `trainer.checkpoint_dir` names no other.
    pub fn trainer(&self) -> PathBuf {
        self.dir.join("trainer")
    }

    /// The numbers of training steps, where `rl.log_dir` names no other place.
    pub fn learning(&self) -> PathBuf {
        self.dir.join("learning")
    }

    /// What was spent today on asking models.
    pub fn spend(&self) -> PathBuf {
        self.dir.join("spend.json")
    }

    /// What was asked of a training server by Tinker's API.
    pub fn cloud_spend(&self) -> PathBuf {
        self.dir.join("tinker.json")
    }

    /// The note of a deletion of sessions that is not finished.
    pub fn forgetting(&self) -> PathBuf {
        self.dir.join("forgetting.json")
    }

    /// Daily reports that earlier versions wrote.
    pub fn reports(&self) -> PathBuf {
        self.dir.join("reports")
    }

    /// The runs of `metaclaw rollout run`, a folder each.
    pub fn rollouts(&self) -> PathBuf {
        self.dir.join("rollouts")
    }

    /// Who is only relayed: `metaclaw off`.
    pub fn off(&self) -> PathBuf {
        self.dir.join("off.json")
    }

    /// The conversations that are off the record.
    pub fn off_record(&self) -> PathBuf {
        self.dir.join("off_record.jsonl")
    }

    /// The key of the cookies that browsers are signed in with.
    pub fn page_key(&self) -> PathBuf {
        self.dir.join("page.key")
    }

    /// What is known of when its owner is away.
    pub fn scheduler_state(&self) -> PathBuf {
        self.dir.join("scheduler_state.json")
    }

    /// What a process in the background says.
    pub fn log_file(&self) -> PathBuf {
        self.dir.join("metaclaw.log")
    }

    /// What is known of agents that are pointed at the proxy.
    pub fn wiring(&self) -> PathBuf {
        self.dir.join("wiring")
    }

    /// Everything in it, by name.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn entries(&self) -> io::Result<Vec<String>> {
        let Some(read) = if_there(fs::read_dir(&self.dir))? else {
            return Ok(Vec::new());
        };
        let name =
            |entry: io::Result<fs::DirEntry>| Ok(entry?.file_name().to_string_lossy().into());
        let mut names: Vec<String> = read.map(name).collect::<io::Result<_>>()?;
        names.sort();
        Ok(names)
    }

    /// What of it is ours; nothing in a folder that never was a home.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn own_entries(&self) -> io::Result<Vec<String>> {
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

    /// The folders whose files this program replaces as a whole. A kill may leave unfinished files there.
    pub(crate) fn folders(&self) -> [PathBuf; 2] {
        [self.dir.clone(), self.shared.clone()]
    }

    /// Takes the home for this process.
    ///
    /// # Errors
    ///
    /// [`HomeLockError::Held`] names the process that has it.
    pub fn lock(&self, doing: &str) -> Result<HomeLock, HomeLockError> {
        HomeLock::acquire(&self.dir.join("metaclaw.lock"), doing, self.flag())
    }

    /// Whether a process has the home, and which.
    ///
    /// # Errors
    /// When the lock file cannot be used.
    pub fn holder(&self) -> Result<Option<Holder>, HomeLockError> {
        HomeLock::holder(&self.dir.join("metaclaw.lock"))
    }

    /// What the running process wrote about itself.
    ///
    /// # Errors
    /// When it is there and does not read.
    pub fn run_file(&self) -> io::Result<Option<RunFile>> {
        RunFile::load(&self.run_path())
    }

    /// Says where this process is.
    ///
    /// # Errors
    /// When the run file cannot be written.
    pub fn publish(&self, run: &RunFile) -> io::Result<()> {
        run.write(&self.run_path())
    }

    /// Takes back what `publish` said.
    ///
    /// # Errors
    /// When the run file cannot be removed.
    pub fn retract(&self) -> io::Result<()> {
        if_there(fs::remove_file(self.run_path())).map(drop)
    }

    fn run_path(&self) -> PathBuf {
        self.dir.join("run.json")
    }
}

#[cfg(test)]
mod tests;
