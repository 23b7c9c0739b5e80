//! `cargo xtask setup` and `clients`: downloads only.

use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::places::Places;
use crate::report::StageReport;
use crate::{clients, libtorch, model};

/// Fetches the files that every build and run need, and prints their paths. `--cuda` chooses a libtorch that uses GPUs.
pub(crate) fn run(places: &Places, args: &[String]) -> Result<()> {
    let mut report = StageReport::default();
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

/// Fetches the files that every build and run need: libtorch behind `.libtorch`, and the demo model, whose path is
/// returned.
pub(crate) fn prepare(places: &Places, report: &mut StageReport) -> Result<PathBuf> {
    let _lock = places.lock()?;
    report.stage("libtorch", |stage| libtorch::ensure(places, stage))?;
    report.stage("demo model", |stage| model::ensure(places, stage))
}

pub(crate) fn clients(places: &Places) -> Result<()> {
    let mut report = StageReport::default();
    let _lock = places.lock()?;
    let variables = clients::all(places, &mut report)?;
    report.print();
    for (name, path) in variables {
        println!("{name}={}", path.display());
    }
    Ok(())
}
