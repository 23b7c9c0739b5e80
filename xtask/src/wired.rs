//! `cargo xtask agents`: wires every agent that can be installed, lets it call a tool through the proxy, and restores it.

use anyhow::Result;
use metaclaw_fetch::command;

use crate::cargo::cargo_with_clippy;
use crate::places::Places;
use crate::report::StageReport;
use crate::{agents, clients};

pub(crate) fn run(places: &Places) -> Result<()> {
    let mut report = StageReport::default();
    let lock = places.lock()?;
    let mut variables = clients::all(places, &mut report)?;
    let more = report.stage("more agents", |stage| {
        clients::agents(places, agents::MORE, stage)
    })?;
    drop(lock);
    variables.extend(more);
    variables.push(("METACLAW_TEST_BIN_DIR", places.target.join("debug")));
    report.stage("build", |_| {
        let args = "build -p metaclaw -p metaclaw-tests --all-targets";
        command::run(cargo_with_clippy(places, &[]).args(args.split(' ')))
    })?;
    report.print();
    let test = "test -p metaclaw-tests --test it";
    let only = "-- --ignored --nocapture --test-threads=1 agents::wired";
    let args = test.split(' ').chain(only.split(' '));
    command::run(cargo_with_clippy(places, &[]).args(args).envs(variables))
}
