//! No sandbox: commands run as this user, in a temporary folder.

use std::{fs, path::Path, thread};

use rustix::process::{Signal, kill_process};
use tempfile::TempDir;
use tokio::process::Command;

use super::exec::Exec;
use crate::processes::processes;

const ENTER: &str = "exec \"$@\" 2>&1";
/// A variable that the processes of a folder inherit.
const MARK: &str = "METACLAW_FOLDER";
/// How often the list of processes is read at most, until it has none of the folder. A process may make another before
/// it is killed, and takes a moment to end.
const MAX_ROUNDS: u32 = 200;
/// How many times in a row the list has to be without them: while a process starts another program (execve), its environment
/// reads as empty.
const EMPTY_ROUNDS: u32 = 8;

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
        command.env(MARK, self.path());
        command.envs(exec.env.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Kills what commands have left behind, in sessions of their own too: the processes that have the folder's mark in
    /// their environment or work in the folder. One that has neither goes on.
    pub(super) fn kill_rest(&self) {
        let mark = format!("{MARK}={}", self.path().display());
        let works_here = |process: &Path| {
            let place = fs::read_link(process.join("cwd"));
            place.is_ok_and(|place| place.starts_with(self.path()))
        };
        let mut n_empty = 0;
        for _ in 0..MAX_ROUNDS {
            let rest = processes(&mark, works_here);
            n_empty = if rest.is_empty() { n_empty + 1 } else { 0 };
            if n_empty == EMPTY_ROUNDS {
                break;
            }
            for process in rest {
                // It may have ended already.
                let _ = kill_process(process, Signal::KILL);
            }
            thread::yield_now();
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        self.kill_rest();
    }
}
