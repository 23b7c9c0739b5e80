//! Finds processes of this machine by a variable in their environment, and ends the process group of a child.

use std::{fs, path::Path};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::Child;

/// The process group of a child that was started as the leader of its group. Dropping it kills the group.
#[derive(Debug)]
pub(crate) struct ProcessGroup(Option<Pid>);

// === impl ProcessGroup ===

impl ProcessGroup {
    pub(crate) fn new(child: &Child) -> Self {
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        Self(id.and_then(Pid::from_raw))
    }

    pub(crate) fn signal(&self, signal: Signal) {
        if let Some(group) = self.0 {
            // The group is gone if all of its processes have ended.
            let _ = kill_process_group(group, signal);
        }
    }

    pub(crate) fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.0 = None;
    }

    /// Lets the processes keep running when this is dropped.
    pub(crate) fn release(&mut self) {
        self.0 = None;
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.kill();
    }
}

// === functions ===

/// Returns the processes that have `variable` (`NAME=value`) in their environment, or whose folder in `/proc`
/// `is_meant` accepts. A system without `/proc` has none.
pub(crate) fn processes(variable: &str, is_meant: impl Fn(&Path) -> bool) -> Vec<Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let found = entries.filter_map(|entry| {
        let number = entry.file_name().to_str()?.parse().ok()?;
        let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
        let mut variables = environment.split(|byte| *byte == 0);
        let is_found = variables.any(|set| set == variable.as_bytes()) || is_meant(&entry.path());
        Pid::from_raw(number).filter(|_| is_found)
    });
    found.collect()
}
