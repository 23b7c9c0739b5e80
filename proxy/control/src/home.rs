//! MetaClaw's home folder: what lies where, who holds it, and where the running process is.

use std::{
    fs, io,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
};

use metaclaw_chat::{if_there, make_private};
use serde::{Deserialize, Serialize};

mod lock;

pub use metaclaw_settings::write_private;

pub use self::lock::{Holder, HomeLock, HomeLockError};

/// Where other proxies of a home have what two processes cannot share.
const INSTANCES: &str = "instances";
const LOCK: &str = "metaclaw.lock";
const RUN_FILE: &str = "run.json";

/// A home folder. It may not exist yet.
///
/// Several proxies may have one home: settings, keys, wishes and skills are for all of them, and each has a
/// log of turns, weights and a run file of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Home {
    dir: PathBuf,
    /// What is for all of them; the same as `dir` but for a proxy that `--port` started beside another.
    shared: PathBuf,
    port: Option<u16>,
}

/// Defines a method for the path of each file and folder that MetaClaw makes in a home, and the list of their names.
/// `uninstall` leaves everything that is not in the list.
macro_rules! layout {
    ($($(#[$doc:meta])* $path:ident in $folder:ident: $name:literal,)*) => {
        const LAYOUT: &[&str] = &[INSTANCES, LOCK, RUN_FILE, $($name),*];

        impl Home {
            $($(#[$doc])* pub fn $path(&self) -> PathBuf {
                self.$folder.join($name)
            })*
        }
    };
}

// `shared` is one for all proxies of a home; a proxy that `--port` started beside another has a `dir` of its own.
layout! {
    config in shared: "config.yaml",
    /// What `metaclaw auth` keeps.
    auth_profiles in shared: "auth-profiles.json",
    /// The token of Google's calendar, where the settings name no other file.
    calendar_token in shared: "calendar_token.json",
    /// What `metaclaw trainer install` brings.
    programs in shared: "programs",
    /// The skill library, where `skills.dir` names no other.
    skills in shared: "skills",
    /// What the owner told, where `memory.dir` names no other folder.
    memory in shared: "memory",
    /// The log of turns.
    turns in dir: "turns",
    /// The copy of the log that a replay works on; it is gone afterwards.
    replay in dir: "replay",
    /// Adapters and checkpoints, where `trainer.checkpoint_dir` names no other.
    trainer in dir: "trainer",
    /// The numbers of training steps, where `rl.log_dir` names no other place.
    learning in dir: "learning",
    /// What was spent today on asking models.
    spend in dir: "spend.json",
    /// What was asked of a training server by Tinker's API.
    cloud_spend in dir: "tinker.json",
    /// The note of a deletion of sessions that is not finished.
    forgetting in dir: "forgetting.json",
    /// Daily reports that earlier versions wrote.
    reports in dir: "reports",
    /// The runs of `metaclaw rollout run`, a folder each.
    rollouts in dir: "rollouts",
    /// Who is only relayed: `metaclaw off`.
    off in dir: "off.json",
    /// The conversations that are off the record.
    off_record in dir: "off_record.jsonl",
    /// The key of the cookies that browsers are signed in with.
    page_key in dir: "page.key",
    /// What is known of when its owner is away.
    scheduler_state in dir: "scheduler_state.json",
    /// What a process in the background says.
    log_file in dir: "metaclaw.log",
    /// What is known of agents that are pointed at the proxy.
    wiring in dir: "wiring",
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

    /// The folder that all proxies of the home share.
    pub fn shared(&self) -> &Path {
        &self.shared
    }

    /// The proxies of this home that run beside its own.
    pub fn running_instances(&self) -> Vec<u16> {
        let runs = |port: &u16| matches!(self.instance(*port).holder(), Ok(Some(_)));
        let mut ports: Vec<u16> = self.instances().into_iter().filter(runs).collect();
        ports.sort_unstable();
        ports
    }

    /// All proxies of this home, whether they run or not, its own first.
    pub fn all(&self) -> Vec<Self> {
        let mut all = vec![Self::at(self.shared.clone())];
        all.extend(self.instances().into_iter().map(|port| self.instance(port)));
        all
    }

    fn instances(&self) -> Vec<u16> {
        let entries = fs::read_dir(self.shared.join(INSTANCES));
        let names = entries.into_iter().flatten().flatten();
        let ports = names.filter_map(|name| name.file_name().to_str()?.parse().ok());
        ports.collect()
    }

    /// How a command says that it means this proxy: ` --port N`, or nothing.
    pub fn flag(&self) -> String {
        self.port
            .map(|port| format!(" --port {port}"))
            .unwrap_or_default()
    }

    /// Looks whether it can be read, if it is there.
    ///
    /// # Errors
    /// If it is a file, or cannot be read.
    pub fn check(&self) -> io::Result<()> {
        if_there(fs::read_dir(&self.shared)).map(drop)
    }

    /// Makes the folder, for its owner alone.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn create(&self) -> io::Result<()> {
        make_private(&self.dir)
    }

    pub fn dir(&self) -> &Path {
        &self.dir
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
            .any(|name| name == LOCK || name == "config.yaml");
        // Of a file that was being written at a kill.
        let is_left_half = |name: &str| {
            let path = Path::new(name);
            name.starts_with('.') && path.extension().is_some_and(|extension| extension == "tmp")
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
        HomeLock::acquire(&self.dir.join(LOCK), doing, self.flag())
    }

    /// Whether a process has the home, and which.
    ///
    /// # Errors
    /// When the lock file cannot be used.
    pub fn holder(&self) -> Result<Option<Holder>, HomeLockError> {
        HomeLock::holder(&self.dir.join(LOCK))
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
        self.dir.join(RUN_FILE)
    }
}

/// The addresses of the running process. Only the owner may read the file, because it contains the token.
#[derive(derive_more::Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[debug("RunFile({pid}, {control}, {base_url})")]
pub struct RunFile {
    pub pid: u32,
    /// The address for subcommands, on this machine only.
    pub control: SocketAddr,
    /// The token that subcommands must send. It is not the proxy's key.
    pub token: String,
    /// The address of the page, where it is not that of subcommands (`ui.host`).
    pub page: Option<SocketAddr>,
    /// The base URL for agents, for example `http://127.0.0.1:30000/v1`.
    pub base_url: String,
    /// When it began to listen, in milliseconds since 1970.
    pub started_ms: u64,
    pub version: String,
    /// The settings file that it has read: `start --config` may name another than the home's.
    pub settings: Option<PathBuf>,
}

// === impl RunFile ===

impl RunFile {
    /// Returns the address of the proxy without a path, for example `http://127.0.0.1:30000`.
    pub fn origin(&self) -> &str {
        self.base_url.trim_end_matches("/v1")
    }

    fn load(path: &Path) -> io::Result<Option<Self>> {
        let Some(bytes) = if_there(fs::read(path))? else {
            return Ok(None);
        };
        let run = serde_json::from_slice(&bytes)
            .map_err(|error| io::Error::other(format!("{}: {error}", path.display())))?;
        Ok(Some(run))
    }

    fn write(&self, path: &Path) -> io::Result<()> {
        let bytes = serde_json::to_vec_pretty(self).map_err(io::Error::other)?;
        write_private(path, &bytes)
    }
}

/// Returns the address for clients of this machine of a proxy that listens at `proxy`. Those of OpenAI's API need `/v1`
/// behind it.
pub fn origin(proxy: SocketAddr) -> String {
    // Clients of this machine cannot ask an address that means all of them.
    let host = match proxy.ip() {
        all if all.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        one => one,
    };
    format!("http://{}", SocketAddr::new(host, proxy.port()))
}

#[cfg(test)]
mod tests;
