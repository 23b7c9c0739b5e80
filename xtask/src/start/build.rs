//! Builds the programs, and shows how far the build is.

use std::collections::HashSet;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use metaclaw_fetch::command;
use serde_json::Value;

use crate::cargo::cargo;
use crate::places::Places;

const PACKAGES: [&str; 4] = ["-p", "metaclaw", "-p", "metaclaw-trainer"];
/// The work for one of our crates, in crates of others: 10 s of CPU beside 1 s.
const OWN_WEIGHT: u64 = 10;
/// Without a terminal, a line is printed after each of these parts of the work.
const LINES: u64 = 10;

struct BuildProgress {
    bar: ProgressBar,
    waiting: HashSet<String>,
    n_crates: usize,
    n_lines: u64,
}

pub(super) fn build_release(places: &Places) -> Result<()> {
    let mut progress = BuildProgress::new(places)?;
    let mut build = cargo(places, &["build", "--release", "--quiet"]);
    build
        .args(PACKAGES)
        .arg("--message-format=json-render-diagnostics");
    build.stdout(Stdio::piped());
    let mut child = build.spawn().context("cannot start cargo")?;
    let lines = child.stdout.take().map(|out| BufReader::new(out).lines());
    for line in lines.into_iter().flatten() {
        progress.read(&line.context("cannot read what cargo prints")?);
    }
    let status = child.wait().context("cannot wait for cargo")?;
    progress.bar.finish_and_clear();
    if !status.success() {
        bail!("`cargo build --release` failed ({status})");
    }
    Ok(())
}

// === impl BuildProgress ===

impl BuildProgress {
    fn new(places: &Places) -> Result<Self> {
        let mut tree = cargo(places, &["tree", "--edges=normal,build", "--prefix=none"]);
        let tree = command::output(tree.args(PACKAGES).arg("--format={p}"))?;
        let waiting: HashSet<String> = tree.lines().filter_map(package).collect();
        let bar = ProgressBar::new(waiting.iter().map(|name| work(name)).sum());
        let style = ProgressStyle::with_template("{elapsed} {wide_bar} {msg}, about {eta} more");
        bar.set_style(style.context("the template of the progress bar")?);
        Ok(Self {
            n_crates: waiting.len(),
            bar,
            waiting,
            n_lines: 0,
        })
    }

    fn read(&mut self, line: &str) {
        let message: Value = serde_json::from_str(line).unwrap_or_default();
        let is_crate = message["reason"] == "compiler-artifact"
            && message["target"]["kind"][0] != "custom-build";
        let name = message["target"]["name"].as_str().unwrap_or_default();
        let id = message["package_id"].as_str().unwrap_or_default();
        // A library's name has underscores, so the package's is read from its id: ..#name@version, or ../folder#version.
        let named = id.rsplit_once('#').and_then(|(_, end)| end.split_once('@'));
        let name = named.map_or_else(|| name.replace('_', "-"), |(name, _)| name.to_owned());
        if !is_crate || !self.waiting.remove(&name) {
            return;
        }
        self.bar.inc(work(&name));
        let n_done = self.n_crates - self.waiting.len();
        let done = format!("{n_done} of {} crates", self.n_crates);
        let tenths = self.bar.position() * LINES / self.bar.length().unwrap_or(1).max(1);
        if self.bar.is_hidden() && tenths > self.n_lines {
            self.n_lines = tenths;
            let (elapsed, more) = (self.bar.elapsed().as_secs(), self.bar.eta().as_secs());
            println!("{done} after {elapsed} s, about {more} s more");
        }
        self.bar.set_message(done);
    }
}

/// `serde v1.0.0 (proc-macro)`: returns the name.
fn package(line: &str) -> Option<String> {
    Some(line.split_once(" v")?.0.to_owned())
}

fn work(name: &str) -> u64 {
    let is_ours = name.starts_with("metaclaw");
    if is_ours { OWN_WEIGHT } else { 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_crate_counts_once_with_its_work() {
        let waiting = ["metaclaw-turns", "serde", "torch-sys"].map(str::to_owned);
        let mut progress = BuildProgress {
            bar: ProgressBar::hidden(),
            n_crates: waiting.len(),
            waiting: waiting.into(),
            n_lines: 0,
        };
        progress.bar.set_length(12);
        let done = |id: &str, name: &str, kind: &str| {
            serde_json::json!({"reason": "compiler-artifact", "package_id": id,
                "target": {"name": name, "kind": [kind]}})
            .to_string()
        };
        let script = done(
            "registry+x#torch-sys@0.1.0",
            "build-script-build",
            "custom-build",
        );
        progress.read(&script);
        assert_eq!(progress.bar.position(), 0);
        progress.read(&done("registry+x#serde@1.0.0", "serde", "lib"));
        progress.read(&done("registry+x#serde@1.0.0", "serde", "lib"));
        progress.read("no JSON");
        assert_eq!(progress.bar.position(), 1);
        let ours = "path+file:///x/proxy/turns#metaclaw-turns@0.1.0";
        progress.read(&done(ours, "metaclaw_turns", "lib"));
        assert_eq!(progress.bar.position(), 11);
        let name = package("serde v1.0.0 (proc-macro)");
        assert_eq!(name.as_deref(), Some("serde"));
    }
}
