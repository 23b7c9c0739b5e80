//! Settings of one run that override those in force: `--set KEY=VALUE`.

use anyhow::{bail, ensure};
use metaclaw_learner::LearnerConfig;

use super::{
    error::SettingsError,
    layer::{Layer, Origin},
    read::{laid_on, read},
};

/// The sections that determine how a step is made.
const SECTIONS: [&str; 2] = ["rl.", "gate."];

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

    fn set(pairs: &[(&str, &str)]) -> anyhow::Result<LearnerConfig> {
        let pairs: Vec<(String, String)> = pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect();
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
        let refusal = |key: &str, value: &str| set(&[(key, value)]).unwrap_err().to_string();
        insta::assert_snapshot!(refusal("rl.batch_sise", "4"));
        insta::assert_snapshot!(refusal("rl.batch_size", "many"));
        insta::assert_snapshot!(refusal("rl.remote_url", "http://a"));
    }

    #[test]
    fn a_pair_is_split_at_its_first_equals_sign() {
        let pair = key_and_value("rl.targets = [a=b]").unwrap();
        assert_eq!(pair, ("rl.targets".to_owned(), "[a=b]".to_owned()));
        assert!(key_and_value("rl.targets").is_err());
    }
}
