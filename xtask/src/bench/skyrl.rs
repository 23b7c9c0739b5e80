//! `cargo xtask bench tinker-peer` runs the learning loop with a SkyRL server from the package index.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use metaclaw_fetch::{command, pip};

use super::program::{BOTH, prepare, program};
use crate::places::Places;
use crate::report::StageReport;

/// SkyRL with JAX. Its own requirements allow any release of PyTorch, and the newest is not tested.
const PACKAGES: [&str; 4] = [
    "skyrl[jax,tinker]==0.3.0",
    "tinker==0.24.1",
    "torch==2.11.0",
    "uv",
];
/// The Python versions that SkyRL supports. Newer ones are not tested.
const PYTHONS: [&str; 2] = ["3.12", "3.13"];

/// Installs, builds and runs; `--venv PATH` is an existing installation, the other arguments go to the bench.
pub(super) fn run(places: &Places, args: &[String]) -> Result<()> {
    let mut report = StageReport::default();
    let mut args = args.to_vec();
    let venv = if let Some(at) = args.iter().position(|arg| arg == "--venv") {
        let named: Vec<String> = args.drain(at..args.len().min(at + 2)).collect();
        let venv = PathBuf::from(named.get(1).context("--venv needs a folder")?);
        let (shown, packages) = (venv.display(), PACKAGES.join(" "));
        let has_uv = venv.join("bin/uv").exists();
        ensure!(
            has_uv,
            "--venv {shown}: there is no bin/uv; install into it: {packages}"
        );
        venv
    } else {
        report.stage("SkyRL", |stage| {
            stage.note = PACKAGES.join(", ");
            let python = python()?;
            let _lock = places.lock()?;
            let folder = places.cache.join("skyrl");
            pip::environment_with(&python, &folder, &PACKAGES, &[])?;
            Ok(folder)
        })?
    };
    let model = prepare(places, report, &[BOTH, &["tinker-peer"]].concat())?;
    let mut bench = program(places, "tinker-peer", "tinker-peer", &args);
    bench.arg("--venv").arg(venv);
    command::run(bench.env("METACLAW_TEST_MODEL", model))
}

fn python() -> Result<PathBuf> {
    for version in PYTHONS {
        let name = format!("python{version}");
        // pyenv may have a shim without the Python behind it.
        let mut ask = Command::new(&name);
        ask.args(["-c", "import sys; print(sys.executable)"]);
        if let Ok(path) = command::output(&mut ask) {
            return Ok(PathBuf::from(path.trim()));
        }
        if let Ok(prefix) = command::output(Command::new("pyenv").args(["prefix", version])) {
            return Ok(Path::new(prefix.trim()).join("bin").join(name));
        }
    }
    bail!(
        "SkyRL 0.3.0 needs Python 3.12 or 3.13, and neither is on PATH or among pyenv's: install one (Debian, Ubuntu: apt install python3.12 python3.12-venv; pyenv: pyenv install 3.12), or name an installation of SkyRL by --venv PATH"
    )
}
