//! The marks and names that clients write, read once from `data`.

use std::{collections::HashSet, sync::LazyLock};

use aho_corasick::{AhoCorasick, Anchored, Input, MatchKind, StartKind};
use serde::{
    Deserialize,
    de::{IntoDeserializer, value},
};

const WRAPPERS: &str = include_str!("../../data/wrappers.tsv");
const ELEMENTS: &str = include_str!("../../data/elements.tsv");

/// The kind of a mark, as `data/wrappers.tsv` explains it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Mark {
    Alone,
    Context,
    Summary,
    Result,
    Tail,
    Heading,
    Preamble,
    Note,
    Call,
    Forwarded,
    AsksAgain,
}

/// The kind of an element's name, as `data/elements.tsv` explains it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Name {
    Known,
    Typed,
    TypedAlone,
    Markup,
    Forum,
}

struct Marks {
    automaton: AhoCorasick,
    kinds: Vec<Mark>,
}

static BEGINNINGS: LazyLock<Marks> = LazyLock::new(|| {
    let is_one = |kind: &Mark| !matches!(kind, Mark::Tail | Mark::Result);
    Marks::read(is_one, StartKind::Anchored)
});
static INSIDE: LazyLock<Marks> = LazyLock::new(|| {
    let is_one = |kind: &Mark| matches!(kind, Mark::Tail | Mark::Result);
    Marks::read(is_one, StartKind::Unanchored)
});
static NAMES: LazyLock<HashSet<(Name, &str)>> = LazyLock::new(|| {
    let lines = lines(ELEMENTS).filter_map(|line| {
        let (kind, names) = line.split_once('\t')?;
        Some((kind_named(kind)?, names))
    });
    lines
        .flat_map(|(kind, names)| names.split_whitespace().map(move |name| (kind, name)))
        .collect()
});

pub(super) fn mark_at_start(text: &str) -> Option<Mark> {
    let marks = &*BEGINNINGS;
    let start = Input::new(text).anchored(Anchored::Yes);
    let found = marks.automaton.find(start)?;
    marks.kinds.get(found.pattern().as_usize()).copied()
}

pub(super) fn first_inside(text: &str, is_one: impl Fn(Mark, usize) -> bool) -> Option<usize> {
    let marks = &*INSIDE;
    let mut found = marks.automaton.find_iter(text);
    let first = found.find(|found| {
        let kind = marks.kinds.get(found.pattern().as_usize());
        kind.is_some_and(|kind| is_one(*kind, found.start()))
    });
    first.map(|found| found.start())
}

pub(super) fn is_named(kind: Name, name: &str) -> bool {
    NAMES.contains(&(kind, name))
}

// === impl Marks ===

impl Marks {
    #[expect(clippy::expect_used, reason = "a constant table; the tests build it")]
    fn read(is_one: impl Fn(&Mark) -> bool, start: StartKind) -> Self {
        let marks = lines(WRAPPERS).filter_map(|line| {
            let (kind, rest) = line.split_once('\t')?;
            let (_, text) = rest.split_once('\t')?;
            Some((kind_named(kind)?, text.replace("\\n", "\n")))
        });
        let (kinds, texts): (Vec<Mark>, Vec<String>) =
            marks.filter(|(kind, _)| is_one(kind)).unzip();
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .start_kind(start)
            .build(texts)
            .expect("a table of ours");
        Self { automaton, kinds }
    }
}

fn lines(table: &'static str) -> impl Iterator<Item = &'static str> {
    table.lines().filter(|line| !line.starts_with('#'))
}

fn kind_named<T: Deserialize<'static>>(name: &'static str) -> Option<T> {
    let name: value::StrDeserializer<'static, value::Error> = name.into_deserializer();
    T::deserialize(name).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_tables_is_read() {
        for line in lines(WRAPPERS) {
            let fields: Vec<&str> = line.split('\t').collect();
            let is_read = fields.len() == 3 && kind_named::<Mark>(fields[0]).is_some();
            assert!(is_read && !fields[2].is_empty(), "{line:?}");
        }
        for line in lines(ELEMENTS) {
            let (kind, _) = line.split_once('\t').unwrap();
            assert!(kind_named::<Name>(kind).is_some(), "{line:?}");
        }
        let n = BEGINNINGS.kinds.len() + INSIDE.kinds.len();
        assert_eq!(n, lines(WRAPPERS).count());
        assert!(is_named(Name::Markup, "div") && !is_named(Name::Known, "div"));
    }
}
