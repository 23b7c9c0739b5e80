//! Texts that leave the machine to train on: asked for once per home, in words, with what a day may cost.

use std::{
    io::{self, BufRead, IsTerminal, Write},
    path::Path,
};

use anyhow::bail;
use metaclaw_settings::{Config, Policy, address::host, edit};

const KEY: &str = "privacy.cloud_training_ok";

/// Whether it is settled if texts may be sent away to train on; asks a person, and writes the answer into `file`.
///
/// `day` says what a day at the service may take, where that can be told.
///
/// # Errors
/// Nobody can be asked, or the answer cannot be written.
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
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        bail!(
            "{question} Nobody can be asked here: `metaclaw config {KEY} true` allows it, `false` serves without training"
        );
    }
    let answer = ask(&question, &mut io::stdin().lock(), &mut io::stderr().lock())?;
    edit::set_in_file(file, KEY, if answer { "true" } else { "false" })?;
    Ok(())
}

/// To whom texts would be sent, and which; none where they stay on this machine.
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

/// Asks until the answer is one.
fn ask(question: &str, from: &mut impl BufRead, to: &mut impl Write) -> anyhow::Result<bool> {
    writeln!(to, "{question}")?;
    loop {
        write!(
            to,
            "May MetaClaw send this there? You are asked once ({KEY}). [yes/no] "
        )?;
        to.flush()?;
        let mut line = String::new();
        if from.read_line(&mut line)? == 0 {
            bail!("no answer: set {KEY} to true or false");
        }
        match line.trim().to_ascii_lowercase().as_str() {
            "yes" | "y" => return Ok(true),
            "no" | "n" => return Ok(false),
            _ => writeln!(to, "yes or no?")?,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use metaclaw_settings::{Layer, Loaded};

    fn answered(with: &str) -> (Result<bool, String>, String) {
        let mut shown = Vec::new();
        let answer = ask(
            "Texts would be sent away.",
            &mut with.as_bytes(),
            &mut shown,
        );
        let answer = answer.map_err(|error| error.to_string());
        (answer, String::from_utf8(shown).unwrap())
    }

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

    #[test]
    fn only_a_plain_answer_counts() {
        let (answer, shown) = answered("maybe\n\nYES\n");
        assert_eq!(answer, Ok(true));
        assert_eq!(shown.matches("yes or no?").count(), 2);
        assert!(shown.starts_with("Texts would be sent away.\n"), "{shown}");
        assert_eq!(answered("n\n").0, Ok(false));
        let none = answered("").0.unwrap_err();
        assert_eq!(
            none,
            "no answer: set privacy.cloud_training_ok to true or false"
        );
    }
}
