//! What the tests of several files share.

/// The cases of a table: what is given, and behind ` => ` what is expected.
pub(crate) fn cases(table: &str) -> impl Iterator<Item = (&str, &str)> {
    let lines = table.lines().filter(|line| !line.trim().is_empty());
    lines.map(|line| line.trim().split_once(" => ").unwrap())
}

pub(crate) fn lines<T: ToString>(said: &[T]) -> String {
    let said: Vec<String> = said.iter().map(ToString::to_string).collect();
    said.join("\n")
}
