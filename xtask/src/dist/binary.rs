//! Builds the programs of a release, checks them, and makes them small.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use metaclaw_fetch::{command, pip};

use crate::cargo::cargo;
use crate::places::Places;

/// The C library that the proxy is linked with: that of Debian 10 and of all systems of the last years.
pub(super) const GLIBC: Version = Version(2, 28);
const TARGET: &str = "x86_64-unknown-linux-gnu";
/// A linker and a C compiler that know old C libraries.
const TOOLS: [&str; 2] = ["ziglang==0.17.1", "cargo-zigbuild==0.24.1"];

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Version(pub(super) u32, pub(super) u32);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

pub(super) fn build_proxy(places: &Places, profile: &str) -> Result<PathBuf> {
    let python = pip::environment(&places.cache.join("dist-tools"), &TOOLS)?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let tools = python.parent().map(Path::to_owned);
    let folders = tools.into_iter().chain(std::env::split_paths(&path));
    let path = std::env::join_paths(folders).context("a folder of PATH has a colon in its name")?;
    let target = format!("{TARGET}.{GLIBC}");
    let mut build = cargo(places, &["zigbuild", "--profile", profile]);
    build.args(["--target", &target, "-p", "metaclaw", "--bin", "metaclaw"]);
    build.args(["--features", "metaclaw/jemalloc"]);
    command::run(build.env("PATH", path))?;
    Ok(places.target.join(TARGET).join(profile).join("metaclaw"))
}

/// Builds the training server's two programs, which search libtorch only next to themselves; returns their folder.
///
/// They are linked with the C library of this machine, because libtorch uses GCC's C++ library, which zig's cannot
/// replace.
pub(super) fn build_trainer(places: &Places, profile: &str) -> Result<PathBuf> {
    // It has a folder of its own, so that the same programs linked for this checkout stay as they are.
    let target = places.target.join("portable");
    let mut build = cargo(places, &["build", "--profile", profile]);
    build.args([
        "-p",
        "metaclaw-trainer",
        "--bins",
        "--features",
        "metaclaw-trainer/portable",
    ]);
    command::run(build.env("CARGO_TARGET_DIR", &target))?;
    Ok(target.join(profile))
}

pub(crate) fn strip(from: &Path, to: &Path) -> Result<()> {
    let mut strip = Command::new("strip");
    strip.args(["--strip-all", "-o"]).arg(to).arg(from);
    command::output(&mut strip).map(drop)
}

pub(super) fn glibc(program: &Path) -> Result<Version> {
    let mut nm = Command::new("nm");
    nm.args(["-D", "--undefined-only", "--with-symbol-versions"]);
    let symbols = command::output(nm.arg(program))?;
    newest(&symbols).with_context(|| format!("{} wants no glibc", program.display()))
}

fn newest(symbols: &str) -> Option<Version> {
    let versions = symbols.lines().filter_map(|line| {
        let (_, version) = line.rsplit_once("@GLIBC_")?;
        let mut numbers = version.trim().split('.').map(str::parse);
        Some(Version(numbers.next()?.ok()?, numbers.next()?.ok()?))
    });
    versions.max()
}

pub(super) fn check_run_path(program: &Path) -> Result<()> {
    let mut readelf = Command::new("readelf");
    let dynamic = command::output(readelf.arg("-d").arg(program))?;
    if let Some(place) = foreign(&dynamic) {
        let shown = program.display();
        bail!("{shown} looks for libraries in {place}, which other machines do not have");
    }
    Ok(())
}

fn foreign(dynamic: &str) -> Option<&str> {
    let is_path = |line: &&str| line.contains("RUNPATH") || line.contains("RPATH");
    let lines = dynamic.lines().filter(is_path);
    let ends = lines.filter_map(|line| Some(line.split_once('[')?.1));
    let paths = ends.map(|end| end.trim_end().trim_end_matches(']'));
    let mut places = paths.flat_map(|path| path.split(':'));
    places.find(|place| !place.starts_with("$ORIGIN/lib"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_symbol_says_which_glibc_is_needed() {
        let symbols = "                 U memcpy@GLIBC_2.14\n                 U fstat@GLIBC_2.33\n\
                       \x20                U __cxa_finalize@GLIBC_2.2.5\n                 U _ZSt3@GLIBCXX_3.4.30\n";
        assert_eq!(newest(symbols), Some(Version(2, 33)));
        assert!(Version(2, 9) < Version(2, 28));
        assert_eq!(newest(""), None);
    }

    #[test]
    fn a_folder_of_the_builder_in_the_run_path_is_found() {
        let line = |path: &str| format!(" 0x1d (RUNPATH)  Library runpath: [{path}]\n");
        let own = line("$ORIGIN/lib-cuda:$ORIGIN/lib");
        assert_eq!(foreign(&own), None);
        let built = line("$ORIGIN/lib:/home/me/.cache/libtorch/lib");
        assert_eq!(foreign(&built), Some("/home/me/.cache/libtorch/lib"));
        let above = "$ORIGIN/../../.libtorch/lib";
        assert_eq!(foreign(&line(above)), Some(above));
    }
}
