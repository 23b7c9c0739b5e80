//! Calls of cargo. All of them have the same `LIBTORCH`; a different one would rebuild torch-sys.

use std::process::Command;

use anyhow::{Context, Result};
use metaclaw_fetch::command;
use serde_json::Value;

use crate::files::runs;
use crate::places::Places;

pub(crate) fn cargo(places: &Places, args: &[&str]) -> Command {
    let mut cargo = Command::new("cargo");
    cargo.current_dir(&places.root).args(args);
    cargo.env("LIBTORCH", places.libtorch_link());
    // Variables about xtask itself are removed. Build scripts that read them (ring's) would run again, and everything
    // that depends on them would be rebuilt.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            cargo.env_remove(name);
        }
    }
    cargo
}

/// Returns a cargo command with clippy in place of the compiler for the workspace's crates, whose warnings end the
/// build. It compiles what it has checked, and a crate that passed is not checked again.
pub(crate) fn cargo_with_clippy(places: &Places, args: &[&str]) -> Command {
    let mut cargo = cargo(places, args);
    cargo
        .env("RUSTC_WORKSPACE_WRAPPER", "clippy-driver")
        // This is the form in which `cargo clippy` passes its arguments on.
        .env("CLIPPY_ARGS", "-Dwarnings__CLIPPY_HACKERY__");
    cargo
}

/// The extra features of a build for use. jemalloc's build runs `make`, which some machines with a compiler lack.
pub(crate) fn features_for_use() -> &'static [&'static str] {
    if runs("make") {
        return &["--features", "metaclaw/jemalloc"];
    }
    eprintln!(
        "`make` is not installed: built with the system's allocator, which takes a sixth more CPU"
    );
    &[]
}

pub(crate) fn metadata(places: &Places, more: &[&str]) -> Result<Value> {
    let mut ask = cargo(places, &["metadata", "--format-version=1"]);
    let text = command::output(ask.args(more))?;
    serde_json::from_str(&text).context("cannot read what cargo metadata says")
}

pub(crate) fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

pub(crate) fn fmt(places: &Places) -> Result<()> {
    command::run(&mut cargo(places, &["fmt", "--all"]))
}

pub(crate) fn doc(places: &Places) -> Result<()> {
    let mut doc = cargo(places, &["doc", "--workspace", "--no-deps"]);
    command::run(doc.env("RUSTDOCFLAGS", "-D warnings"))
}

pub(crate) fn has_nextest(places: &Places) -> bool {
    let version = cargo(places, &["nextest", "--version"]).output();
    version.is_ok_and(|output| output.status.success())
}
