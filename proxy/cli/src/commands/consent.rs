//! Asks for consent before texts leave the machine for training: once per home, with what a day may cost.

use std::{
    io::{self, IsTerminal},
    path::Path,
};

use anyhow::{Context as _, bail};
use metaclaw_settings::{Config, Policy, address::host, edit};

use crate::prompt::TerminalPrompt;

const KEY: &str = "privacy.cloud_training_ok";

/// Returns whether texts may be sent away for training; asks a person if that is not settled, and writes the answer
/// into `file`.
///
/// `day` says what a day at the service may cost, if that is known.
///
/// # Errors
/// Returns an error if nobody can be asked, or the answer cannot be written.
pub(super) fn settle(
    config: &Config,
    policy: &Policy,
    file: &Path,
    day: impl FnOnce() -> Option<String>,
) -> anyhow::Result<()> {
    if config.privacy.cloud_training_ok.is_some() {
        return Ok(());
    }
    let Some(question) = question(policy, day) else {
        return Ok(());
    };
    let prompt = TerminalPrompt::on_terminal().filter(|_| io::stderr().is_terminal());
    let Some(mut prompt) = prompt else {
        bail!(
            "{question} Nobody can be asked here: `metaclaw config {KEY} true` allows it, `false` serves without training"
        );
    };
    prompt.say(&question)?;
    let asked = format!("May MetaClaw send this there? You are asked once ({KEY}) [yes/no]");
    let answer = prompt.yes(&asked, None);
    let answer = answer.with_context(|| format!("no answer: set {KEY} to true or false"))?;
    edit::set_in_file(file, KEY, &answer.to_string())?;
    Ok(())
}

/// Returns the recipient of the texts and which texts are sent, or `None` if they stay on this machine.
fn question(policy: &Policy, day: impl FnOnce() -> Option<String>) -> Option<String> {
    let host = host(policy.elsewhere()?);
    let masked = "Secrets of known shapes are masked, and such turns are not trained on.";
    let Policy::Cloud(cloud) = policy else {
        return Some(format!(
            "Training happens at {host} (rl.remote_url), not on this machine: what you and your agents say, tool results \
             included, would be sent there to train on, for as long as it is configured. {masked}"
        ));
    };
    let who = cloud.who();
    let day = day().map_or_else(String::new, |told| format!(" For your budget: {told}."));
    Some(format!(
        "{} is trained by {who} (rl.backend), not on this machine. What you and your agents say, tool results \
         included, would be sent there as token ids: chats, so that the model answers them, and turns and wishes, to train on. \
         The adapters made of them stay there. {masked}{day}",
        cloud.model
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use metaclaw_settings::{Layer, Loaded};

    fn policy(backend: &str) -> Policy {
        let text = format!("mode: rl\nrl: {{{backend}}}\n");
        let layer = Layer::text("config.yaml".into(), &text).unwrap();
        let loaded = Loaded::new(vec![layer]).unwrap();
        Policy::from_config(&loaded.config, Path::new("/no/cache")).unwrap()
    }

    #[test]
    fn the_question_names_the_service_and_the_price_of_a_day() {
        let service = "backend: mint, model: Qwen/Qwen3-8B, tinker_api_key: k, tinker_base_url: 'https://mint-cn.macaron.xin'";
        let priced = question(&policy(service), || {
            Some("a day takes about 3.00 USD".to_owned())
        });
        insta::assert_snapshot!(priced.unwrap(), @"Qwen/Qwen3-8B is trained by MinT at mint-cn.macaron.xin (rl.backend), not on this machine. What you and your agents say, tool results included, would be sent there as token ids: chats, so that the model answers them, and turns and wishes, to train on. The adapters made of them stay there. Secrets of known shapes are masked, and such turns are not trained on. For your budget: a day takes about 3.00 USD.");
        let unpriced = question(&policy(service), || None).unwrap();
        assert!(!unpriced.contains("budget"), "{unpriced}");
        let own = "backend: tinker, model: m, tinker_api_key: k, tokenizer: Qwen/Qwen3-8B, tinker_base_url: 'http://10.0.0.5:8000'";
        let own = question(&policy(own), || None).unwrap();
        let begins = "m is trained by the training server at 10.0.0.5:8000 (rl.backend), not on this machine.";
        assert!(own.starts_with(begins), "{own}");
        let here = "backend: tinker, model: Qwen/Qwen3-8B, tinker_api_key: k, tinker_base_url: 'http://127.0.0.1:1'";
        let asked = question(&policy(here), || panic!("nobody is asked"));
        assert_eq!(asked, None);
        let remote = policy("remote_url: 'https://train.example'");
        let asked = question(&remote, || panic!("its price is not known")).unwrap();
        assert!(asked.starts_with("Training happens at train.example (rl.remote_url)"));
    }
}
