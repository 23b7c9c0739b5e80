//! Every key there is, in one table: ours and those of the Python original, with what becomes of
//! each. `config.example.yaml` and `docs/config.md` are made from it, unknown keys are found by it,
//! and values are checked by it before any room reads them.

use super::key::{Key, Section, State};

mod chat;
mod learning;
mod older;
mod shared;

/// All of it, in the order of the example file.
pub(crate) const TABLE: &[Section] = &[
    Section {
        title: "How it works",
        keys: chat::MODE,
    },
    Section {
        title: "The model that answers, and that judges where nothing else is named",
        keys: chat::LLM,
    },
    Section {
        title: "Where agents come in",
        keys: chat::PROXY,
    },
    Section {
        title: "The log of turns",
        keys: chat::TURNS,
    },
    Section {
        title: "Lessons: wishes and skills",
        keys: chat::LESSONS,
    },
    Section {
        title: "Who says whether a reply did its job",
        keys: learning::JUDGE,
    },
    Section {
        title: "Training",
        keys: learning::RL,
    },
    Section {
        title: "The local trainer and what serves",
        keys: learning::TRAINER,
    },
    Section {
        title: "When learning that costs something may run (docs/scheduler.md)",
        keys: learning::SCHEDULER,
    },
    Section {
        title: "Single agents",
        keys: older::AGENTS,
    },
    Section {
        title: "Older keys, read and without effect",
        keys: older::OLDER,
    },
];

pub(crate) fn keys() -> impl Iterator<Item = &'static Key> {
    TABLE.iter().flat_map(|section| section.keys)
}

/// The key at `path`.
pub(crate) fn find(path: &str) -> Option<&'static Key> {
    keys().find(|key| key.is_at(path))
}

/// Whether keys lie below `path`.
pub(crate) fn is_section(path: &str) -> bool {
    keys().any(|key| key.is_below(path))
}

/// The known key that reads most like `path`, where one is near enough to be meant.
pub(crate) fn nearest(path: &str) -> Option<&'static str> {
    let close = |key: &'static Key| (key.path, strsim::damerau_levenshtein(key.path, path));
    let (best, distance) = keys()
        .filter(|key| !matches!(key.state, State::Inert(_)))
        .map(close)
        .min_by_key(|(_, distance)| *distance)?;
    (distance <= path.len().div_ceil(3)).then_some(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_stands_twice_and_each_default_is_allowed() {
        let mut seen = std::collections::BTreeSet::new();
        for key in keys() {
            assert!(seen.insert(key.path), "{} stands twice", key.path);
            if !key.default.is_empty() {
                let default = super::super::yaml::parse(key.default).unwrap();
                assert!(
                    key.kind.parse(&default).is_some(),
                    "default of {}",
                    key.path
                );
            }
            if let State::Alias(target) = key.state {
                assert_eq!(find(target).map(|it| it.kind), Some(key.kind), "{target}");
            }
        }
    }

    #[test]
    fn a_misspelt_key_finds_its_neighbour() {
        assert_eq!(nearest("rl.batchsize"), Some("rl.batch_size"));
        assert_eq!(nearest("proxy.prot"), Some("proxy.port"));
        assert_eq!(nearest("something.else.entirely"), None);
        assert!(is_section("rl"));
        assert!(is_section("upstreams.mine"));
        assert!(!is_section("rl.batch_size"));
    }
}
