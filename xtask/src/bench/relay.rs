//! `cargo xtask bench relay` compares the proxy with nginx, which is the system's, or Debian's package unpacked into the
//! cache folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use metaclaw_fetch::{command, writing};

use super::program::{PROXY, build, program, quick_or};
use crate::files;
use crate::places::Places;
use crate::report::StageReport;

/// Makes a release build, prepares nginx, and measures; arguments go to the bench. Without nginx, the others are still
/// measured.
pub(crate) fn run(places: &Places, args: &[String]) -> Result<()> {
    let mut report = StageReport::default();
    let nginx = report.stage("nginx", |stage| {
        let _lock = places.lock()?;
        let found = nginx(places);
        if let Err(error) = &found {
            stage.note = format!("left out: {error:#}");
        }
        Ok(found.ok())
    })?;
    report.stage("build", |_| build(places, &[PROXY, &["relay"]].concat()))?;
    report.print();
    let mut bench = program(places, "relay", &quick_or("relay", args), args);
    match nginx {
        Some(nginx) => bench.env("METACLAW_BENCH_NGINX", nginx),
        None => bench.env_remove("METACLAW_BENCH_NGINX"),
    };
    command::run(&mut bench)
}

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
