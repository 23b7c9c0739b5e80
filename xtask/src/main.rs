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
mod fuzz;
mod golden;
mod gpu;
mod laptop;
mod libtorch;
mod lint;
mod model;
mod npm;
mod places;
mod report;
mod screenshots;
mod setup;
mod soak;
mod start;
mod test;
mod tools;
mod vllm;
mod wheel;
mod wired;

use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::places::Places;

const USAGE: &str = "\
usage: cargo xtask <command> [arguments]

  start [args]    fetch what is missing, build, and run the proxy with the demo model in a home of its own;
                  arguments go to `metaclaw start` (--port N, --mode M, ..)
  test            fetch what is missing, then what a change must pass before it is pushed: format, clippy, all unit,
                  property, snapshot and doc tests, and an end-to-end test of each main path
  test --all      everything, as it runs at night: documentation and all end-to-end tests as well (3 GB are fetched)

  setup [--cuda]  only fetch: libtorch and the demo model; --cuda takes a libtorch that uses NVIDIA GPUs (PyTorch: 3 GB
                  to fetch, 8 GB of disk)
  dist [proxy|trainer] [--quick]
                  release archives in target/dist: the proxy for old systems, the training server with its libtorch;
                  --quick without the optimising pass over all crates at once
  bare-roots [NAME..]
                  install what `dist` made on Debian systems without a compiler, and relay a first turn there; needs
                  root and debootstrap; transcripts in target/dist
  clients         only fetch: the clients that the end-to-end tests drive (Python packages, OpenClaw,
                  other agents, Chromium)
  agents          wire every agent that can be installed, one tool call through the proxy, and put it back (4 GB more are
                  fetched)
  bench engine    the engine beside transformers and PEFT: CPU, memory, what streams notice (2.8 GB are fetched)
  bench episodes  agents that do tasks: how much better the demo model gets at tool calls and at commands (60 minutes)
  bench learn     scripted owners teach the demo model: what it learns, what it keeps, what passes the gate (90 minutes)
  bench relay     the proxy beside nginx and LiteLLM: requests a second, delays, CPU, memory
  bench size      what the turn log takes on disk beside storing each request whole
  soak [--minutes N]
                  an hour of chat, training and new adapters: memory, disk, threads; goes on where it was interrupted
  fuzz [--minutes N] [TARGET..]
                  look for inputs that break the relay's parsers, 10 minutes a target; goes on where it was stopped
  laptop [args]   the script of 40 conversations that shows the model learn to be brief
  screenshots     take the pictures of the page at /ui in docs/using/gallery anew (Chromium)
  golden          make the golden values of the engine anew (PyTorch and transformers: 60 packages, 2.8 GB)
  gpu [args]      what the engine does on a GPU: golden values, speed, gaps, memory; writes a report (--help)
  circles         list the files of a crate that import each other in a circle
  fmt             format the code
  lint            check for circles of files, unused dependencies and licences, and run clippy
                  with every feature
  doc             the documentation, warnings refused
  docs [--check]  run the commands of README, CONTRIBUTING.md and docs/ in a scratch home; --check only checks that
                  each has an entry in table.rs or elsewhere.rs of xtask/src/docs

Everything that is fetched is kept in one folder: $METACLAW_CACHE, else $XDG_CACHE_HOME/metaclaw, else ~/.cache/metaclaw.";

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
        println!("{USAGE}");
        return Ok(());
    }
    let takes_arguments = matches!(
        command,
        "setup"
            | "start"
            | "test"
            | "dist"
            | "bare-roots"
            | "laptop"
            | "bench"
            | "soak"
            | "fuzz"
            | "gpu"
            | "docs"
    );
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
        "laptop" => laptop::run(&places, args),
        "bench" => bench::run(&places, args),
        "soak" => soak::run(&places, args),
        "fuzz" => fuzz::run(&places, args),
        "golden" => golden::run(&places),
        "gpu" => gpu::run(&places, args),
        "screenshots" => screenshots::run(&places),
        "circles" => circles::run(&places),
        "fmt" => cargo::fmt(&places),
        "lint" => lint::run(&places),
        "doc" => cargo::doc(&places),
        "docs" => docs::run(&places, args),
        other => bail!("no such command: `{other}`\n\n{USAGE}"),
    }
}
