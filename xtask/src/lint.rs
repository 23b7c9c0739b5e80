//! Checks of the code that do not run it.

use anyhow::{Result, bail};
use metaclaw_fetch::command;

use crate::cargo::cargo;
use crate::circles;
use crate::docs;
use crate::places::Places;
use crate::tools;
use crate::wall;

type LintCheck = (&'static str, fn(&Places) -> Result<()>);

/// All checks, the quickest first.
const CHECKS: [LintCheck; 6] = [
    ("circles of files", circles::run),
    ("imports between crates", wall::run),
    ("commands of the pages", docs::check),
    ("unused dependencies", unused_dependencies),
    (
        "licences, banned crates and sources",
        forbidden_dependencies,
    ),
    ("clippy with every feature", clippy_all_features),
];

/// Runs all checks, also after one has failed.
///
/// # Errors
/// The names of the checks that failed. Their findings are printed before.
pub(crate) fn run(places: &Places) -> Result<()> {
    let mut failed = Vec::new();
    for (name, check) in CHECKS {
        if let Err(error) = check(places) {
            eprintln!("{name}: {error:#}\n");
            failed.push(name);
        }
    }
    if !failed.is_empty() {
        bail!("failed: {}", failed.join("; "));
    }
    Ok(())
}

/// Runs clippy on `metaclaw` with its default features. The tests are built with every feature, so they do not check this.
pub(crate) fn default_features(places: &Places) -> Result<()> {
    clippy(places, &["--package", "metaclaw", "--no-deps"])
}

fn unused_dependencies(places: &Places) -> Result<()> {
    command::run(&mut tools::MACHETE.command(places, &["--skip-target-dir"])?)
}

fn forbidden_dependencies(places: &Places) -> Result<()> {
    let forbidden = ["check", "licenses", "bans", "sources"];
    command::run(&mut tools::DENY.command(places, &forbidden)?)
}

fn clippy_all_features(places: &Places) -> Result<()> {
    let all = ["--workspace", "--all-targets", "--all-features"];
    clippy(places, &all)
}

fn clippy(places: &Places, of: &[&str]) -> Result<()> {
    let args = [&["clippy"], of, &["--", "-D", "warnings"]].concat();
    command::run(&mut cargo(places, &args))
}
