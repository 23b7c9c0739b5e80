//! What is heard of an owner's preferences, and which of them a request gets, by rules alone and without a model.
//!
//! Each message is the first of an owner of its own, and goes the way that the proxy takes: what is heard becomes a lesson
//! of a library, facts become memories of a store, and a request recalls from that store.

mod hearing;
mod report;
mod restraint;

use std::path::PathBuf;

use anyhow::Result;
use clap::Parser;

/// Measures hearing or restraint on our own messages, and on a public benchmark's if its checkout is given.
#[derive(Debug, Parser)]
struct Arguments {
    measure: Measure,
    /// A checkout of PrefEval (hearing) or of RPEval (restraint). Both are for non-commercial use only.
    #[arg(long)]
    data: Option<PathBuf>,
    /// Also prints each message whose result is not the one wished for.
    #[arg(long)]
    list: bool,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Measure {
    Hearing,
    Restraint,
}

fn main() -> Result<()> {
    let Arguments {
        measure,
        data,
        list,
    } = Arguments::parse();
    match measure {
        Measure::Hearing => hearing::run(data.as_deref(), list),
        Measure::Restraint => restraint::run(data.as_deref(), list),
    }
}
