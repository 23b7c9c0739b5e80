//! No function takes a tuple: several values that belong together are a struct with a name.
//!
//! Tests and `impl`s of traits are not looked at. A true pair, such as two ends of a range, is allowed by a comment on
//! the line before the function or before its parameter: `// pair: why it needs no name`.

use std::fs;

use anyhow::{Context, Result, bail};

use crate::places::Places;
use crate::sources::{self, Modules};

/// How the comment begins that allows a tuple.
const ALLOWED: &str = "// pair: ";

/// Prints each function that takes a tuple and is not allowed to.
///
/// # Errors
/// At least one such function.
pub(crate) fn run(places: &Places) -> Result<()> {
    let mut found = std::collections::BTreeSet::new();
    for target in sources::targets(places)? {
        if target.is_test {
            continue;
        }
        let modules = Modules::read(&target.root)?;
        for module in modules.all.iter().filter(|module| !module.is_test) {
            if module.scope.tuples.is_empty() {
                continue;
            }
            let path = &modules.files[module.file];
            let text = fs::read_to_string(path)
                .with_context(|| format!("cannot read {}", path.display()))?;
            let shown = path.strip_prefix(&places.root).unwrap_or(path);
            for function in &module.scope.tuples {
                if !is_allowed(&text, function.line) {
                    found.insert((shown.to_owned(), function.line, function.name.clone()));
                }
            }
        }
    }
    for (path, line, name) in &found {
        println!("{}:{line}: {name}", path.display());
    }
    if !found.is_empty() {
        bail!(
            "{} parameters are tuples. Give the values a struct with a name. A true pair is allowed by a comment \
             `{ALLOWED}why` on the line before",
            found.len()
        );
    }
    Ok(())
}

/// Whether the parameter on `line` (from 1) is allowed: by the line before it, or before the `fn` that it belongs to.
fn is_allowed(text: &str, line: usize) -> bool {
    let lines: Vec<&str> = text.lines().take(line).map(str::trim).collect();
    let is_comment = |at: usize| {
        let before = at.checked_sub(1).and_then(|before| lines.get(before));
        before.is_some_and(|line| line.starts_with(ALLOWED))
    };
    let function = lines.iter().rposition(|line| {
        let mut words = line.split(' ');
        words.any(|word| word == "fn")
    });
    is_comment(lines.len().saturating_sub(1)) || function.is_some_and(is_comment)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_before_the_function_or_the_parameter_allows_a_pair() {
        let text = "// pair: two ends\nfn a((x, y): (u8, u8)) {}\n\nfn b(\n    // pair: two ends\n    ends: (u8, u8),\n    other: (u8, u8),\n) {}";
        let allowed = [2, 6, 7].map(|line| is_allowed(text, line));
        assert_eq!(allowed, [true, true, false]);
    }
}
