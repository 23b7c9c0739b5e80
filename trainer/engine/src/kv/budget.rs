//! How much memory keys and values may have when nobody says.

use std::fs;

/// Where the system does not say what is free.
const UNKNOWN: usize = 1 << 30;

/// Half of what is free now, at most what two whole contexts need (1 GiB is always sensible), so that
/// training and the rest of the machine keep the other half.
pub(crate) fn default_budget(position_bytes: usize, context: usize) -> usize {
    let enough = (2 * context).saturating_mul(position_bytes).max(1 << 30);
    available().map_or(UNKNOWN, |free| free / 2).min(enough)
}

/// Bytes that new allocations can have without swapping; known on Linux alone.
fn available() -> Option<usize> {
    parse(&fs::read_to_string("/proc/meminfo").ok()?)
}

fn parse(meminfo: &str) -> Option<usize> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_memory_is_read_and_halved() {
        let text = "MemTotal:  100 kB\nMemAvailable:     2048 kB\n";
        assert_eq!(parse(text), Some(2 << 20));
        assert_eq!(parse("MemTotal: 1 kB"), None);
        let budget = default_budget(1 << 60, 8);
        assert!(budget > 0 && budget < 1 << 60);
        assert!(default_budget(1, 8) <= 1 << 30);
    }
}
