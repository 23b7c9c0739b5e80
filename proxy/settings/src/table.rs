//! Every key there is, ours and those of the Python original, with what becomes of each.
//!
//! Keys that work are read from the schemas of the structs that hold them: paths and defaults from the fields, help from
//! their doc comments, kinds from their types and bounds. `config.example.yaml` and `docs/operating/config.md` are made from
//! it, unknown keys are found by it, and values are checked by it before any struct is read.

use std::sync::LazyLock;

use metaclaw_gateway::GatewayConfig;
use metaclaw_learner::LearnerConfig;
use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::Value;

use crate::{
    key::{Key, KeyState},
    kind::{ValueForm, ValueKind},
    sections::Config,
    unsupported_keys,
};

/// Smaller numbers than this are written with an exponent.
const LEAST_PLAIN: f64 = 1e-4;

/// Letters of a beginning that says what is meant.
const MIN_BEGUN: usize = 4;

#[derive(Debug, Clone, Copy)]
pub(crate) struct TableSection {
    pub(crate) title: &'static str,
    /// The first parts of the paths of its keys, with spaces between them.
    roots: &'static str,
}

pub(crate) static SECTIONS: LazyLock<Vec<TableSection>> = LazyLock::new(|| {
    let lines = include_str!("../data/sections.txt").lines();
    let rows = lines.filter(|line| !line.starts_with('#'));
    let parts = rows.filter_map(|row| row.rsplit_once(": "));
    parts
        .map(|(title, roots)| TableSection { title, roots })
        .collect()
});

static KEYS: LazyLock<Vec<Key>> = LazyLock::new(|| {
    let mut keys = own_keys();
    keys.extend(unsupported_keys::keys(&keys));
    keys
});

pub(crate) fn keys() -> impl Iterator<Item = &'static Key> {
    KEYS.iter()
}

pub(crate) fn working() -> impl Iterator<Item = &'static Key> {
    keys().filter(|key| key.state == KeyState::Works)
}

// === impl TableSection ===

impl TableSection {
    pub(crate) fn keys(&self) -> Vec<&'static Key> {
        let below = |root| working().filter(move |key| key.path.split('.').next() == Some(root));
        self.roots.split(' ').flat_map(below).collect()
    }
}

pub(crate) fn find(path: &str) -> Option<&'static Key> {
    keys().find(|key| key.is_at(path))
}

pub(crate) fn is_section(path: &str) -> bool {
    keys().any(|key| key.is_below(path))
}

/// The known key that reads most like `path`, where one is near enough to be meant: of those beside it first. Of
/// an older name, the new one.
pub(crate) fn nearest(path: &str) -> Option<&'static str> {
    let (section, given) = split(path);
    let beside = worth_a_hint().filter_map(|key| {
        let own = split(&key.path).1;
        let here = [section, own].join(".");
        key.is_at(here.trim_start_matches('.'))
            .then_some((own, key))
    });
    let all = worth_a_hint().map(|key| (&*key.path, key));
    let key = closest(given, beside).or_else(|| closest(path, all))?;
    Some(match &key.state {
        KeyState::SameAs(target) => target,
        KeyState::Works | KeyState::WithoutEffect(_) | KeyState::Refused(_) => &key.path,
    })
}

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

fn worth_a_hint() -> impl Iterator<Item = &'static Key> {
    keys().filter(|key| !matches!(key.state, KeyState::WithoutEffect(_)))
}

/// A path as its section, empty at the top, and what stands there.
fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('.').unwrap_or(("", path))
}

/// What reads most like `given`: a third of its letters may be wrong, or be missing at the end of either.
pub(crate) fn closest<T>(given: &str, known: impl Iterator<Item = (&'static str, T)>) -> Option<T> {
    let distance = |known: &str| {
        let is_begun = given.len() >= MIN_BEGUN && known.starts_with(given);
        if is_begun || (known.len() >= MIN_BEGUN && given.starts_with(known)) {
            return 1;
        }
        strsim::damerau_levenshtein(known, given)
    };
    let near = known.map(|(text, key)| (distance(text), key));
    let (distance, best) = near.min_by_key(|(distance, _)| *distance)?;
    (distance <= given.len().div_ceil(3)).then_some(best)
}

fn own_keys() -> Vec<Key> {
    let mut keys = Vec::new();
    for schema in [
        schema_of::<Config>(),
        schema_of::<GatewayConfig>(),
        schema_of::<LearnerConfig>(),
    ] {
        collect("", &schema, &mut keys);
    }
    keys
}

fn schema_of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|it| it.inline_subschemas = true);
    settings.into_generator().into_root_schema_for::<T>().into()
}

