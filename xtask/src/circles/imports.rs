//! Which file takes which names from which other: names are followed through `use` to the file that defines them.

use std::collections::{BTreeMap, BTreeSet};

use super::modules::Modules;

/// From file, to file: the names that are taken.
pub(super) type Arrows = BTreeMap<(usize, usize), BTreeSet<String>>;

/// What a path leads to.
enum Found {
    Module(usize),
    /// The module that defines it, and its name there.
    Item(usize, String),
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
        let scope = &module.scope;
        // What is handed on is taken only where it is used too, as a glob's names are; of a module that is imported,
        // its paths tell what is taken.
        let imported = scope.imports.iter().filter(|import| !import.is_handed_on);
        let named = imported.filter(|import| import.name.is_some());
        let words = scope.words.iter().map(std::slice::from_ref);
        let paths = named.map(|import| import.path.as_slice());
        for path in paths
            .chain(scope.paths.iter().map(Vec::as_slice))
            .chain(words)
        {
            if let Some(Found::Item(to, item)) = follow(modules, from, path, 0) {
                add(from, to, item);
            }
        }
    }
    arrows
}

/// `None` for what is of another crate.
fn follow(modules: &Modules, from: usize, path: &[String], n_steps: usize) -> Option<Found> {
    let (first, rest) = path.split_first()?;
    let mut at = match first.as_str() {
        "crate" => 0,
        "self" => from,
        "super" => modules.all[from].parent?,
        _ => match look_up(modules, from, first, n_steps)? {
            Found::Module(module) => module,
            item @ Found::Item(..) => return Some(item),
        },
    };
    for name in rest {
        if name == "super" {
            at = modules.all[at].parent?;
            continue;
        }
        match look_up(modules, at, name, n_steps) {
            Some(Found::Module(module)) => at = module,
            Some(item) => return Some(item),
            // Made by a macro, it seems: by one of that module.
            None => return Some(Found::Item(at, name.clone())),
        }
    }
    Some(Found::Module(at))
}

/// What `name` stands for in a module.
fn look_up(modules: &Modules, at: usize, name: &str, n_steps: usize) -> Option<Found> {
    let module = &modules.all[at];
    if let Some(child) = module.children.get(name) {
        return Some(Found::Module(*child));
    }
    if module.scope.defines.contains(name) {
        return Some(Found::Item(at, name.to_owned()));
    }
    if n_steps == MOST_STEPS {
        return None;
    }
    let imports = &module.scope.imports;
    let named = imports
        .iter()
        .find(|import| import.name.as_deref() == Some(name) && import.path != [name]);
    if let Some(import) = named {
        return follow(modules, at, &import.path, n_steps + 1);
    }
    let globs = imports.iter().filter(|import| import.name.is_none());
    globs
        .filter_map(|glob| follow(modules, at, &glob.path, n_steps + 1))
        .find_map(|found| match found {
            Found::Module(module) if module != at => look_up(modules, module, name, n_steps + 1),
            Found::Module(_) | Found::Item(..) => None,
        })
}
