//! A control group that limits the memory of all commands of a sandbox together, where this user can make one.
//!
//! It counts what no limit of a single process counts: shared mappings, files in memory, and the kernel's memory for
//! empty files.

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
};

use super::settings::SandboxLimits;

const MOUNTS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/memory"];

#[derive(Debug)]
pub(super) struct MemoryGroup {
    folder: PathBuf,
}

// === impl MemoryGroup ===

impl MemoryGroup {
    /// Makes a group, if this machine has control groups and this user can write to one.
    pub(super) fn new(limits: &SandboxLimits) -> Option<Self> {
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        let own = own.lines().filter_map(|line| line.splitn(3, ":/").last());
        let parents = own.flat_map(|it| Path::new(it).ancestors());
        let mut parents = parents.flat_map(|it| MOUNTS.map(|mount| Path::new(mount).join(it)));
        parents.find_map(|parent| Self::below(&parent, limits.total_memory()))
    }

    fn below(parent: &Path, limit: u64) -> Option<Self> {
        let folder = parent.join(format!("metaclaw-{:016x}", rand::random::<u64>()));
        fs::create_dir(&folder).ok()?;
        let group = Self { folder };
        // A file that is not there is not made: where no control groups are mounted, it would limit nothing.
        let write = |name, value: u64| {
            let file = fs::OpenOptions::new()
                .write(true)
                .open(group.folder.join(name));
            file.and_then(|mut it| it.write_all(value.to_string().as_bytes()))
        };
        let is_limited =
            write("memory.max", limit).is_ok() || write("memory.limit_in_bytes", limit).is_ok();
        // Without these files there is no swap to limit.
        let _ = write("memory.swap.max", 0);
        let _ = write("memory.memsw.limit_in_bytes", limit);
        is_limited.then_some(group)
    }

    pub(super) fn processes(&self) -> PathBuf {
        self.folder.join("cgroup.procs")
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // A process that is still ending keeps the group, which is then empty and costs nothing.
        let _ = fs::remove_dir(&self.folder);
    }
}
