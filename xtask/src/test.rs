//! `cargo xtask test`: everything that a change must pass, on a machine that has nothing yet.
//!
//! One profile, so that dependencies are compiled twice at most: as metadata for clippy and rustdoc, as code for
//! the tests and the two binaries that the end-to-end tests run.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail};

use crate::cargo::{self, cargo, has_nextest};
use crate::clients::{self, Clients};
use crate::command;
use crate::lint;
use crate::places::Places;
use crate::report::Report;

/// What is off by default, and tested all the same; clippy sees the default.
const ALL_FEATURES: &str = "metaclaw/otel";

/// Set-up, then the checks, cheapest first; the tests come last, so that their summary is the last line.
pub(crate) fn run(places: &Places) -> Result<()> {
    let mut report = Report::default();
    // Needs nothing fetched and nothing built.
    command::run(&mut cargo(places, &["fmt", "--all", "--check"]))?;
    let model = crate::setup::prepare(places, &mut report)?;
    let clients = {
        let _lock = places.lock()?;
        clients::ensure(places, &mut report)?
    };
    report.stage("circles, clippy", |_| lint::run(places))?;
    report.stage("documentation", |_| cargo::doc(places))?;
    // Binaries and tests by one call: cargo unites the features of what it is asked to build together, so that
    // calls for parts would compile shared dependencies again.
    report.stage("build", |_| {
        command::run(&mut cargo(
            places,
            &[
                "build",
                "--workspace",
                "--all-targets",
                "--features",
                ALL_FEATURES,
            ],
        ))
    })?;
    report.stage("doc tests", |_| {
        // With the same features, or what stands on them would be compiled again.
        let args = ["test", "--workspace", "--doc", "--features", ALL_FEATURES];
        command::run(&mut cargo(places, &args))
    })?;
    let variables = environment(places, &model, &clients);
    report.print();
    if has_nextest(places) {
        let args = [
            "nextest",
            "run",
            "--workspace",
            "--no-fail-fast",
            // What plain `cargo test` leaves out for want of what was fetched here.
            "--run-ignored=all",
            "--features",
            ALL_FEATURES,
        ];
        return command::run(cargo(places, &args).envs(variables));
    }
    plain_tests(places, &variables)
}

/// By cargo's own runner: first what needs nothing, then, one test at a time, what has the machine for itself.
fn plain_tests(places: &Places, variables: &[(&str, PathBuf)]) -> Result<()> {
    let mut counts = (0, 0);
    let mut failures = Vec::new();
    for args in [&[][..], &["--ignored", "--test-threads=1"]] {
        if let Err(error) = plain_round(places, variables, args, &mut counts) {
            failures.push(error);
        }
    }
    println!("{} passed, {} failed", counts.0, counts.1);
    failures.pop().map_or(Ok(()), Err)
}

/// The runner prints a summary for each binary, so that the sum is left to us.
fn plain_round(
    places: &Places,
    variables: &[(&str, PathBuf)],
    args: &[&str],
    counts: &mut (u64, u64),
) -> Result<()> {
    let cargo_args = [
        "test",
        "--workspace",
        "--all-targets",
        "--no-fail-fast",
        "--features",
        ALL_FEATURES,
        "--",
    ];
    let mut tests = cargo(places, &[&cargo_args, args].concat());
    tests.envs(variables.iter().cloned()).stdout(Stdio::piped());
    let mut child = tests.spawn().context("cannot start cargo")?;
    for line in child
        .stdout
        .take()
        .into_iter()
        .flat_map(|out| BufReader::new(out).lines())
    {
        let line = line.context("cannot read what the tests print")?;
        println!("{line}");
        if let Some((passed, failed)) = parse_summary(&line) {
            *counts = (counts.0 + passed, counts.1 + failed);
        }
    }
    let status = child.wait().context("cannot wait for the tests")?;
    if !status.success() {
        bail!("the tests failed ({status})");
    }
    Ok(())
}

/// "test result: ok. 3 passed; 0 failed; …": the two numbers.
fn parse_summary(line: &str) -> Option<(u64, u64)> {
    let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let mut parts = counts.split("; ");
    let passed = parts.next()?.strip_suffix(" passed")?.parse().ok()?;
    let failed = parts.next()?.strip_suffix(" failed")?.parse().ok()?;
    Some((passed, failed))
}

fn environment(places: &Places, model: &Path, clients: &Clients) -> Vec<(&'static str, PathBuf)> {
    let mut variables = vec![
        ("METACLAW_CACHE", places.cache.clone()),
        ("METACLAW_TEST_BIN_DIR", places.target.join("debug")),
        ("METACLAW_TEST_MODEL", model.to_owned()),
    ];
    variables.extend(
        clients
            .environment()
            .into_iter()
            .map(|(name, path)| (name, path.to_owned())),
    );
    variables
}

#[cfg(test)]
mod tests {
    use super::parse_summary;

    #[test]
    fn reads_the_summary_of_a_test_binary() {
        let line =
            "test result: FAILED. 23 passed; 3 failed; 0 ignored; 0 measured; 0 filtered out";
        assert_eq!(parse_summary(line), Some((23, 3)));
        assert_eq!(parse_summary("test a::b ... ok"), None);
    }
}
