//! No two files of a crate import each other, directly or through others. A reader then finds a file to start with, and
//! a change shows how far it reaches. rustc accepts circles, so this check is needed.
//!
//! The rules:
//!
//! - A path in a `use` or in code imports the file that it names, and the file that defines the name, if another file
//!   re-exports it. Test code counts as all other code does.
//! - `mod child;` imports nothing, and neither does a `pub use` of names from below: a parent may declare its children
//!   and re-export what they define. A parent that uses a child's name itself, or re-exports a name from elsewhere,
//!   imports that file.
//! - So a child may import what its parent defines if the parent only declares and re-exports the child. A child names
//!   a sibling by the sibling's own path; `super::Name` is an import of the parent, whoever defines `Name`.
//!
//! The check reads names, not meaning. It does not see a method of a type whose `impl`s stand in several files.

mod graph;
mod imports;
mod modules;

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use self::modules::Modules;
use crate::cargo::{list, metadata};
use crate::places::Places;

/// Prints every circle of every crate in the workspace.
///
/// # Errors
/// At least one circle.
pub(crate) fn run(places: &Places) -> Result<()> {
    let mut n_circles = 0;
    for root in roots(places)? {
        let folder = root.parent().unwrap_or(&places.root);
        for circle in find(folder, &root)? {
            let shown = folder.strip_prefix(&places.root).unwrap_or(folder);
            println!("{}: {circle}", shown.display());
            n_circles += 1;
        }
    }
    if n_circles > 0 {
        bail!(
            "{n_circles} circles of files that import each other (in brackets: the names that the file before imports). \
             Move what both need into a file of its own, and name each item by the path of the file that defines it"
        );
    }
    Ok(())
}

fn roots(places: &Places) -> Result<Vec<PathBuf>> {
    let metadata = metadata(places, &["--no-deps"])?;
    let targets = list(&metadata["packages"]).flat_map(|package| list(&package["targets"]));
    let each = targets.filter_map(|target| Some(PathBuf::from(target["src_path"].as_str()?)));
    let mut roots: Vec<PathBuf> = each.collect();
    roots.sort();
    Ok(roots)
}

/// The circles of the crate whose first file is `root`, each as `a.rs -> b.rs (names of b) -> a.rs (names of a)`,
/// with paths from `folder`.
fn find(folder: &Path, root: &Path) -> Result<Vec<String>> {
    let modules = Modules::read(root)?;
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

#[cfg(test)]
mod tests;
