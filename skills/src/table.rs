//! Reads the lists of words in `data`, which are tables so that people who write no Rust can correct them.
//!
//! A line is a kind, a tab, and words or patterns between " / ". Lines that begin with `#` explain.

use serde::{
    Deserialize,
    de::{IntoDeserializer, value},
};

/// The lists of a table by kind, in its order. Lines of one kind that follow each other are one list.
#[derive(Debug)]
pub(crate) struct Table(pub(crate) Vec<(&'static str, Vec<&'static str>)>);

// === impl Table ===

impl Table {
    pub(crate) fn read(text: &'static str) -> Self {
        let mut lists: Vec<(&str, Vec<&str>)> = Vec::new();
        let is_list = |line: &&str| !line.is_empty() && !line.starts_with('#');
        for line in text.lines().filter(is_list) {
            let (kind, words) = line.rsplit_once('\t').unwrap_or_default();
            match lists.last_mut() {
                Some((last, list)) if *last == kind => list.extend(words.split(" / ")),
                _ => lists.push((kind, words.split(" / ").collect())),
            }
        }
        Self(lists)
    }

    /// Returns a list, or an empty one if the table has none of this kind.
    pub(crate) fn list(&self, kind: &str) -> &[&'static str] {
        let found = self.0.iter().find(|(it, _)| *it == kind);
        found.map_or(&[][..], |(_, words)| words)
    }
}

/// Returns the value that a table names.
#[expect(
    clippy::expect_used,
    reason = "all names are in our own tables, and tests read each one: no input reaches it"
)]
pub(crate) fn named<T: Deserialize<'static>>(name: &'static str) -> T {
    let name: value::StrDeserializer<'static, value::Error> = name.into_deserializer();
    T::deserialize(name).expect("a name of ours")
}
