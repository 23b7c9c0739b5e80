//! Set-up, start, test: `cargo xtask`.
//!
//! It compiles before everything else, so it has few dependencies, and of our crates knows `metaclaw-fetch` alone.

mod agents;
mod apt;
mod bare_roots;
mod bench;
mod bubblewrap;
mod cargo;
mod chromium;
mod circles;
mod clients;
mod dist;
mod docs;
mod files;
mod fuzz;
mod golden;
mod libtorch;
mod lint;
mod model;
mod npm;
mod places;
mod report;
mod screenshots;
mod setup;
mod start;
mod test;
mod tools;
mod upstream;
mod vllm;
mod wall;
mod wheel;
mod wired;

use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::places::Places;

const USAGE: &str = include_str!("usage.txt");

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let command = args.next().unwrap_or_else(|| "help".to_owned());
    match run(&command, &args.collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask {command}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: &str, args: &[String]) -> Result<()> {
    if matches!(command, "help" | "-h" | "--help") {
        print!("{USAGE}");
        return Ok(());
    }
    let mut with_arguments =
        "setup start test dist bare-roots laptop bench soak fuzz gpu docs".split(' ');
    let takes_arguments = with_arguments.any(|name| name == command);
    if let (false, Some(stray)) = (takes_arguments, args.first()) {
        bail!("takes no arguments, was given `{stray}`\n\n{USAGE}");
    }
    let places = Places::find()?;
    match command {
        "setup" => setup::run(&places, args),
        "start" => start::run(&places, args),
        "test" => test::run(&places, args),
        "dist" => dist::run(&places, args),
        "bare-roots" => bare_roots::run(&places, args),
        "clients" => setup::clients(&places),
        "agents" => wired::run(&places),
        "laptop" => bench::laptop(&places, args),
        "bench" => bench::run(&places, args),
        "soak" => bench::soak(&places, args),
        "fuzz" => fuzz::run(&places, args),
        "golden" => golden::run(&places),
        "gpu" => bench::gpu(&places, args),
        "screenshots" => screenshots::run(&places),
        "circles" => circles::run(&places),
        "wall" => wall::run(&places),
        "fmt" => cargo::fmt(&places),
        "lint" => lint::run(&places),
        "doc" => cargo::doc(&places),
        "docs" => docs::run(&places, args),
        other => bail!("no such command: `{other}`\n\n{USAGE}"),
    }
}
