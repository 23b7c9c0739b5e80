//! `cargo xtask agents`: wires every agent that can be installed, lets it call a tool through the proxy, and restores it.

use anyhow::Result;
use metaclaw_fetch::command;

use crate::cargo::cargo_with_clippy;
use crate::places::Places;
use crate::report::StageReport;
use crate::{agents, clients};

/// Downloads missing agents, builds, and runs the tests.
pub(crate) fn run(places: &Places) -> Result<()> {
    let mut report = StageReport::default();
    let lock = places.lock()?;
    let mut variables = clients::all(places, &mut report)?;
    let folder = places.cache.join("agents");
    let more = report.stage("more agents", |stage| {
        stage.note = agents::names_of_more();
        agents::ensure_more(&folder, &clients::node_folder(places))
    })?;
    drop(lock);
    variables.extend(more);
    variables.push(("METACLAW_TEST_BIN_DIR", places.target.join("debug")));
    report.stage("build", |_| {
        let args = [
            "build",
            "-p",
            "metaclaw",
            "-p",
            "metaclaw-tests",
            "--all-targets",
        ];
        command::run(&mut cargo_with_clippy(places, &args))
    })?;
    report.print();
    let args = [
        "test",
        "-p",
        "metaclaw-tests",
        "--test",
        "it",
        "--",
        "--ignored",
        "--nocapture",
        "--test-threads=1",
        "agents::wired",
    ];
    command::run(cargo_with_clippy(places, &args).envs(variables))
}
