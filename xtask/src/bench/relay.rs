//! `cargo xtask bench relay` compares the proxy with nginx and LiteLLM.
//!
//! nginx is the system's, or Debian's package unpacked into the cache folder; LiteLLM is in a virtual environment
//! there. A program that cannot be installed is left out, with a note.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use metaclaw_fetch::{command, pip, writing};

use super::program::{PROXY, build, program, quick_or};
use crate::files;
use crate::places::Places;
use crate::report::{Stage, StageReport};

/// Newer releases may be slower or faster, but the table compares with this one.
const LITELLM: &str = "litellm[proxy]==1.106.2";

/// Makes a release build, prepares the peers, and measures; arguments go to the bench.
pub(crate) fn run(places: &Places, args: &[String]) -> Result<()> {
    let mut report = StageReport::default();
    let (nginx, litellm) = {
        let _lock = places.lock()?;
        let nginx = report.stage("nginx", |stage| Ok(or_note(stage, nginx(places))))?;
        let litellm = report.stage("LiteLLM", |stage| {
            LITELLM.clone_into(&mut stage.note);
            Ok(or_note(stage, litellm(places)))
        })?;
        (nginx, litellm)
    };
    report.stage("build", |_| build(places, &[PROXY, &["relay"]].concat()))?;
    report.print();
    let mut bench = program(places, "relay", &quick_or("relay", args), args);
    let variables = ["METACLAW_BENCH_NGINX", "METACLAW_BENCH_LITELLM"];
    for (variable, peer) in variables.into_iter().zip([nginx, litellm]) {
        match peer {
            Some(peer) => bench.env(variable, peer),
            None => bench.env_remove(variable),
        };
    }
    command::run(&mut bench)
}

/// If a peer cannot be installed, the others are still measured.
fn or_note(stage: &mut Stage, found: Result<PathBuf>) -> Option<PathBuf> {
    match found {
        Ok(program) => Some(program),
        Err(error) => {
            stage.note = format!("left out: {error:#}");
            None
        }
    }
}

/// Returns the nginx of this machine, else that of Debian's package without installing it.
fn nginx(places: &Places) -> Result<PathBuf> {
    let folder = places.cache.join("nginx");
    let unpacked = folder.join("usr/sbin/nginx");
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Debian's folder for servers is not in a user's PATH.
    let folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    let named = folders.map(|folder| folder.join("nginx"));
    let mut programs = named.chain([unpacked.clone()]);
    if let Some(found) = programs.find(|program| program.exists()) {
        return runs(found);
    }
    let advice = "nginx is not here and could not be fetched (Debian, Ubuntu: apt install nginx)";
    unpack_debian("nginx", &folder).context(advice)?;
    runs(unpacked).context(advice)
}

fn runs(nginx: PathBuf) -> Result<PathBuf> {
    let version = command::attempt(Command::new(&nginx).arg("-v"))?;
    let (shown, why) = (nginx.display(), String::from_utf8_lossy(&version.stderr));
    ensure!(
        version.status.success(),
        "{shown} does not run: {}",
        why.trim()
    );
    Ok(nginx)
}

/// Downloads a package with apt, which checks its signature, and unpacks it; this needs no root.
fn unpack_debian(package: &str, folder: &Path) -> Result<()> {
    writing(fs::create_dir_all(folder), folder)?;
    let mut apt = Command::new("apt-get");
    command::output(apt.args(["download", package]).current_dir(folder))?;
    let is_package = |path: &PathBuf| path.extension().is_some_and(|end| end == "deb");
    let archive = files::list(folder)?.into_iter().find(is_package);
    let archive = archive.context("apt-get downloaded nothing")?;
    command::output(Command::new("dpkg-deb").arg("-x").arg(&archive).arg(folder))?;
    writing(fs::remove_file(&archive), &archive)
}

fn litellm(places: &Places) -> Result<PathBuf> {
    let python = pip::environment(&places.cache.join("litellm"), &[LITELLM])?;
    Ok(python.with_file_name("litellm"))
}
