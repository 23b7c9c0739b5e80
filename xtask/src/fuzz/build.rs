//! Builds the targets: the workspace's own versions, instrumented, in a separate target folder.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};
use metaclaw_fetch::{command, writing};

use crate::cargo::cargo;
use crate::places::Places;

/// libFuzzer's counters, one for each edge of the program, and the operands of comparisons, from which it learns which
/// bytes to try. The flags are those of cargo-fuzz; the `sancov-module` pass is LLVM's and needs no nightly.
const FLAGS: [&str; 9] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    // This keeps branches apart that the compiler would fold into one.
    "-Cllvm-args=-simplifycfg-branch-fold-threshold=0",
    "-Cdebug-assertions",
    "-Ccodegen-units=1",
    "--cfg=fuzzing",
];

/// Builds one target; returns the path of its binary.
pub(super) fn build(places: &Places, folder: &Path, target: &str) -> Result<PathBuf> {
    let krate = locked(places)?;
    let host = host()?;
    let out = folder.join("build");
    let mut build = cargo(
        places,
        &["build", "--release", "--bin", target, "--features", target],
    );
    // With a target triple the flags apply to the target only, not to build scripts and macros.
    build
        .current_dir(&krate)
        .args(["--target", &host, "--target-dir"])
        .arg(&out)
        .env("RUSTFLAGS", FLAGS.join(" "));
    command::run(&mut build)?;
    Ok(out.join(host).join("release").join(target))
}

/// Checks every target without building it.
pub(super) fn check(places: &Places, folder: &Path) -> Result<()> {
    let krate = locked(places)?;
    let mut check = cargo(places, &["check", "--bins", "--all-features"]);
    check
        .current_dir(&krate)
        .arg("--target-dir")
        .arg(folder.join("check"))
        .env("RUSTFLAGS", "--cfg=fuzzing");
    command::run(&mut check)
}

/// The folder of the targets, with a lock file of the released versions; cargo adds what fuzzing needs.
fn locked(places: &Places) -> Result<PathBuf> {
    let krate = places.root.join("tests/fuzz");
    let lock = krate.join("Cargo.lock");
    let copied = fs::copy(places.root.join("Cargo.lock"), &lock);
    writing(copied, &lock)?;
    Ok(krate)
}

/// This machine's target triple, from the compiler.
fn host() -> Result<String> {
    let version = command::output(Command::new("rustc").arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("`rustc -vV` names no host")?.trim().to_owned())
}
