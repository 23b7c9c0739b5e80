//! The cost of a peer: CPU time and memory of its processes, read from `/proc`.

use std::{fs, time::Duration};

use anyhow::{Context as _, Result};

/// This is fixed in Linux's user interface on all supported machines.
const TICKS_PER_SECOND: u64 = 100;

/// A process and its descendants.
#[derive(Debug, Clone)]
pub struct Tree {
    pids: Vec<u32>,
}

// === impl Tree ===

impl Tree {
    /// Returns the process `root` and its present descendants.
    pub fn of(root: u32) -> Self {
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = processes.filter_map(|it| it.file_name().to_str()?.parse::<u32>().ok());
        let parents: Vec<(u32, u32)> = pids.filter_map(|pid| Some((pid, parent(pid)?))).collect();
        let mut tree = vec![root];
        let mut next = 0;
        while let Some(pid) = tree.get(next).copied() {
            let children = parents.iter().filter(|(_, parent)| *parent == pid);
            tree.extend(children.map(|(child, _)| *child));
            next += 1;
        }
        Self { pids: tree }
    }

    pub fn of_this() -> Self {
        Self {
            pids: vec![std::process::id()],
        }
    }

    /// Returns their ids, the first one's first.
    pub fn pids(&self) -> &[u32] {
        &self.pids
    }

    /// Returns the user and system time of all of them, in steps of 10 ms.
    pub fn cpu(&self) -> Duration {
        let ticks: u64 = self.pids.iter().filter_map(|pid| ticks(*pid)).sum();
        of_ticks(ticks)
    }

    /// Resets the memory maximum.
    ///
    /// # Errors
    /// Returns an error if the system refuses.
    pub fn forget_peak(&self) -> Result<()> {
        for pid in &self.pids {
            let path = format!("/proc/{pid}/clear_refs");
            fs::write(&path, "5").with_context(|| format!("cannot write {path}"))?;
        }
        Ok(())
    }

    /// Returns the largest resident memory since then, in KiB, summed over all of them.
    pub fn peak_kib(&self) -> u64 {
        self.pids.iter().filter_map(|pid| peak_kib(*pid)).sum()
    }
}

/// Returns the busy CPU time of the whole machine.
pub fn machine_busy() -> Duration {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = stat.lines().next().unwrap_or_default();
    let fields = line
        .split_whitespace()
        .skip(1)
        .map(|it| it.parse::<u64>().unwrap_or(0));
    // The fields are user, nice, system and interrupts; idle and waiting are left out. The time of guests is already
    // contained in user.
    let busy = fields
        .enumerate()
        .filter(|(index, _)| matches!(index, 0..=2 | 5..=7));
    of_ticks(busy.map(|(_, ticks)| ticks).sum())
}

fn of_ticks(ticks: u64) -> Duration {
    Duration::from_millis(ticks * 1_000 / TICKS_PER_SECOND)
}

/// Returns the fields of `/proc/PID/stat` after the name, which may contain spaces.
fn fields(pid: u32) -> Option<Vec<String>> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    Some(rest.split_whitespace().map(str::to_owned).collect())
}

fn parent(pid: u32) -> Option<u32> {
    fields(pid)?.get(1)?.parse().ok()
}

fn ticks(pid: u32) -> Option<u64> {
    // utime and stime are fields 14 and 15 of proc(5), and the first two are removed.
    let fields = fields(pid)?;
    let field = |index: usize| fields.get(index)?.parse::<u64>().ok();
    Some(field(11)? + field(12)?)
}

fn peak_kib(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse().ok()
}
