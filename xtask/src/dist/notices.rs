//! The licences of what an archive carries of others.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use metaclaw_fetch::{Packed, command};
use serde_json::Value;

use crate::cargo::cargo;
use crate::places::Places;

/// How files that hold a licence are called.
const NAMES: [&str; 5] = ["LICENSE", "LICENCE", "COPYING", "NOTICE", "COPYRIGHT"];

/// What cargo knows of all packages that a build for Linux on x86-64 may need.
pub(super) fn metadata(places: &Places) -> Result<Value> {
    let mut ask = cargo(places, &["metadata", "--format-version", "1", "--locked"]);
    ask.args(["--filter-platform", "x86_64-unknown-linux-gnu"]);
    serde_json::from_str(&command::output(&mut ask)?).context("cargo metadata is not JSON")
}

/// The crates that are compiled into a package, each with its licence, and then the texts of the licences. Each text
/// comes once, with the crates that have it.
pub(super) fn of_crates(crates: &[&Value]) -> String {
    let mut list = String::new();
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in crates {
        let text = |key: &str| package[key].as_str().unwrap_or("not said");
        let name = format!("{} {}", text("name"), text("version"));
        let _ = writeln!(list, "{name}: {}", text("license"));
        let manifest = Path::new(text("manifest_path"));
        for found in licences(manifest.parent().unwrap_or(manifest)) {
            texts.entry(found).or_default().push(name.clone());
        }
    }
    for (text, of) in texts {
        let _ = write!(list, "\n\n==== {} ====\n\n{}\n", of.join(", "), text.trim());
    }
    list
}

/// The packages of others that are linked into one of ours, by name and version.
pub(super) fn compiled_in<'a>(metadata: &'a Value, root: &str) -> Vec<&'a Value> {
    let list = |value: &'a Value| value.as_array().into_iter().flatten();
    let id = |value: &'a Value| value["id"].as_str().unwrap_or_default();
    let packages: HashMap<&str, &Value> =
        list(&metadata["packages"]).map(|it| (id(it), it)).collect();
    let nodes: HashMap<&str, &Value> = list(&metadata["resolve"]["nodes"])
        .map(|it| (id(it), it))
        .collect();
    let is_root = |it: &&'a Value| it["name"] == root && it["source"].is_null();
    let mut open: Vec<&str> = packages.values().copied().filter(is_root).map(id).collect();
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    while let Some(id) = open.pop() {
        let new = seen.insert(id);
        let needs = nodes.get(id).filter(|_| new).map(|it| &it["deps"]);
        let linked = |it: &&'a Value| list(&it["dep_kinds"]).any(|kind| kind["kind"].is_null());
        let needs = needs.into_iter().flat_map(list).filter(linked);
        open.extend(needs.filter_map(|it| it["pkg"].as_str()));
    }
    let of_others = |it: &&Value| !it["source"].is_null();
    let mut found: Vec<&Value> = seen
        .iter()
        .filter_map(|id| packages.get(id).copied())
        .filter(of_others)
        .collect();
    found.sort_by_key(|it| (it["name"].as_str(), it["version"].as_str()));
    found
}

/// The licences in a crate's folder. A crate may say its licence in its manifest alone.
fn licences(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    let is_licence = |path: &&std::path::PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let name = name.to_uppercase();
        path.is_file() && NAMES.iter().any(|it| name.starts_with(it))
    };
    paths
        .iter()
        .filter(is_licence)
        .filter_map(|path| fs::read_to_string(path).ok())
        .collect()
}

/// Those of libtorch and of what it is made of, as PyTorch's package has them.
pub(super) fn of_libtorch(libtorch: &Path) -> Result<Vec<Packed>> {
    let mut files = Vec::new();
    let mut open = vec![libtorch.join("notices")];
    while let Some(folder) = open.pop() {
        let entries = fs::read_dir(&folder).with_context(|| {
            format!(
                "cannot list {}: archives are made with the libtorch that `cargo xtask setup` fetches",
                folder.display()
            )
        })?;
        for entry in entries.flatten() {
            let path = entry.path();
            if path.is_dir() {
                open.push(path);
                continue;
            }
            let name = path.strip_prefix(libtorch).unwrap_or(&path);
            // RECORD is the list of the package's files, and no licence.
            if !name.ends_with("RECORD") {
                let name = format!("libtorch-{}", name.display());
                files.push(Packed::file(path, name));
            }
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_linked_in_is_listed_and_what_only_builds_or_tests_is_not() {
        let metadata = serde_json::json!({
            "packages": [
                {"id": "ours", "name": "ours", "source": null},
                {"id": "b", "name": "b", "version": "1", "source": "registry"},
                {"id": "a", "name": "a", "version": "2", "source": "registry"},
                {"id": "cc", "name": "cc", "version": "1", "source": "registry"},
            ],
            "resolve": {"nodes": [
                {"id": "ours", "deps": [
                    {"pkg": "b", "dep_kinds": [{"kind": null}]},
                    {"pkg": "cc", "dep_kinds": [{"kind": "build"}]},
                ]},
                {"id": "b", "deps": [{"pkg": "a", "dep_kinds": [{"kind": "dev"}, {"kind": null}]}]},
                {"id": "a", "deps": []},
                {"id": "cc", "deps": []},
            ]},
        });
        let names: Vec<_> = compiled_in(&metadata, "ours")
            .iter()
            .map(|it| it["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["a", "b"]);
    }

    #[test]
    fn licences_are_found_by_their_usual_names() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["LICENSE-MIT", "Copying", "README.md"] {
            fs::write(folder.path().join(name), name).unwrap();
        }
        assert_eq!(licences(folder.path()), ["Copying", "LICENSE-MIT"]);
    }
}