fn collect(prefix: &str, schema: &Value, keys: &mut Vec<Key>) {
    let properties = schema["properties"].as_object();
    for (name, property) in properties.into_iter().flatten() {
        let path = format!("{prefix}{name}");
        if property["properties"].is_object() {
            collect(&format!("{path}."), property, keys);
        } else if property["additionalProperties"].is_object() {
            let named = &property["additionalProperties"];
            collect(&format!("{path}.*."), named, keys);
        } else {
            keys.push(key_of(path, property));
        }
    }
}

fn key_of(path: String, property: &Value) -> Key {
    let values = unsupported_keys::values(&path);
    let mut kind = ValueKind::from_schema(property);
    if let ValueKind::One(ValueForm::Word(words)) = &mut kind {
        words.extend(values.keys().cloned());
    }
    let help = property["description"].as_str().unwrap_or_default();
    Key {
        default: default_of(property, &kind),
        help: help.split_whitespace().collect::<Vec<_>>().join(" "),
        state: KeyState::Works,
        path,
        kind,
        values,
    }
}

fn default_of(property: &Value, kind: &ValueKind) -> String {
    match &property["default"] {
        Value::Null => String::new(),
        Value::Array(items) if items.is_empty() && matches!(kind, ValueKind::List(_, 1)) => {
            String::new()
        }
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(|item| scalar(item, property)).collect();
            format!("[{}]", items.join(", "))
        }
        one => scalar(one, property),
    }
}

fn scalar(value: &Value, property: &Value) -> String {
    match value {
        Value::String(text) if text.is_empty() => String::new(),
        // Whether YAML reads it back as it is, and would in 1.1, which takes 23:00 for a number.
        Value::String(text) if text.contains([':', ',', '[', ']', '{', '}', '#']) => {
            Value::from(text.as_str()).to_string()
        }
        Value::String(text) => text.clone(),
        // A single-precision number has more digits in double precision than somebody wrote.
        Value::Number(number) if property["format"] == "float" => number
            .to_string()
            .parse::<f32>()
            .map_or_else(|_| number.to_string(), |float| float.to_string()),
        Value::Number(number) => match number.as_f64() {
            Some(it) if it != 0.0 && it.abs() < LEAST_PLAIN => format!("{it:e}"),
            Some(it) => it.to_string(),
            None => number.to_string(),
        },
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_stands_twice_and_each_has_help_and_a_default_that_is_allowed() {
        let mut seen = std::collections::BTreeSet::new();
        for key in keys() {
            assert!(seen.insert(&key.path), "{} stands twice", key.path);
        }
        for key in working() {
            let is_sentence = key.help.ends_with(['.', ')']) && !key.help.contains("[`");
            assert!(is_sentence, "{}: {:?}", key.path, key.help);
            if !key.default.is_empty() {
                let default = crate::yaml::value(&key.default).unwrap();
                let read = key.kind.parse(&default);
                assert!(read.is_some(), "default of {}: {}", key.path, key.default);
            }
        }
        let in_sections: usize = SECTIONS.iter().map(|section| section.keys().len()).sum();
        assert_eq!(
            in_sections,
            working().count(),
            "each root is in one section"
        );
    }

    #[test]
    fn a_misspelt_key_finds_its_neighbour() {
        assert_eq!(nearest("rl.batchsize"), Some("rl.batch_size"));
        assert_eq!(nearest("proxy.prot"), Some("proxy.port"));
        assert_eq!(nearest("something.else.entirely"), None);
        // Those beside it come first, and an older name gives way.
        assert_eq!(nearest("llm.model_name"), Some("llm.model_id"));
        assert_eq!(nearest("llm.apikey"), Some("llm.api_key"));
        let found = nearest("upstreams.mine.model_id");
        assert_eq!(found, Some("upstreams.*.model"));
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
