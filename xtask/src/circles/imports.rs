//! Which file imports which names from which other file.

use std::collections::{BTreeMap, BTreeSet};

use super::modules::{Modules, UseImport};

/// From file, to file: the names that are imported.
pub(super) type Arrows = BTreeMap<(usize, usize), BTreeSet<String>>;

#[derive(Debug, Clone)]
enum PathTarget {
    Module(usize),
    Item(Item),
}

#[derive(Debug, Clone)]
struct Item {
    name: String,
    named: usize,
    /// The module that defines the item. It differs from `named` where that one re-exports the item.
    defined: usize,
}

/// `use` of `use` of `use` ends somewhere, unless it goes in a circle itself, which globs may.
const MOST_STEPS: usize = 32;

pub(super) fn arrows(modules: &Modules) -> Arrows {
    let mut arrows = Arrows::new();
    let mut add = |from: usize, to: usize, name: String| {
        let ends = (modules.all[from].file, modules.all[to].file);
        if ends.0 != ends.1 {
            arrows.entry(ends).or_default().insert(name);
        }
    };
    for (from, module) in modules.all.iter().enumerate() {
        for import in &module.imports {
            match follow(modules, from, &import.path, 0) {
                Some(PathTarget::Item(item)) => {
                    if import.is_reexport && modules.is_below(item.named, from) {
                        continue;
                    }
                    add(from, item.named, item.name.clone());
                    add(from, item.defined, item.name);
                }
                Some(PathTarget::Module(to)) if import.name.is_none() => {
                    if !(import.is_reexport && modules.is_below(to, from)) {
                        add(from, to, "*".to_owned());
                    }
                }
                // The paths that begin with the module say what is imported of it.
                Some(PathTarget::Module(_)) | None => {}
            }
        }
        // A path also imports what its first word is.
        let words = module.paths.iter().map(|path| &path[..1]);
        for path in words.chain(module.paths.iter().map(Vec::as_slice)) {
            if let Some(PathTarget::Item(item)) = follow(modules, from, path, 0) {
                add(from, item.named, item.name.clone());
                add(from, item.defined, item.name);
            }
        }
    }
    arrows
}

/// Follows a path; `None` if it leads to another crate.
fn follow(modules: &Modules, from: usize, path: &[String], n_steps: usize) -> Option<PathTarget> {
    let (first, rest) = path.split_first()?;
    let mut at = match first.as_str() {
        "crate" => 0,
        "self" => from,
        "super" => modules.all[from].parent?,
        _ => match look_up(modules, from, first, n_steps)? {
            PathTarget::Module(module) => module,
            item @ PathTarget::Item(_) => return Some(item),
        },
    };
    for name in rest {
        if name == "super" {
            at = modules.all[at].parent?;
            continue;
        }
        match look_up(modules, at, name, n_steps) {
            Some(PathTarget::Module(module)) => at = module,
            Some(item) => return Some(item),
            // A macro of that module has made it, it seems.
            None => return Some(PathTarget::Item(Item::defined(at, name))),
        }
    }
    Some(PathTarget::Module(at))
}

fn look_up(modules: &Modules, at: usize, name: &str, n_steps: usize) -> Option<PathTarget> {
    let module = &modules.all[at];
    if let Some(child) = module.children.get(name) {
        return Some(PathTarget::Module(*child));
    }
    if module.defines.contains(name) {
        return Some(PathTarget::Item(Item::defined(at, name)));
    }
    if n_steps == MOST_STEPS {
        return None;
    }
    let imports = &module.imports;
    let is_it = |import: &&UseImport| import.name.as_deref() == Some(name) && import.path != [name];
    if let Some(import) = imports.iter().find(is_it) {
        let target = follow(modules, at, &import.path, n_steps + 1)?;
        return Some(target.seen_from(at));
    }
    let globs = imports.iter().filter(|import| import.name.is_none());
    globs
        .filter_map(|glob| follow(modules, at, &glob.path, n_steps + 1))
        .find_map(|found| match found {
            PathTarget::Module(module) if module != at => {
                look_up(modules, module, name, n_steps + 1)
            }
            PathTarget::Module(_) | PathTarget::Item(_) => None,
        })
        .map(|target| target.seen_from(at))
}

impl PathTarget {
    fn seen_from(self, module: usize) -> Self {
        match self {
            Self::Item(item) => Self::Item(Item {
                named: module,
                ..item
            }),
            Self::Module(_) => self,
        }
    }
}

impl Item {
    fn defined(module: usize, name: &str) -> Self {
        Self {
            name: name.to_owned(),
            named: module,
            defined: module,
        }
    }
}
