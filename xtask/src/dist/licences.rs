//! What is compiled in: the licences, and a bill of materials.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use metaclaw_fetch::Packed;
use serde_json::{Value, json};

use crate::cargo::{self, list};
use crate::files;
use crate::places::Places;

const NAMES: [&str; 5] = ["LICENSE", "LICENCE", "COPYING", "NOTICE", "COPYRIGHT"];

pub(super) fn metadata(places: &Places) -> Result<Value> {
    let linked = ["--locked", "--filter-platform", "x86_64-unknown-linux-gnu"];
    cargo::metadata(places, &linked)
}

pub(super) fn compiled_in<'a>(metadata: &'a Value, root: &str) -> Vec<&'a Value> {
    fn by_id(values: &Value) -> HashMap<&str, &Value> {
        let named = list(values).map(|value| (value["id"].as_str().unwrap_or_default(), value));
        named.collect()
    }
    let packages = by_id(&metadata["packages"]);
    let nodes = by_id(&metadata["resolve"]["nodes"]);
    let is_root = |package: &&&Value| package["name"] == root && package["source"].is_null();
    let roots = packages.values().filter(is_root);
    let mut open: Vec<&str> = roots.filter_map(|package| package["id"].as_str()).collect();
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    while let Some(id) = open.pop() {
        if let (true, Some(node)) = (seen.insert(id), nodes.get(id)) {
            let linked = list(&node["deps"])
                .filter(|dep| list(&dep["dep_kinds"]).any(|kind| kind["kind"].is_null()));
            open.extend(linked.filter_map(|dep| dep["pkg"].as_str()));
        }
    }
    let linked = seen.iter().filter_map(|id| packages.get(id).copied());
    let mut found: Vec<&Value> = linked
        .filter(|package| !package["source"].is_null())
        .collect();
    found.sort_by_key(|package| (package["name"].as_str(), package["version"].as_str()));
    found
}

/// The crates, each with its licence, and then the texts of the licences. Each text comes once, with the crates that have
/// it. A crate may say its licence in its manifest alone.
pub(super) fn of_crates(crates: &[&Value]) -> String {
    let mut list = String::new();
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in crates {
        let text = |key: &str| package[key].as_str().unwrap_or("not said");
        let name = format!("{} {}", text("name"), text("version"));
        let _ = writeln!(list, "{name}: {}", text("license"));
        let folder = Path::new(text("manifest_path")).with_file_name("");
        for file in files::below(&folder, false).unwrap_or_default() {
            let file_name = file.file_name().unwrap_or_default().to_string_lossy();
            let upper = file_name.to_uppercase();
            let is_licence = NAMES.iter().any(|name| upper.starts_with(name));
            if let (true, Ok(text)) = (is_licence, fs::read_to_string(&file)) {
                texts.entry(text).or_default().push(name.clone());
            }
        }
    }
    for (text, crates) in texts {
        let (crates, text) = (crates.join(", "), text.trim());
        let _ = write!(list, "\n\n==== {crates} ====\n\n{text}\n");
    }
    list
}

pub(super) fn of_libtorch(libtorch: &Path) -> Result<Vec<Packed>> {
    let files = files::below(&libtorch.join("notices"), true)
        .context("archives are made with the libtorch that `cargo xtask setup` fetches")?;
    // RECORD is the list of the package's files, and no licence.
    let licences = files.into_iter().filter(|path| !path.ends_with("RECORD"));
    let packed = licences.map(|path| {
        let name = path.strip_prefix(libtorch).unwrap_or(&path).display();
        let name = format!("libtorch-{name}");
        Packed::file(path, name)
    });
    Ok(packed.collect())
}

/// The bill of materials of `package`, whose `crates` are packages of `cargo metadata`: CycloneDX 1.6,
/// <https://cyclonedx.org/docs/1.6/json/>.
pub(super) fn bill(package: &str, crates: &[&Value]) -> Value {
    let component = |krate: &&Value| {
        let text = |key: &str| krate[key].as_str().unwrap_or_default();
        let url = format!("pkg:cargo/{}@{}", text("name"), text("version"));
        let mut component = json!({
            "type": "library", "bom-ref": url, "name": text("name"), "version": text("version"), "purl": url,
        });
        if let Some(licence) = krate["license"].as_str() {
            // Older manifests separate licences by a slash, which is no SPDX expression: it means OR.
            component["licenses"] = json!([{"expression": licence.replace('/', " OR ")}]);
        }
        component
    };
    json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {
            "type": "application",
            "bom-ref": package,
            "name": package,
            "version": env!("CARGO_PKG_VERSION"),
            "licenses": [{"expression": "MIT OR Apache-2.0"}],
        }},
        "components": crates.iter().map(component).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_linked_in_is_listed_with_its_licences_and_what_only_builds_or_tests_is_not() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["LICENSE-MIT", "Copying", "README.md"] {
            fs::write(folder.path().join(name), name).unwrap();
        }
        let metadata = json!({
            "packages": [
                {"id": "ours", "name": "ours", "source": null},
                {"id": "b", "name": "b", "version": "1", "source": "registry", "license": "MIT/Apache-2.0",
                    "manifest_path": folder.path().join("Cargo.toml")},
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
        let crates = compiled_in(&metadata, "ours");
        let expected = "a 2: not said\nb 1: MIT/Apache-2.0\n\n\n==== b 1 ====\n\nCopying\n\n\n==== b 1 ====\n\nLICENSE-MIT\n";
        assert_eq!(of_crates(&crates), expected);
        let bill = bill("metaclaw", &crates);
        let components = bill["components"].as_array().unwrap();
        assert!(components[0].get("licenses").is_none());
        assert_eq!(components[1]["purl"], "pkg:cargo/b@1");
        let licence = &components[1]["licenses"][0]["expression"];
        assert_eq!(licence, "MIT OR Apache-2.0");
    }
}
