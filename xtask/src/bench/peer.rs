//! `cargo xtask bench tinker-peer` runs the learning loop with a SkyRL server from the package index.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use metaclaw_fetch::{command, pip};

use super::program::{build, program};
use crate::places::Places;
use crate::report::StageReport;

/// SkyRL with JAX. Its own requirements allow any release of PyTorch, and the newest is not tested.
const PACKAGES: [&str; 4] = [
    "skyrl[jax,tinker]==0.3.0",
    "tinker==0.24.1",
    "torch==2.11.0",
    "uv",
];
/// The Python versions that SkyRL supports, the newest last. Newer ones are not tested.
const PYTHONS: [&str; 2] = ["python3.12", "python3.13"];

/// Installs, builds and runs; `--venv PATH` is an existing installation, the other arguments go to the bench.
pub(crate) fn run(places: &Places, args: &[String]) -> Result<()> {
    let mut report = StageReport::default();
    let model = crate::setup::prepare(places, &mut report)?;
    let (venv, args) = venv(args)?;
    let venv = match venv {
        Some(venv) => venv,
        None => report.stage("SkyRL", |stage| {
            stage.note = PACKAGES.join(", ");
            let python = python()?;
            let _lock = places.lock()?;
            let folder = places.cache.join("skyrl");
            pip::environment_by(&python, &folder, &PACKAGES)?;
            Ok(folder)
        })?,
    };
    report.stage("build", |_| {
        let packages = ["metaclaw", "metaclaw-trainer", "metaclaw-tests"];
        let programs = [
            "metaclaw",
            "metaclaw-trainer",
            "metaclaw-trainer-engine",
            "tinker-peer",
        ];
        build(places, &packages, &programs)
    })?;
    report.print();
    let mut bench = program(places, "tinker-peer", "tinker-peer", &args);
    bench
        .arg("--venv")
        .arg(venv)
        .env("METACLAW_TEST_MODEL", model);
    command::run(&mut bench)
}

/// The installation that the arguments name, and the remaining arguments.
fn venv(args: &[String]) -> Result<(Option<PathBuf>, Vec<String>)> {
    let mut args = args.to_vec();
    let Some(at) = args.iter().position(|it| it == "--venv") else {
        return Ok((None, args));
    };
    let named: Vec<String> = args.drain(at..args.len().min(at + 2)).skip(1).collect();
    let venv = named.first().context("--venv needs a folder")?;
    let venv = Path::new(venv).to_owned();
    let uv = venv.join("bin").join("uv");
    if !uv.exists() {
        bail!(
            "--venv {}: there is no bin/uv; install into it: {}",
            venv.display(),
            PACKAGES.join(" ")
        );
    }
    Ok((Some(venv), args))
}

/// Finds a Python that SkyRL supports: by its name, or among pyenv's.
fn python() -> Result<PathBuf> {
    for name in PYTHONS {
        // pyenv may have a shim without the Python behind it.
        let mut ask = Command::new(name);
        ask.args(["-c", "import sys; print(sys.executable)"]);
        if let Ok(said) = command::output(&mut ask) {
            return Ok(PathBuf::from(said.trim()));
        }
    }
    for name in PYTHONS {
        let version = name.trim_start_matches("python");
        let mut ask = Command::new("pyenv");
        if let Ok(said) = command::output(ask.args(["prefix", version])) {
            return Ok(Path::new(said.trim()).join("bin").join(name));
        }
    }
    bail!(
        "SkyRL 0.3.0 needs Python 3.12 or 3.13, and neither is on PATH or among pyenv's: install one (Debian, Ubuntu: apt install python3.12 python3.12-venv; pyenv: pyenv install 3.12), or name an installation of SkyRL by --venv PATH"
    )
}
