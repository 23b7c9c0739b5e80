//! Every key there is, in one table: ours and those of the Python original, with what becomes of
//! each. `config.example.yaml` and `docs/operating/config.md` are made from it, unknown keys are found by it,
//! and values are checked by it before any room reads them.

use super::key::{Key, Section, State};

mod chat;
mod learning;
mod older;
mod shared;

/// Letters of a beginning that says what is meant.
const MIN_BEGUN: usize = 4;
pub(super) use self::shared::{NO_BEDROCK, NO_MEMORY};

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
        title: "Who writes skills from what went wrong",
        keys: learning::EVOLVER,
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
        title: "When learning that costs something may run (docs/operating/scheduler.md)",
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

/// The known key that reads most like `path`, where one is near enough to be meant: of those beside it first. Of
/// an older name, the new one.
pub(crate) fn nearest(path: &str) -> Option<&'static str> {
    let (section, given) = split(path);
    let beside = works().filter_map(|key| {
        let own = split(key.path).1;
        let here = [section, own].join(".");
        key.is_at(here.trim_start_matches('.'))
            .then_some((own, key))
    });
    let all = works().map(|key| (key.path, key));
    let key = closest(given, beside).or_else(|| closest(path, all))?;
    Some(match key.state {
        State::Alias(target) => target,
        State::Done | State::Inert(_) | State::Refused(_) => key.path,
    })
}

/// The section that reads most like `path`, in the same way.
pub(crate) fn nearest_section(path: &str) -> Option<&'static str> {
    let depth = path.matches('.').count();
    let at_depth = |key: &'static Key| {
        let end = key.path.match_indices('.').nth(depth)?.0;
        key.path.get(..end)
    };
    let sections = keys()
        .filter_map(at_depth)
        .map(|section| (section, section));
    closest(path, sections)
}

/// Keys that are worth a hint.
fn works() -> impl Iterator<Item = &'static Key> {
    keys().filter(|key| !matches!(key.state, State::Inert(_)))
}

/// A path as its section, empty at the top, and what stands there.
fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('.').unwrap_or(("", path))
}

/// What reads most like `given`: a third of its letters may be wrong, or be missing at the end of either.
fn closest<T>(given: &str, known: impl Iterator<Item = (&'static str, T)>) -> Option<T> {
    let distance = |known: &str| {
        let is_begun = given.len() >= MIN_BEGUN && known.starts_with(given);
        if is_begun || (known.len() >= MIN_BEGUN && given.starts_with(known)) {
            return 1;
        }
        strsim::damerau_levenshtein(known, given)
    };
    let near = known.map(|(text, it)| (distance(text), it));
    let (distance, best) = near.min_by_key(|(distance, _)| *distance)?;
    (distance <= given.len().div_ceil(3)).then_some(best)
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
        // Those beside it come first, and an older name gives way.
        assert_eq!(nearest("llm.model_name"), Some("llm.model_id"));
        assert_eq!(nearest("llm.apikey"), Some("llm.api_key"));
        assert_eq!(
            nearest("upstreams.mine.model_id"),
            Some("upstreams.*.model")
        );
        assert_eq!(nearest("llm.modle"), Some("llm.model_id"));
        assert_eq!(nearest("mod"), Some("mode"));
        assert_eq!(nearest_section("llmm"), Some("llm"));
        assert_eq!(nearest_section("schedule"), Some("scheduler"));
        assert_eq!(nearest_section("proxy.key"), Some("proxy.keys"));
        assert_eq!(nearest_section("whatever"), None);
        assert!(is_section("rl"));
        assert!(is_section("upstreams.mine"));
        assert!(!is_section("rl.batch_size"));
    }
}
