//! What is checked of the code without running it.

use anyhow::Result;
use metaclaw_fetch::command;

use crate::cargo::cargo;
use crate::circles;
use crate::places::Places;
use crate::tools;

/// Circles of files, unused dependencies, licences and sources of all crates, and clippy with every feature: the
/// quickest first. Anything found ends it.
pub(crate) fn run(places: &Places) -> Result<()> {
    circles::run(places)?;
    dependencies(places)?;
    let all = ["--workspace", "--all-targets", "--all-features"];
    clippy(places, &all)
}

/// Dependencies that are declared and used by nothing, and what deny.toml forbids.
pub(crate) fn dependencies(places: &Places) -> Result<()> {
    command::run(&mut tools::MACHETE.command(places, &["--skip-target-dir"])?)?;
    let forbidden = ["check", "licenses", "bans", "sources"];
    command::run(&mut tools::DENY.command(places, &forbidden)?)
}

/// Clippy on the program as it is built where nobody names a feature: what the tests are built with has them all.
pub(crate) fn default_features(places: &Places) -> Result<()> {
    clippy(places, &["--package", "metaclaw", "--no-deps"])
}

fn clippy(places: &Places, of: &[&str]) -> Result<()> {
    let args = [&["clippy"], of, &["--", "-D", "warnings"]].concat();
    command::run(&mut cargo(places, &args))
}
