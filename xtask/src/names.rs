//! Type names that the workspace defines more than once. A reader who searches for such a name finds the wrong type.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, bail};

use crate::places::Places;
use crate::sources::{self, Modules};

/// How many of a hundred names may be defined more than once.
const MOST_PERCENT: usize = 8;

/// Prints the names of structs, enums, traits and type aliases that are defined in several places outside tests, the
/// most frequent first.
///
/// # Errors
/// More than [`MOST_PERCENT`] of all names.
pub(crate) fn run(places: &Places) -> Result<()> {
    let mut defined: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for target in sources::targets(places)? {
        if target.is_test {
            continue;
        }
        let modules = Modules::read(&target.root)?;
        for module in modules.all.iter().filter(|module| !module.is_test) {
            let path = &modules.files[module.file];
            let shown = path.strip_prefix(&places.root).unwrap_or(path).display();
            for named in &module.scope.types {
                let place = format!("{shown}:{}", named.line);
                defined.entry(named.name.clone()).or_default().insert(place);
            }
        }
    }
    let n_names = defined.len();
    let mut repeated: Vec<_> = defined.iter().filter(|(_, at)| at.len() > 1).collect();
    repeated.sort_by_key(|(_, at)| std::cmp::Reverse(at.len()));
    for (name, at) in &repeated {
        let at: Vec<&str> = at.iter().map(String::as_str).collect();
        println!("{} {name}: {}", at.len(), at.join(", "));
    }
    let percent = 100.0 * repeated.len() as f64 / n_names.max(1) as f64;
    println!(
        "{} of {n_names} type names ({percent:.1} %) are defined more than once",
        repeated.len()
    );
    if repeated.len() * 100 > n_names * MOST_PERCENT {
        bail!(
            "at most {MOST_PERCENT} % of the type names may be defined more than once: rename some by the field's term"
        );
    }
    Ok(())
}
