//! The workspace's crates as their source shows them: modules, and what each imports and defines. Nothing is compiled.

mod modules;
mod scope;

use std::path::PathBuf;

use anyhow::{Context, Result};
use metaclaw_fetch::command;
use serde_json::Value;

use crate::cargo::cargo;
use crate::places::Places;

pub(crate) use self::modules::Modules;
pub(crate) use self::scope::UseImport;

/// The first files of all libraries, programs, test binaries, benchmarks and examples of the workspace, in order.
pub(crate) fn roots(places: &Places) -> Result<Vec<PathBuf>> {
    let args = ["metadata", "--no-deps", "--format-version=1"];
    let text = command::output(&mut cargo(places, &args))?;
    let metadata: Value =
        serde_json::from_str(&text).context("cannot read what cargo metadata says")?;
    let list = |value: &Value, key| value[key].as_array().cloned().unwrap_or_default();
    let mut roots: Vec<PathBuf> = list(&metadata, "packages")
        .iter()
        .flat_map(|package| list(package, "targets"))
        .filter_map(|target| Some(PathBuf::from(target["src_path"].as_str()?)))
        .collect();
    roots.sort();
    Ok(roots)
}
