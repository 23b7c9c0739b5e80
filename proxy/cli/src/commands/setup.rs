//! `metaclaw setup` asks for a provider and a model, and tests each answer at once.
//!
//! Enter accepts the preset value: that of the settings, else the agent's own, else the usual one. Each key that is
//! written gets a comment that explains it. All other lines of the file stay.

use std::{
    io::{self, IsTerminal},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use metaclaw_chat::Secret;
use metaclaw_settings::{edit, providers};
use metaclaw_wiring::{Found, OPENCLAW, detect};

use self::{
    answers::{ADDRESS, KEY, MODE, MODEL, PROVIDER, SetupAnswers},
    interview::Interview,
};
use super::{
    context::Context,
    models::{ModelList, ModelServer, lists, missed},
};
use crate::{
    out,
    prompt::{self, TerminalPrompt},
    wires::{surroundings, wires},
};

pub(crate) mod answers;
mod interview;

const NEEDED: &str = "without a terminal, or with --non-interactive, the answers are flags, --provider NAME (or --api-base URL); --model ID (without one, each agent keeps the model that it names); the key by --api-key-env VARIABLE or --api-key-stdin (without one, what callers show passes); --mode, --port and --skills-dir where the defaults do not suit:\n  metaclaw setup --provider openai --model gpt-4o --api-key-env OPENAI_API_KEY";

#[derive(Debug, Default, Args)]
pub(crate) struct SetupArgs {
    /// The provider: openai, anthropic, gemini, openrouter, deepseek, kimi, qwen, minimax, novita, volcengine, ollama,
    /// lmstudio, or custom.
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,
    /// The address of the API, if it is not the provider's own.
    #[arg(long, value_name = "URL")]
    api_base: Option<String>,
    /// The model to ask for. Without it, the one that each agent names.
    #[arg(long, value_name = "ID")]
    model: Option<String>,
    /// The environment variable with the key, which is stored in config.yaml. Only you can read this file.
    #[arg(long, value_name = "VARIABLE", conflicts_with = "api_key_stdin")]
    api_key_env: Option<String>,
    /// Read the key from standard input.
    #[arg(long)]
    api_key_stdin: bool,
    /// What learns: skills_only (wishes and skills), auto (weights too, while you are away) or rl (weights at any time).
    #[arg(short, long)]
    mode: Option<String>,
    /// The folder of skills.
    #[arg(long, value_name = "DIR")]
    skills_dir: Option<PathBuf>,
    /// The model whose weights are trained: a folder in Hugging Face form, a GGUF file, or demo.
    #[arg(long, value_name = "PATH")]
    trainer_model: Option<PathBuf>,
    /// Ask nothing.
    #[arg(long)]
    non_interactive: bool,
    /// Write the answers without trying them.
    #[arg(long)]
    no_check: bool,
    /// The file of settings. Without it, config.yaml in the home folder.
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
}

// === impl SetupArgs ===

impl SetupArgs {
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<()> {
        context.home.create()?;
        let file = self.config.clone().unwrap_or_else(|| context.home.config());
        let loaded = context
            .settings_of(file.clone())
            .context("setup goes on from the settings as they are, and these cannot be read")?;
        let agent = unwired_agent(context).unwrap_or_else(|error| {
            out::aside(format!("nothing is preset from OpenClaw: {error:#}"));
            None
        });
        let answers = SetupAnswers::new(&loaded, self.given(context)?, agent.as_ref());
        let may_ask = !(self.non_interactive || self.api_key_stdin);
        let (answers, may_wire) = match TerminalPrompt::on_terminal().filter(|_| may_ask) {
            Some(prompt) => {
                let interview = Interview {
                    prompt,
                    answers,
                    context,
                    agent: agent.as_ref(),
                    tries: !self.no_check,
                };
                match interview.run().await {
                    Err(error) if is_end(&error) => {
                        bail!("the questions ended: nothing was written")
                    }
                    other => other?,
                }
            }
            None => (self.without_questions(answers).await?, false),
        };
        write(&file, answers)?;
        let wires = wires(&context.home);
        if let Some(agent) = agent.as_ref().filter(|_| may_wire) {
            wires.accept_found(agent)?;
        }
        let may_be_wired = agent.is_some() && loaded.config.wires_agent();
        out::line(if context.home.holder()?.is_some() {
            "next: metaclaw stop, and metaclaw start, so that the running one takes it"
        } else if may_be_wired && wires.record(OPENCLAW)?.is_none() {
            "next: metaclaw start (with --yes OpenClaw is pointed at it, without it stays as it is)"
        } else {
            "next: metaclaw start"
        })?;
        Ok(())
    }

    fn given(&self, context: &Context) -> anyhow::Result<Vec<(&'static str, String)>> {
        let path = |path: &Option<PathBuf>| path.as_deref().map(absolute);
        let flags = [
            (MODE, self.mode.clone()),
            (PROVIDER, self.provider.clone()),
            (ADDRESS, self.api_base.clone()),
            (MODEL, self.model.clone()),
            (KEY, self.api_key(context)?),
            ("proxy.port", context.port.clone()),
            ("skills.dir", path(&self.skills_dir)),
            ("trainer.model", path(&self.trainer_model)),
        ];
        let given = flags.into_iter();
        Ok(given
            .filter_map(|(key, value)| Some((key, value?)))
            .collect())
    }

    fn api_key(&self, context: &Context) -> anyhow::Result<Option<String>> {
        if let Some(name) = &self.api_key_env {
            let key = context.environment.get(name);
            let key = key.with_context(|| format!("--api-key-env: {name} is not set"))?;
            return Ok(Some(key.trim().to_owned()));
        }
        if !self.api_key_stdin {
            return Ok(None);
        }
        ensure!(
            !io::stdin().is_terminal(),
            "--api-key-stdin: standard input is a terminal; without the flag, setup asks for the key unseen"
        );
        let key = prompt::secret("").context("--api-key-stdin")?;
        Ok(Some(key))
    }

    async fn without_questions<'a>(
        &self,
        mut answers: SetupAnswers<'a>,
    ) -> anyhow::Result<SetupAnswers<'a>> {
        answers.complete();
        answers.take_found();
        let Some(base) = answers.get(ADDRESS) else {
            if let Some(name) = self.provider.as_deref().filter(|name| *name != "custom") {
                let all = providers::PROVIDERS.iter();
                let known: Vec<&str> = all.map(|provider| provider.name).collect();
                ensure!(
                    known.contains(&name),
                    "--provider {name:?} is not known: {}, or custom with --api-base",
                    known.join(", ")
                );
            }
            bail!("{NEEDED}");
        };
        if self.no_check {
            return Ok(answers);
        }
        let key = answers.key();
        let server = ModelServer { base, key };
        let list = server.models().await;
        out::aside(format!("  {}", server.describe(&list)));
        ensure!(
            !server.would_fail(&list),
            "nothing was written: mend this, or add --no-check"
        );
        if let (ModelList::Listed(listed), Some(model)) = (&list, answers.get(MODEL)) {
            ensure!(
                lists(listed, &model),
                "{}; nothing was written: name another, or add --no-check",
                missed(&model, listed)
            );
        }
        Ok(answers)
    }
}

