//! `cargo xtask test`: everything that a change must pass, on a machine that has nothing yet.
//!
//! One profile, so that dependencies are compiled twice at most: as metadata for clippy and rustdoc, as code for
//! the tests and the two binaries that the end-to-end tests run.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::cargo::{self, cargo, has_nextest};
use crate::clients::{self, Clients};
use crate::command;
use crate::places::Places;
use crate::report::Report;

/// The crate of the end-to-end tests, which start processes of their own and so run one at a time.
const END_TO_END: &str = "metaclaw-tests";

/// Set-up, then the checks, cheapest first; the tests come last, so that their summary is the last line.
pub(crate) fn run(places: &Places) -> Result<()> {
    let mut report = Report::default();
    // Needs nothing fetched and nothing built.
    command::run(&mut cargo(places, &["fmt", "--all", "--check"]))?;
    let model = crate::prepare(places, &mut report)?;
    let clients = {
        let _lock = places.lock()?;
        clients::ensure(places, &mut report)?
    };
    report.stage("clippy", |_| cargo::lint(places))?;
    report.stage("documentation", |_| cargo::doc(places))?;
    report.stage("binaries", |_| {
        command::run(&mut cargo(
            places,
            &["build", "-p", "metaclaw", "-p", "metaclaw-trainer"],
        ))
    })?;
    report.stage("doc tests", |_| {
        command::run(&mut cargo(places, &["test", "--workspace", "--doc"]))
    })?;
    let variables = environment(places, &model, &clients);
    if has_nextest(places) {
        report.stage("build of tests", |_| {
            command::run(&mut cargo(
                places,
                &["nextest", "run", "--workspace", "--no-run"],
            ))
        })?;
        report.print();
        let args = ["nextest", "run", "--workspace", "--no-fail-fast"];
        return command::run(cargo(places, &args).envs(variables));
    }
    report.stage("tests", |_| plain_tests(places, &variables))?;
    report.print();
    Ok(())
}

/// By cargo's own runner: the end-to-end tests apart, because they must not run side by side.
fn plain_tests(places: &Places, variables: &[(&str, PathBuf)]) -> Result<()> {
    let rooms = [
        "test",
        "--workspace",
        "--exclude",
        END_TO_END,
        "--all-targets",
        "--no-fail-fast",
    ];
    let rooms = command::run(cargo(places, &rooms).envs(variables.iter().cloned()));
    let houses = [
        "test",
        "-p",
        END_TO_END,
        "--all-targets",
        "--no-fail-fast",
        "--",
        "--test-threads=1",
    ];
    let houses = command::run(cargo(places, &houses).envs(variables.iter().cloned()));
    rooms.and(houses)
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
            .map(|(name, path)| (name, path.to_owned())),
    );
    variables
}
