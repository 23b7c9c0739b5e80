//! The workspace's crates as their source shows them: modules, and what each imports and defines. Nothing is compiled.

mod modules;
mod scope;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use metaclaw_fetch::command;
use serde_json::Value;

use crate::cargo::cargo;
use crate::places::Places;

pub(crate) use self::modules::Modules;
pub(crate) use self::scope::UseImport;

/// A library, program, test binary, benchmark or example of the workspace.
#[derive(Debug)]
pub(crate) struct CargoTarget {
    /// Its first file.
    pub(crate) root: PathBuf,
    /// Whether it only tests: a test binary, a benchmark, or a part of the test kit.
    pub(crate) is_test: bool,
}

/// All targets of the workspace, by the path of their first file.
pub(crate) fn targets(places: &Places) -> Result<Vec<CargoTarget>> {
    let args = ["metadata", "--no-deps", "--format-version=1"];
    let text = command::output(&mut cargo(places, &args))?;
    let metadata: Value =
        serde_json::from_str(&text).context("cannot read what cargo metadata says")?;
    let list = |value: &Value, key| value[key].as_array().cloned().unwrap_or_default();
    let kit = places.root.join("tests");
    let of_tests = |target: &Value, root: &Path| {
        let kinds = list(target, "kind");
        let only_tests = |kind: &Value| matches!(kind.as_str(), Some("test" | "bench"));
        kinds.iter().any(only_tests) || root.starts_with(&kit)
    };
    let mut targets: Vec<CargoTarget> = list(&metadata, "packages")
        .iter()
        .flat_map(|package| list(package, "targets"))
        .filter_map(|target| {
            let root = PathBuf::from(target["src_path"].as_str()?);
            let is_test = of_tests(&target, &root);
            Some(CargoTarget { root, is_test })
        })
        .collect();
    targets.sort_by(|a, b| a.root.cmp(&b.root));
    Ok(targets)
}
