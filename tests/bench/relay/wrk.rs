//! `--by-wrk`: measures the same cells with wrk as an independent load generator: Debian's package, one thread.
//!
//! It checks the status of a reply and not its bytes, and does not report the first byte. Of its times, the bench gets
//! a hundred quantiles.

use std::{fs, path::Path, time::Duration};

use anyhow::{Context as _, Result, ensure};
use tokio::process::Command;

use crate::{
    load::{Load, Outcome},
    request,
};

const SCRIPT: &str = include_str!("wrk.lua");

/// Runs wrk for the time of the measurement.
///
/// # Errors
/// Returns an error if it does not run, or reports nothing.
pub async fn run(wrk: &Path, load: &Load) -> Result<Outcome> {
    let folder = tempfile::tempdir()?;
    let (script, body) = (folder.path().join("wrk.lua"), folder.path().join("body"));
    fs::write(&script, SCRIPT)?;
    fs::write(&body, request::body(load.workload.size, load.workload.kind))?;
    let n_connections = load.workload.connections;
    let seconds = load.to.saturating_duration_since(load.from).as_secs();
    ensure!(seconds > 0, "wrk runs for whole seconds: --seconds 5");
    let ran = Command::new(wrk)
        .args([
            "--threads",
            "1",
            "--connections",
            &n_connections.to_string(),
        ])
        .args(["--duration", &format!("{seconds}s"), "--script"])
        .arg(&script)
        .arg(format!("http://{}", load.target))
        .env("WRK_BODY", &body)
        .env(
            "WRK_RUN",
            format!("{:04x}", request::next_number() & 0xffff),
        )
        .env("WRK_CONNECTIONS", n_connections.to_string())
        .kill_on_drop(true)
        .output()
        .await
        .with_context(|| format!("{} does not run", wrk.display()))?;
    let told = String::from_utf8_lossy(&ran.stdout);
    let outcome = told.lines().find_map(|line| line.strip_prefix("OUTCOME "));
    let outcome = outcome.and_then(read);
    outcome.with_context(|| format!("wrk: {told}{}", String::from_utf8_lossy(&ran.stderr)))
}

/// Returns the number of replies, their total time in microseconds, the number of failures, and the quantiles of their
/// times.
fn read(line: &str) -> Option<Outcome> {
    let numbers = line.split(' ').map(|it| it.parse().ok());
    let numbers: Vec<u64> = numbers.collect::<Option<_>>()?;
    let (&[n_replies, _, n_failed], times) = numbers.split_first_chunk()?;
    let n_failed = usize::try_from(n_failed).ok()?;
    let n_well = usize::try_from(n_replies).ok()?.saturating_sub(n_failed);
    let failed = (n_failed > 0).then(|| format!("wrk tells of {n_failed}"));
    Some(Outcome {
        n_within: n_well,
        n_well,
        n_failed,
        failures: failed.into_iter().collect(),
        totals: times.iter().map(|us| Duration::from_micros(*us)).collect(),
        ..Outcome::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_wrk_tells_is_read() {
        let outcome = read("1000 5000000 2 100 200").unwrap();
        assert_eq!((outcome.n_well, outcome.n_failed), (998, 2));
        assert_eq!(outcome.totals[1], Duration::from_micros(200));
        assert!(read("1000 x").is_none() && read("7").is_none());
    }
}
