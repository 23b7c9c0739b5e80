//! How much memory this process may still take.

use std::fs;

/// Bytes that can be had without swapping: what Linux estimates for the machine, or what a container's limit
/// leaves, whichever is less. `None` where the system does not say.
pub fn available() -> Option<usize> {
    let read = |file: &str| fs::read_to_string(file).ok();
    let machine = read("/proc/meminfo").and_then(|text| field(&text, "MemAvailable:"));
    let machine = machine.and_then(|kilobytes| kilobytes.checked_mul(1024));
    // Without a limit the file says "max", which does not parse. Mapped and cached files can be evicted, so they count
    // as free.
    let limit = read("/sys/fs/cgroup/memory.max").and_then(|text| text.trim().parse().ok());
    let used = read("/sys/fs/cgroup/memory.stat").and_then(|text| field(&text, "anon"));
    let container = limit
        .zip(used)
        .map(|(limit, used): (usize, usize)| limit.saturating_sub(used));
    machine.into_iter().chain(container).min()
}

/// Total bytes of the machine, or the container's limit if that is less; `None` if the system does not say.
pub fn total() -> Option<usize> {
    let read = |file: &str| fs::read_to_string(file).ok();
    let machine = read("/proc/meminfo").and_then(|text| field(&text, "MemTotal:"));
    let machine = machine.and_then(|kilobytes| kilobytes.checked_mul(1024));
    let limit = read("/sys/fs/cgroup/memory.max").and_then(|text| text.trim().parse().ok());
    machine.into_iter().chain(limit).min()
}

fn field(text: &str, name: &str) -> Option<usize> {
    let mut lines = text.lines().map(str::split_whitespace);
    lines.find_map(|mut words| (words.next() == Some(name)).then(|| words.next()?.parse().ok())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_linux_says() {
        let text = "MemTotal:       24576000 kB\nMemFree:  1 kB\nMemAvailable:   20480000 kB\n";
        assert_eq!(field(text, "MemAvailable:"), Some(20_480_000));
        assert_eq!(field("anon 4096\nanon_thp 0\n", "anon"), Some(4096));
        assert_eq!(field("MemTotal: 1 kB\n", "MemAvailable:"), None);
    }
}
