//! What the benches share: medians, what processes cost, and a folder of records with which a stopped bench continues.

use std::{
    fs::{self, OpenOptions},
    io::Write as _,
    path::Path,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

/// A line of JSON for each finished run.
const RECORDS: &str = "runs.jsonl";
/// This is fixed in Linux's user interface on all supported machines.
const TICKS_PER_SECOND: u64 = 100;

/// Makes the folder; `again` empties it. What is in it must have been measured with the same `settings`.
///
/// # Errors
/// Returns an error if its settings differ, or the folder cannot be written.
pub fn open_folder(out: &Path, settings: &Value, again: bool) -> Result<()> {
    if again && out.exists() {
        fs::remove_dir_all(out)?;
    }
    fs::create_dir_all(out)?;
    let file = out.join("settings.json");
    if let Ok(before) = fs::read(&file) {
        let before: Value = serde_json::from_slice(&before)?;
        let shown = out.display();
        ensure!(
            before == *settings,
            "{shown} has runs of another build or with other settings: --again removes them, --out names another \
             folder\n{before}\n{settings}"
        );
    }
    write_whole(&file, settings)
}

/// Reads the records of a folder. A line that was cut when the writer was killed is ignored.
pub fn records<T: DeserializeOwned>(out: &Path) -> Vec<T> {
    let text = fs::read_to_string(out.join(RECORDS)).unwrap_or_default();
    let lines = text.lines().map(serde_json::from_str);
    lines.filter_map(Result::ok).collect()
}

/// Adds a record to those of a folder.
///
/// # Errors
/// Returns an error if the file cannot be written.
pub fn append(out: &Path, record: &impl Serialize) -> Result<()> {
    let file = out.join(RECORDS);
    let line = serde_json::to_string(record)? + "\n";
    let opened = OpenOptions::new().create(true).append(true).open(&file);
    opened
        .and_then(|mut opened| opened.write_all(line.as_bytes()))
        .with_context(|| format!("cannot write {}", file.display()))
}

/// Writes a file of JSON, whole or not at all.
///
/// # Errors
/// Returns an error if the file cannot be written.
pub fn write_whole(file: &Path, value: &impl Serialize) -> Result<()> {
    let half = file.with_extension("half");
    fs::write(&half, serde_json::to_vec_pretty(value)?)
        .and_then(|()| fs::rename(half, file))
        .with_context(|| format!("cannot write {}", file.display()))
}

/// Returns the size and time of a program, which tell one build from another.
///
/// # Errors
/// Returns an error if there is none.
pub fn build(folder: &Path, name: &str) -> Result<String> {
    let file = folder.join(name);
    let about = fs::metadata(&file).with_context(|| format!("no {}", file.display()))?;
    Ok(format!("{} bytes of {:?}", about.len(), about.modified()?))
}

/// Returns the median, or NaN of nothing.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        n if n.is_multiple_of(2) => f64::midpoint(values[middle - 1], values[middle]),
        _ => values[middle],
    }
}

/// Returns the smallest of sorted times that at least this share does not exceed, in milliseconds; 0 of nothing.
pub fn quantile_ms(sorted: &[Duration], share: f64) -> f64 {
    let rank = (share * sorted.len() as f64).ceil().max(1.0);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a small whole number"
    )]
    let index = rank as usize - 1;
    sorted
        .get(index)
        .map_or(0.0, |time| time.as_secs_f64() * 1e3)
}

/// A process and the descendants that it had when it was looked at.
#[derive(Debug, Clone)]
pub struct Tree {
    pids: Vec<u32>,
}

// === impl Tree ===

impl Tree {
    /// Returns this process alone.
    pub fn own() -> Self {
        Self {
            pids: vec![std::process::id()],
        }
    }

    pub fn of(root: u32) -> Self {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let mut others: Vec<_> = pids
            .filter_map(|pid| Some((pid, stat::<u32>(pid, 1)?)))
            .collect();
        let mut tree = vec![root];
        let mut next = 0;
        while let Some(parent) = tree.get(next).copied() {
            let children = others.extract_if(.., |(_, its_parent)| *its_parent == parent);
            tree.extend(children.map(|(pid, _)| pid));
            next += 1;
        }
        Self { pids: tree }
    }

    /// Returns the user and system time of all of them, in steps of 10 ms.
    pub fn cpu(&self) -> Duration {
        // The fields utime and stime of proc(5).
        let ticks = |pid: &u32| Some(stat::<u64>(*pid, 11)? + stat::<u64>(*pid, 12)?);
        from_ticks(self.pids.iter().filter_map(ticks).sum())
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
        let peak = |pid: &u32| status_kib(*pid, "VmHWM:");
        self.pids.iter().filter_map(peak).sum()
    }
}

/// Returns a field of `/proc/PID/status` in KiB, or `None` if the process has ended.
pub fn status_kib(pid: u32, field: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let value = status.lines().find_map(|line| line.strip_prefix(field))?;
    value.split_whitespace().next()?.parse().ok()
}

/// Returns the busy CPU time of the whole machine.
pub fn machine_busy() -> Duration {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let fields = stat.lines().next().unwrap_or_default().split_whitespace();
    // The fields are user, nice, system and interrupts; idle and waiting are left out. The time of guests is already
    // contained in user.
    let busy = fields
        .skip(1)
        .enumerate()
        .filter(|(index, _)| matches!(index, 0..=2 | 5..=7));
    from_ticks(
        busy.filter_map(|(_, ticks)| ticks.parse::<u64>().ok())
            .sum(),
    )
}

fn from_ticks(ticks: u64) -> Duration {
    Duration::from_millis(ticks * 1_000 / TICKS_PER_SECOND)
}

/// Returns a field of `/proc/PID/stat`, counted after the name, which may contain spaces.
fn stat<T: std::str::FromStr>(pid: u32, index: usize) -> Option<T> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(index)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn medians_and_quantiles_are_in_the_middle() {
        assert!((median([3.0, 1.0, 2.0, 10.0]) - 2.5).abs() < 1e-9);
        assert!((median([3.0, 1.0, 2.0]) - 2.0).abs() < 1e-9);
        assert!(median([]).is_nan());
        let times: Vec<Duration> = (1..=200).map(Duration::from_millis).collect();
        for (n, share, expected) in [
            (200, 0.5, 100.0),
            (200, 0.99, 198.0),
            (1, 0.99, 1.0),
            (0, 0.5, 0.0),
        ] {
            assert!((quantile_ms(&times[..n], share) - expected).abs() < 1e-9);
        }
    }

    #[test]
    fn a_folder_keeps_whole_records_of_the_same_settings() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("bench");
        open_folder(&out, &json!({"build": 1}), false).unwrap();
        append(&out, &1).unwrap();
        let mut file = OpenOptions::new()
            .append(true)
            .open(out.join(RECORDS))
            .unwrap();
        file.write_all(b"{\"cut\":").unwrap();
        assert_eq!(records::<u32>(&out), [1]);
        open_folder(&out, &json!({"build": 1}), false).unwrap();
        let refused = open_folder(&out, &json!({"build": 2}), false).unwrap_err();
        assert!(refused.to_string().contains("--again removes them"));
        open_folder(&out, &json!({"build": 2}), true).unwrap();
        assert!(records::<u32>(&out).is_empty());
    }
}
