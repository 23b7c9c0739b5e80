//! The imports between crates are those that ARCHITECTURE.md allows, and the core imports no addon.
//!
//! The core is `proxy`, `skills`, `reward` and `trainer`; only `metaclaw` itself, the program that puts rooms and addons
//! together, depends on both sides. An addon depends on `control` and `chat` alone. Dependencies of tests do not count.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, bail};
use serde_json::Value;

use crate::cargo;
use crate::files;
use crate::places::Places;

const HEADING: &str = "Only these imports are allowed:";
const PUBLIC: [&str; 2] = ["chat", "control"];

/// Who imports whom, by the names in ARCHITECTURE.md.
type Imports = BTreeMap<String, BTreeSet<String>>;

#[derive(Debug, Default)]
struct Crates {
    imports: Imports,
    addons: BTreeSet<String>,
}

/// Compares the manifests with ARCHITECTURE.md.
///
/// # Errors
/// Each import that ARCHITECTURE.md does not allow, each allowed one that no manifest makes, and each between core and
/// addons.
pub(crate) fn run(places: &Places) -> Result<()> {
    let page = files::read(&places.root.join("ARCHITECTURE.md"))?;
    let metadata = cargo::metadata(places, &["--no-deps"])?;
    let root = places.root.to_string_lossy();
    let faults = faults(&allowed(&page), &Crates::read(&metadata, &root));
    if !faults.is_empty() {
        bail!("imports between crates:\n{}", faults.join("\n"));
    }
    Ok(())
}

/// Reads the list: `a, b -> c, d`, where an indented line continues the one before.
fn allowed(page: &str) -> Imports {
    let (_, rest) = page.split_once(HEADING).unwrap_or_default();
    let block = rest.trim_start().split("\n\n").next().unwrap_or_default();
    let mut imports = Imports::new();
    let mut importers = Vec::new();
    for line in block.lines() {
        let imported = match line.split_once("->") {
            Some((names, imported)) => {
                importers = list(names);
                imported
            }
            None => line,
        };
        for importer in &importers {
            // "no crate of ours" is not a name.
            let names = list(imported)
                .into_iter()
                .filter(|name| !name.contains(' '));
            imports.entry(importer.clone()).or_default().extend(names);
        }
    }
    imports
}

fn list(names: &str) -> Vec<String> {
    let each = names.split(',').map(|name| name.trim().to_owned());
    each.filter(|name| !name.is_empty()).collect()
}

fn faults(allowed: &Imports, crates: &Crates) -> Vec<String> {
    let mut faults = Vec::new();
    let none = BTreeSet::new();
    for (importer, imported) in &crates.imports {
        let known = allowed.get(importer).unwrap_or(&none);
        for name in imported.difference(known) {
            faults.push(format!(
                "{importer} imports {name}, which ARCHITECTURE.md does not allow"
            ));
        }
        for name in known.difference(imported) {
            faults.push(format!(
                "{importer} does not import {name}: take it out of ARCHITECTURE.md"
            ));
        }
        let crosses = |name: &&String| {
            if crates.addons.contains(importer) {
                !PUBLIC.contains(&name.as_str())
            } else {
                crates.addons.contains(*name) && importer != "cli"
            }
        };
        for name in imported.iter().filter(crosses) {
            faults.push(format!(
                "{importer} imports {name} across the wall between core and addons"
            ));
        }
    }
    faults
}

// === impl Crates ===

impl Crates {
    fn read(metadata: &Value, root: &str) -> Self {
        let mut crates = Self::default();
        for package in cargo::list(&metadata["packages"]) {
            let manifest = package["manifest_path"].as_str().unwrap_or_default();
            let below_root = manifest.strip_prefix(root).unwrap_or(manifest);
            let path = below_root.trim_start_matches('/');
            if path.starts_with("tests/") || path.starts_with("examples/") {
                continue;
            }
            let name = short(package["name"].as_str().unwrap_or_default());
            let imported = cargo::list(&package["dependencies"]).filter_map(|dependency| {
                let is_ours = !dependency["path"].is_null() && dependency["kind"] != "dev";
                is_ours.then(|| short(dependency["name"].as_str().unwrap_or_default()))
            });
            if path.starts_with("addons/") {
                crates.addons.insert(name.clone());
            }
            crates.imports.insert(name, imported.collect());
        }
        crates
    }
}

fn short(name: &str) -> String {
    match name {
        "metaclaw" => "cli",
        "metaclaw-trainer" => "server",
        name => name.strip_prefix("metaclaw-").unwrap_or(name),
    }
    .to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const PAGE: &str = "Text.\n\nOnly these imports are allowed:\n\n    cli     -> page, control,\n               chat\n    \
                        page, control -> chat\n    chat -> no crate of ours\n\n## More\n";

    fn workspace(crates: &[(&str, &str, &[&str])]) -> Crates {
        let package = |(folder, name, imports): &(&str, &str, &[&str])| {
            let dependencies: Vec<Value> = imports
                .iter()
                .map(|name| json!({"name": name, "path": "/w/x", "kind": null}))
                .chain([json!({"name": "metaclaw-turns", "path": "/w/x", "kind": "dev"})])
                .collect();
            json!({"name": name, "manifest_path": format!("/w/{folder}/Cargo.toml"), "dependencies": dependencies})
        };
        let packages: Vec<Value> = crates.iter().map(package).collect();
        Crates::read(&json!({"packages": packages}), "/w")
    }

    #[test]
    fn imports_are_those_of_the_page_and_none_crosses_the_wall() {
        let chat: &[&str] = &["metaclaw-chat"];
        let cli: &[&str] = &["metaclaw-page", "metaclaw-control", "metaclaw-chat"];
        for (page_imports, control_imports, expected) in [
            (chat, chat, &[][..]),
            (
                chat,
                &["metaclaw-chat", "metaclaw-page"],
                &[
                    "control imports page, which ARCHITECTURE.md does not allow",
                    "control imports page across the wall between core and addons",
                ],
            ),
            (
                &["metaclaw-turns"],
                chat,
                &[
                    "page imports turns, which ARCHITECTURE.md does not allow",
                    "page does not import chat: take it out of ARCHITECTURE.md",
                    "page imports turns across the wall between core and addons",
                ],
            ),
        ] {
            let crates = workspace(&[
                ("proxy/cli", "metaclaw", cli),
                ("addons/page", "metaclaw-page", page_imports),
                ("proxy/control", "metaclaw-control", control_imports),
                ("proxy/chat", "metaclaw-chat", &[]),
            ]);
            assert_eq!(faults(&allowed(PAGE), &crates), expected);
        }
    }
}
