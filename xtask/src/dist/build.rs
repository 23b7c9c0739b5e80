//! The builds for releases.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use metaclaw_fetch::{command, pip};

use super::binary::Version;
use crate::cargo::cargo;
use crate::places::Places;

/// The C library that the proxy is linked with: that of Debian 10 and of all systems of the last years.
pub(super) const GLIBC: Version = Version(2, 28);
const TARGET: &str = "x86_64-unknown-linux-gnu";
/// A linker and a C compiler that know old C libraries.
const TOOLS: [&str; 2] = ["ziglang==0.17.1", "cargo-zigbuild==0.24.1"];

/// Builds the proxy; returns the program's path.
pub(super) fn proxy(places: &Places, profile: &str) -> Result<PathBuf> {
    let python = pip::environment(&places.cache.join("dist-tools"), &TOOLS)?;
    let tools = python.parent().context("Python lies in no folder")?;
    let target = format!("{TARGET}.{GLIBC}");
    let args = ["zigbuild", "--profile", profile, "--target", &target];
    let mut build = cargo(places, &args);
    build
        .args(["-p", "metaclaw", "--bin", "metaclaw"])
        .args(["--features", "metaclaw/jemalloc"])
        .env("PATH", with_first(tools)?);
    run(&mut build)?;
    Ok(places.target.join(TARGET).join(profile).join("metaclaw"))
}

/// Builds the training server's two programs, which search libtorch only next to themselves; returns their paths.
///
/// It is linked with the C library of this machine, because libtorch uses GCC's C++ library, which zig's cannot
/// replace.
pub(super) fn trainer(places: &Places, profile: &str) -> Result<PathBuf> {
    // It has a folder of its own, so that the same programs linked for this checkout stay as they are.
    let target = places.target.join("portable");
    let mut build = cargo(places, &["build", "--profile", profile]);
    build
        .args(["-p", "metaclaw-trainer", "--bins"])
        .args(["--features", "metaclaw-trainer/portable"])
        .env("CARGO_TARGET_DIR", &target);
    run(&mut build)?;
    Ok(target.join(profile))
}

fn run(build: &mut Command) -> Result<()> {
    command::run(build).context("an archive is made from a build that succeeds")
}

/// Returns `PATH` with one more folder before the others.
fn with_first(folder: &Path) -> Result<std::ffi::OsString> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(folder.to_owned()).chain(std::env::split_paths(&path));
    std::env::join_paths(folders).context("a folder of PATH has a colon in its name")
}
