//! Checks whether the recorded figures keep the promises.

use metaclaw_tests::bench::median;
use serde_json::{Value, json};

/// The allowed size at the end, relative to the mark.
const MAX_MEMORY: f64 = 1.05;
/// The allowed disk use relative to that after the sixth checkpoint, because names and numbers in files vary in length.
const MAX_DISK: f64 = 1.01;
const SIXTH: usize = 6;
/// The mark in minutes; in a soak shorter than three times that, it is a third of the duration.
const MARK: f64 = 10.0;
/// The number of samples around a moment, whose median is used: one every five seconds for a minute.
const AROUND: usize = 12;

/// Returns the figures, and `is_kept`.
pub fn judge(journal: &[Value], minutes: f64, ended: &str) -> Value {
    let of = |what: &str| -> Vec<&Value> {
        let found = journal.iter().filter(|line| line["what"] == what);
        found.collect()
    };
    let samples = of("sample");
    let mark_s = MARK.min(minutes / 3.0) * 60.0;
    let at = samples.partition_point(|sample| sample["seconds"].as_f64() < Some(mark_s));
    let around = AROUND.min(samples.len() / 6).max(1);
    let at_mark = &samples[at.min(samples.len())..(at + around).min(samples.len())];
    let at_end = &samples[samples.len().saturating_sub(around)..];
    let (mark, end) = (median_rss(at_mark), median_rss(at_end));
    let memory = end / mark;
    let disk: Vec<u64> = of("checkpoint")
        .iter()
        .filter_map(|saved| saved["value"]["disk_bytes"].as_u64())
        .collect();
    let sixth = disk.get(SIXTH - 1).copied();
    let most = disk.iter().skip(SIXTH - 1).max().copied();
    let growth = sixth
        .zip(most)
        .map(|(sixth, most)| most as f64 / sixth as f64);
    let lost = lost_threads(at_mark.first(), at_end.last());
    let failed = of("failed").len();
    let enough = disk.len() > SIXTH;
    let memory_is_kept = memory <= MAX_MEMORY;
    let disk_is_kept = enough && growth.is_some_and(|growth| growth <= MAX_DISK);
    json!({
        "minutes": minutes,
        "memory": {"mark_s": mark_s, "mark_mib": mark / 1024.0, "end_mib": end / 1024.0, "end_by_mark": memory,
            "at_most": MAX_MEMORY, "is_kept": memory_is_kept},
        "disk": {"checkpoints": disk.len(), "sixth_bytes": sixth, "most_since_bytes": most, "most_by_sixth": growth,
            "at_most": MAX_DISK, "is_kept": disk_is_kept},
        "threads": {"lost": lost, "at_mark": at_mark.first().map(|sample| &sample["value"]["threads"]),
            "at_end": at_end.last().map(|sample| &sample["value"]["threads"]), "is_kept": lost.is_empty()},
        "failed": failed,
        "ended": if ended.is_empty() { "by itself, when it was told to" } else { ended },
        "counts": of("counts").last().map(|counts| &counts["value"]),
        "is_kept": memory_is_kept && disk_is_kept && lost.is_empty() && failed == 0 && ended.is_empty(),
    })
}

fn median_rss(samples: &[&Value]) -> f64 {
    let rss = samples
        .iter()
        .filter_map(|sample| sample["value"]["rss_kib"].as_f64());
    median(rss)
}

/// Returns names that fewer threads have than at the mark; threads of the pool, which come and go with the work, share
/// a name with permanent ones, so only their presence counts.
fn lost_threads(mark: Option<&&Value>, end: Option<&&Value>) -> Vec<String> {
    let threads = |sample: Option<&&Value>| sample.map(|sample| sample["value"]["threads"].clone());
    let (mark, end) = (threads(mark), threads(end));
    let names = mark
        .iter()
        .filter_map(Value::as_object)
        .flat_map(serde_json::Map::keys);
    let there = |name: &&String| {
        end.as_ref()
            .is_some_and(|threads| threads[name.as_str()].as_u64() > Some(0))
    };
    names.filter(|name| !there(name)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn journal(rss: impl Fn(usize) -> u64, disk: impl Fn(usize) -> u64) -> Vec<Value> {
        let samples = (0..120).map(|i| {
            json!({"seconds": i * 5, "what": "sample", "value": {"rss_kib": rss(i), "threads": {"engine": 1}}})
        });
        let disk = (0..12).map(
            |i| json!({"seconds": i * 50, "what": "checkpoint", "value": {"disk_bytes": disk(i)}}),
        );
        samples.chain(disk).collect()
    }

    #[test]
    fn growth_is_told() {
        let flat = journal(
            |i| 1000 - u64::from(i < 5) * 300,
            |i| 10_000 * i.min(5) as u64,
        );
        assert_eq!(judge(&flat, 10.0, "")["is_kept"], true);
        assert_eq!(judge(&flat, 10.0, "it had to be killed")["is_kept"], false);
        let growing = judge(
            &journal(|i| 1000 + i as u64, |i| 10_000 * i.min(5) as u64),
            10.0,
            "",
        );
        assert_eq!(
            (&growing["memory"]["is_kept"], &growing["disk"]["is_kept"]),
            (&json!(false), &json!(true))
        );
        let hoarding = judge(&journal(|_| 1000, |i| 10_000 * i as u64), 10.0, "");
        assert_eq!(
            (&hoarding["memory"]["is_kept"], &hoarding["disk"]["is_kept"]),
            (&json!(true), &json!(false))
        );
    }

    #[test]
    fn a_thread_that_is_gone_is_named() {
        let mut told = journal(|_| 1000, |_| 1);
        if let Some(last) = told.get_mut(119) {
            last["value"]["threads"] = json!({"http": 1});
        }
        let result = judge(&told, 10.0, "");
        assert_eq!(
            (&result["threads"]["lost"], &result["is_kept"]),
            (&json!(["engine"]), &json!(false))
        );
    }
}
