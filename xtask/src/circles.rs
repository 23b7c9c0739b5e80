//! No two files of a crate import each other, directly or through others: a reader then finds a floor to start on, and
//! a change says how far it reaches. rustc does not mind circles, so that this check has to.
//!
//! It reads words, not meaning: `use` items and paths, resolved to the file that defines the name, in code outside
//! `#[cfg(test)]`. A parent that declares `mod x;` and hands names on by `pub use` imports nothing. What no path shows,
//! a method of a type whose `impl`s stand in several files, it does not see.

mod graph;
mod imports;
mod modules;
mod source;
mod tokens;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use metaclaw_fetch::command;
use serde_json::Value;

use crate::cargo::cargo;
use crate::places::Places;

/// Fails where any crate of the workspace has a circle, and names them all.
pub(crate) fn run(places: &Places) -> Result<()> {
    let mut n_circles = 0;
    for root in targets(places)? {
        let folder = root.parent().unwrap_or(&places.root);
        for circle in find(folder, &root)? {
            let shown = folder.strip_prefix(&places.root).unwrap_or(folder);
            println!("{}: {circle}", shown.display());
            n_circles += 1;
        }
    }
    if n_circles > 0 {
        bail!(
            "{n_circles} circles of files that import each other (in brackets: what the file before takes from it). Move \
             what both need into a file of its own"
        );
    }
    Ok(())
}

/// The circles of the crate whose first file is `root`, each as `a.rs -> b.rs (names of b) -> a.rs (names of a)`,
/// with paths from `folder`.
fn find(folder: &Path, root: &Path) -> Result<Vec<String>> {
    let modules = modules::read(root)?;
    let arrows = imports::arrows(&modules);
    let shown = |file: usize| {
        let path = &modules.files[file];
        path.strip_prefix(folder).unwrap_or(path).display()
    };
    let words = |circle: Vec<usize>| {
        let steps = circle.iter().enumerate().map(|(at, from)| {
            let to = circle[(at + 1) % circle.len()];
            let names: Vec<&str> = arrows[&(*from, to)].iter().map(String::as_str).collect();
            format!("{} ({})", shown(to), names.join(", "))
        });
        let steps: Vec<String> = steps.collect();
        format!("{} -> {}", shown(circle[0]), steps.join(" -> "))
    };
    let circles = graph::circles(modules.files.len(), &arrows);
    Ok(circles.into_iter().map(words).collect())
}

/// The first file of each crate: libraries, programs and test binaries.
fn targets(places: &Places) -> Result<Vec<PathBuf>> {
    let args = ["metadata", "--no-deps", "--format-version=1"];
    let text = command::output(&mut cargo(places, &args))?;
    let metadata: Value =
        serde_json::from_str(&text).context("cannot read what cargo metadata says")?;
    let list = |value: &Value, key| value[key].as_array().cloned().unwrap_or_default();
    let mut roots: Vec<PathBuf> = list(&metadata, "packages")
        .iter()
        .flat_map(|package| list(package, "targets"))
        .filter_map(|target| target["src_path"].as_str().map(PathBuf::from))
        .collect();
    roots.sort();
    Ok(roots)
}

#[cfg(test)]
mod tests;
