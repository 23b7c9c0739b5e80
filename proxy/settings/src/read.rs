//! Reads the tree of all layers into structs, and says which key does not fit; with `--set KEY=VALUE`, also the settings
//! of one run.

use anyhow::{bail, ensure};
use metaclaw_learner::LearnerConfig;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use serde_path_to_error::Segment;

use crate::{
    error::SettingsError,
    layer::{Layer, Origin},
};

/// The sections that determine how a step is made.
const SECTIONS: [&str; 2] = ["rl.", "gate."];

/// Lays layers on a tree, the last on top.
pub(crate) fn laid_on(mut tree: Value, layers: &[Layer]) -> Value {
    for (path, value) in layers.iter().flat_map(Layer::values) {
        let place = path.split('.').fold(&mut tree, |place, name| {
            if !place.is_object() {
                *place = Map::new().into();
            }
            &mut place[name]
        });
        place.clone_from(value);
    }
    tree
}

/// Reads a struct from the tree of these layers.
///
/// # Errors
///
/// [`SettingsError::Room`].
pub(crate) fn read<T: DeserializeOwned>(
    tree: &Value,
    layers: &[Layer],
) -> Result<T, SettingsError> {
    serde_path_to_error::deserialize(tree).map_err(|error| {
        let names = error.path().iter().filter_map(|segment| match segment {
            Segment::Map { key } => Some(key.clone()),
            Segment::Seq { index } => Some(index.to_string()),
            Segment::Enum { .. } | Segment::Unknown => None,
        });
        let key = names.collect::<Vec<_>>().join(".");
        let message = error.inner().to_string();
        SettingsError::Room {
            origin: origin(layers, &key)
                .map_or_else(|| "the configuration".to_owned(), ToString::to_string),
            message: in_our_words(&message).unwrap_or(message),
            key,
        }
    })
}

/// The source of what stands at a place, or above or below it.
fn origin<'a>(layers: &'a [Layer], place: &str) -> Option<&'a Origin> {
    let is_within = |outer: &str, inner: &str| {
        let rest = inner.strip_prefix(outer);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    let is_there = |key: &String| is_within(key, place) || is_within(place, key);
    let mut holders = layers.iter().rev();
    let holder = holders.find(|layer| layer.values().keys().any(is_there));
    holder.map(Layer::origin)
}

/// What serde says of a word that is not among those allowed, as all other messages say it.
fn in_our_words(error: &str) -> Option<String> {
    let (given, allowed) = error
        .strip_prefix("unknown variant `")?
        .split_once("`, expected ")?;
    let words = allowed.trim_start_matches("one of ").replace('`', "");
    let allowed = words.replace(" or ", ", ");
    Some(format!("{given:?} is not allowed: {allowed}"))
}

/// Returns settings of the learner with some keys changed, each given by its full name, such as `rl.batch_size`.
///
/// # Errors
/// Returns an error for an unknown key, for one that is not in these settings, and for a value that is not allowed.
pub fn overridden(
    settings: &LearnerConfig,
    set: &[(String, String)],
) -> anyhow::Result<LearnerConfig> {
    let known = settings.to_value()?;
    let mut layer = Layer::empty(Origin::Flags);
    for (key, value) in set {
        layer.set(key, &value.as_str().into());
        let pointer = format!("/{}", key.replace('.', "/"));
        let is_of_step = SECTIONS.iter().any(|section| key.starts_with(section));
        let is_known = is_of_step && known.pointer(&pointer).is_some();
        if let Some(unknown) = layer.unknown.first() {
            bail!("--set: {unknown}");
        }
        ensure!(
            is_known,
            "--set {key}: that says nothing about how a step is made; keys of rl.* and gate.* do"
        );
    }
    if !layer.problems.is_empty() {
        return Err(SettingsError::Values(layer.problems).into());
    }
    if let Some(inert) = layer.inert.first() {
        bail!("--set {}: {}", inert.key, inert.reason);
    }
    let layers = [layer];
    Ok(read(&laid_on(known, &layers), &layers)?)
}

/// Splits `KEY=VALUE`.
///
/// # Errors
/// Returns a message if there is no `=`.
pub fn key_and_value(text: &str) -> Result<(String, String), String> {
    let (key, value) = text
        .split_once('=')
        .ok_or_else(|| "KEY=VALUE, as in rl.learning_rate=1e-4".to_owned())?;
    Ok((key.trim().to_owned(), value.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::lines;

    fn set(pairs: &[(&str, &str)]) -> anyhow::Result<LearnerConfig> {
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        let pairs: Vec<(String, String)> = pairs.iter().map(owned).collect();
        let mut held = LearnerConfig::default();
        held.rl.lora_rank = 8;
        overridden(&held, &pairs)
    }

    #[test]
    fn what_is_set_holds_and_the_rest_stays() {
        let config = set(&[
            ("rl.learning_rate", "1e-4"),
            ("rl.method", "redo"),
            ("gate.enabled", "false"),
        ])
        .unwrap();
        assert_eq!(config.rl.learning_rate, Some(1e-4));
        assert_eq!(config.rl.method.to_string(), "context_distillation");
        assert_eq!((config.rl.lora_rank, config.gate.enabled), (8, false));
        assert_eq!(set(&[]).unwrap().rl.lora_rank, 8);
    }

    #[test]
    fn what_is_not_known_not_allowed_or_of_no_effect_is_refused_in_words() {
        let asked = [
            ("rl.batch_sise", "4"),
            ("rl.batch_size", "many"),
            ("rl.remote_url", "http://a"),
        ];
        let said = asked.map(|pair| set(&[pair]).unwrap_err());
        insta::assert_snapshot!(lines(&said), @r#"
        --set: unknown key rl.batch_sise in the command line: did you mean rl.batch_size?
        rl.batch_size in the command line: "many" is not allowed: a whole number, 1 or more
        --set rl.remote_url: that says nothing about how a step is made; keys of rl.* and gate.* do
        "#);
    }

    #[test]
    fn a_pair_is_split_at_its_first_equals_sign() {
        let pair = key_and_value("rl.targets = [a=b]").unwrap();
        assert_eq!(pair, ("rl.targets".to_owned(), "[a=b]".to_owned()));
        assert!(key_and_value("rl.targets").is_err());
    }
}