/// Returns the model that OpenClaw uses on this machine, unless OpenClaw is pointed at the proxy already. Then its file
/// names the proxy, and the settings have the model.
fn unwired_agent(context: &Context) -> anyhow::Result<Option<Found>> {
    if wires(&context.home).standing(OPENCLAW)?.is_pointed() {
        return Ok(None);
    }
    Ok(detect(&surroundings(&context.environment))?)
}

/// Returns whether the error is the end of the input, so that nobody answers further questions.
fn is_end(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<io::Error>();
    error.is_some_and(|error| error.kind() == io::ErrorKind::UnexpectedEof)
}

/// Returns the path to write into the settings. It is absolute, because the settings are read from other folders later.
/// `demo` and paths below the home folder (`~/`) stay as they are.
fn absolute(path: &Path) -> String {
    let whole = match path.to_str() {
        Some("demo") => Ok(path.to_owned()),
        Some(text) if text.starts_with("~/") => Ok(path.to_owned()),
        _ => std::path::absolute(path),
    };
    let whole = whole.unwrap_or_else(|_| path.to_owned());
    whole.to_string_lossy().into_owned()
}

fn write(file: &Path, answers: SetupAnswers<'_>) -> anyhow::Result<()> {
    let changes = answers.changes();
    let name = file.display();
    if changes.is_empty() {
        return Ok(out::line(format!(
            "{name} has all of these values already"
        ))?);
    }
    edit::answer_in_file(file, &changes)?;
    out::line(format!("written to {name}:"))?;
    for (key, value) in changes {
        let shown = match value {
            None => "taken out".to_owned(),
            Some(secret) if key == KEY => Secret::from(secret).to_string(),
            Some(value) => value,
        };
        out::line(format!("  {key}: {shown}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::Environment;

    #[test]
    fn an_agent_that_cannot_be_read_is_not_taken_for_none() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("openclaw.json");
        std::fs::write(&file, "{agents: {}}").unwrap();
        let file = file.display().to_string();
        for (path, expected) in [
            (file.as_str(), Some("names no model")),
            ("/nonexistent", None),
        ] {
            let environment = Environment::from_pairs([("OPENCLAW_CONFIG_PATH", path)]);
            let home = Some(folder.path().join("home"));
            let found = unwired_agent(&Context::new(environment, home, None));
            match (found, expected) {
                (Err(error), Some(expected)) => {
                    assert!(error.to_string().contains(expected), "{error}");
                }
                (found, expected) => assert_eq!((found.unwrap(), expected), (None, None)),
            }
        }
    }
}
