//! `cargo xtask setup` and `clients`: downloads only.

use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::places::Places;
use crate::report::Report;
use crate::{clients, libtorch, model};

/// Downloads what every build and every run needs, and prints the paths; with `--cuda`, a libtorch that uses GPUs.
pub(crate) fn run(places: &Places, args: &[String]) -> Result<()> {
    let mut report = Report::default();
    match args {
        [] => {}
        [flag] if flag == "--cuda" => {
            let _lock = places.lock()?;
            report.stage("libtorch with CUDA", |stage| {
                libtorch::ensure_cuda(places, stage)
            })?;
        }
        [stray, ..] => bail!("takes --cuda or nothing, was given `{stray}`"),
    }
    let model = prepare(places, &mut report)?;
    report.print();
    println!("libtorch  {}", places.libtorch_link().display());
    println!("model     {}", model.display());
    Ok(())
}

/// Downloads what every build and every run needs: libtorch behind `.libtorch`, and the demo model, whose path is
/// returned.
pub(crate) fn prepare(places: &Places, report: &mut Report) -> Result<PathBuf> {
    let _lock = places.lock()?;
    report.stage("libtorch", |stage| libtorch::ensure(places, stage))?;
    report.stage("demo model", |stage| model::ensure(places, stage))
}

/// Downloads what the end-to-end tests run, and prints the paths.
pub(crate) fn clients(places: &Places) -> Result<()> {
    let mut report = Report::default();
    let _lock = places.lock()?;
    let clients = clients::ensure(places, &mut report)?;
    report.print();
    for (name, path) in clients.environment() {
        println!("{name}={}", path.display());
    }
    Ok(())
}
