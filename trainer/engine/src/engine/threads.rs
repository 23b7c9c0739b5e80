//! How many threads libtorch computes with.

use std::collections::BTreeSet;
use std::fs;

use crate::weights::LoadError;

/// Sets libtorch's threads for this thread: as many as given, or one a physical core.
///
/// A thread's first libtorch call resets its count to the last global value: ask first, then set.
///
/// # Errors
/// More than 1024.
pub(super) fn set_threads(threads: usize) -> Result<(), LoadError> {
    let threads = if threads == 0 { cores() } else { threads };
    let count = i32::try_from(threads)
        .ok()
        .filter(|&n| n <= 1024)
        .ok_or_else(|| LoadError::Setting {
            field: "threads",
            value: threads.to_string(),
            allowed: "0 (one a core) to 1024",
        })?;
    let _before = tch::get_num_threads();
    tch::set_num_threads(count);
    Ok(())
}

/// The number of physical cores that this process may use. Two threads on one core would share its vector units, and
/// each step waits for the slowest thread.
fn cores() -> usize {
    let usable = std::thread::available_parallelism().map_or(1, usize::from);
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    physical(&cpuinfo).map_or(usable, |n| n.min(usable))
}

/// Different pairs of package and core; `None` where the system does not tell them.
fn physical(cpuinfo: &str) -> Option<usize> {
    let mut cores = BTreeSet::new();
    for cpu in cpuinfo.split("\n\n") {
        let field = |name: &str| {
            let line = cpu
                .lines()
                .find(|line| line.split(':').next().map(str::trim) == Some(name))?;
            Some(line.split(':').nth(1)?.trim())
        };
        if let Some(core) = field("physical id").zip(field("core id")) {
            cores.insert(core);
        }
    }
    (!cores.is_empty()).then_some(cores.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_threads_of_one_core_are_one() {
        let cpu = |n: u32, package: u32, core: u32| {
            format!("processor\t: {n}\nphysical id\t: {package}\ncore id\t\t: {core}\n\n")
        };
        let text = [cpu(0, 0, 0), cpu(1, 0, 1), cpu(2, 0, 0), cpu(3, 0, 1)].concat();
        assert_eq!(physical(&text), Some(2));
        assert_eq!(physical(&(text + &cpu(4, 1, 0))), Some(3));
        assert_eq!(physical("processor\t: 0\nBogoMIPS: 1\n"), None);
        assert!(cores() >= 1);
    }
}
