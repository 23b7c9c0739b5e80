//! Texts that leave the machine to train on: asked for once per home, in words.

use std::{
    io::{self, BufRead, IsTerminal, Write},
    path::Path,
};

use anyhow::bail;

use crate::{
    address::host,
    config::{Config, Policy, edit},
};

const KEY: &str = "privacy.cloud_training_ok";

/// Whether it is settled if texts may be sent away to train on; asks a person, and writes the answer into `file`.
///
/// # Errors
/// Nobody can be asked, or the answer cannot be written.
pub(super) fn settle(config: &Config, policy: &Policy, file: &Path) -> anyhow::Result<()> {
    let Some(url) = policy.elsewhere() else {
        return Ok(());
    };
    if config.privacy.cloud_training_ok.is_some() {
        return Ok(());
    }
    let key = match policy {
        Policy::Cloud(_) => "rl.backend",
        Policy::None | Policy::Local { .. } | Policy::Remote { .. } => "rl.remote_url",
    };
    let question = format!(
        "Training happens at {} ({key}), not on this machine: what you and your agents say, tool results \
         included, would be sent there to train on, for as long as it is configured. Secrets of known shapes are masked, \
         and such turns are not trained on.",
        host(url)
    );
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        bail!(
            "{question} Nobody can be asked here: `metaclaw config {KEY} true` allows it, `false` serves without training"
        );
    }
    let answer = ask(&question, &mut io::stdin().lock(), &mut io::stderr().lock())?;
    edit::set_in_file(file, KEY, if answer { "true" } else { "false" })?;
    Ok(())
}

/// Asks until the answer is one.
fn ask(question: &str, from: &mut impl BufRead, to: &mut impl Write) -> anyhow::Result<bool> {
    writeln!(to, "{question}")?;
    loop {
        write!(to, "May it? It is asked once ({KEY}). [yes/no] ")?;
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
