//! `metaclaw setup`: the questions of the original's wizard, each answer tried as it is given.
//!
//! Enter takes what is preset: what the file says, else what the agent itself is set to, else what is
//! usual. What is written has a comment that says what it is for, and every other line of the file stays.

use std::{
    io::{self, IsTerminal, Read},
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use metaclaw_chat::Secret;
use metaclaw_settings::{Loaded, edit, providers};

use self::{
    answers::SetupAnswers,
    detected::Detected,
    interview::Interview,
    models::{ModelServer, OfferedModels},
};
use super::context::Context;
use crate::{agent::wiring, out, prompt::TerminalPrompt};

mod answers;
mod cloud;
mod detected;
mod interview;
mod learning;
mod models;
mod offer;

/// The longest key on standard input.
const MAX_KEY: u64 = 64 << 10;
/// What must be given where nobody can be asked.
const NEEDED: &str = "without a terminal, or with --non-interactive, the answers are flags, --provider NAME (or --api-base URL) and --model ID; the key by --api-key-env VARIABLE or --api-key-stdin (without one, what callers show passes); --mode, --port and --skills-dir where the defaults do not suit:\n  metaclaw setup --provider openai --model gpt-4o --api-key-env OPENAI_API_KEY";

/// Arguments of `setup`.
#[derive(Debug, Default, Args)]
pub(crate) struct SetupArgs {
    /// Who has the model: openai, anthropic, gemini, openrouter, deepseek, kimi, qwen, minimax, novita,
    /// volcengine, ollama, lmstudio, or custom.
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,
    /// Its address, where it is not the provider's own.
    #[arg(long, value_name = "URL")]
    api_base: Option<String>,
    /// The model to ask for.
    #[arg(long, value_name = "ID")]
    model: Option<String>,
    /// The environment variable with the key. Its value is stored in config.yaml, which only you can read.
    #[arg(long, value_name = "VARIABLE", conflicts_with = "api_key_stdin")]
    api_key_env: Option<String>,
    /// The key comes on standard input.
    #[arg(long)]
    api_key_stdin: bool,
    /// auto, rl or skills_only.
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
    /// The file, in place of config.yaml in the home folder.
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
}

// === impl SetupArgs ===

impl SetupArgs {
    /// Does it.
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<ExitCode> {
        context.home.create()?;
        let file = self.config.clone().unwrap_or_else(|| context.home.config());
        let loaded = context
            .settings_of(file.clone())
            .context("setup goes on from the settings as they are, and these cannot be read")?;
        let agent = detected::agent(context).unwrap_or_else(|error| {
            out::aside(format!("nothing is preset from OpenClaw: {error:#}"));
            None
        });
        let preset = agent.as_ref().map(Detected::from);
        let answers = SetupAnswers::new(&loaded, self.given(context)?, preset);
        let prompt = if self.non_interactive || self.api_key_stdin {
            None
        } else {
            TerminalPrompt::on_terminal()
        };
        let (answers, may_wire) = match prompt {
            Some(prompt) => {
                let asking = Interview {
                    prompt,
                    answers,
                    loaded: &loaded,
                    context,
                    agent: agent.as_ref(),
                };
                match asking.run(!self.no_check).await {
                    Err(error) if is_end(&error) => {
                        bail!("the questions ended: nothing was written")
                    }
                    other => other?,
                }
            }
            None => (self.without_questions(&loaded, answers).await?, false),
        };
        write(&file, &answers)?;
        if let Some(agent) = agent.as_ref().filter(|_| may_wire) {
            wiring(&context.home).accept(agent)?;
        }
        let may_be_wired = agent.is_some() && loaded.config.wires_agent();
        out::line(next(context, may_be_wired)?)?;
        Ok(ExitCode::SUCCESS)
    }

    /// The keys that flags set.
    fn given(&self, context: &Context) -> anyhow::Result<Vec<(&'static str, String)>> {
        let path = |path: &Option<PathBuf>| path.as_ref().map(|it| absolute(it));
        let flags = [
            ("mode", self.mode.clone()),
            ("llm.provider", self.provider.clone()),
            ("llm.api_base", self.api_base.clone()),
            ("llm.model_id", self.model.clone()),
            ("llm.api_key", self.api_key(context)?),
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
        let mut key = String::new();
        io::stdin().lock().take(MAX_KEY).read_to_string(&mut key)?;
        let key = key.trim().to_owned();
        ensure!(!key.is_empty(), "--api-key-stdin: nothing was given");
        Ok(Some(key))
    }

    /// All answers from flags and from the settings as they are.
    async fn without_questions(
        &self,
        loaded: &Loaded,
        mut answers: SetupAnswers,
    ) -> anyhow::Result<SetupAnswers> {
        answers.complete();
        answers.take_found(loaded);
        let (Some(base), Some(model)) = (answers.get("llm.api_base"), answers.get("llm.model_id"))
        else {
            if let Some(name) = self.provider.as_deref().filter(|it| *it != "custom") {
                ensure!(
                    providers::named(name).is_some(),
                    "--provider {name:?} is not known: {}, or custom with --api-base",
                    known()
                );
            }
            bail!("{NEEDED}");
        };
        let server = ModelServer {
            base: base.to_owned(),
            key: answers.key(loaded).map(Secret::from),
        };
        if !self.no_check {
            let seen = models::ask(&server).await;
            out::aside(format!("  {seen}"));
            ensure!(
                !seen.is_failure(),
                "nothing was written: mend this, or add --no-check"
            );
            if let OfferedModels::Listed(listed) = &seen
                && !listed.iter().any(|it| it == model)
            {
                bail!(
                    "{}; nothing was written: name another, or add --no-check",
                    models::missed(model, listed)
                );
            }
        }
        Ok(answers)
    }
}

/// Whether nobody answers any more.
fn is_end(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<io::Error>();
    error.is_some_and(|it| it.kind() == io::ErrorKind::UnexpectedEof)
}

/// A path as it stands in a file: it is read from other folders later.
fn absolute(path: &Path) -> String {
    let whole = match path.to_str() {
        Some("demo") => Ok(path.to_owned()),
        Some(text) if text.starts_with("~/") => Ok(path.to_owned()),
        _ => std::path::absolute(path),
    };
    let whole = whole.unwrap_or_else(|_| path.to_owned());
    whole.to_string_lossy().into_owned()
}

/// The names that a provider may have.
fn known() -> String {
    let names: Vec<&str> = providers::PROVIDERS.iter().map(|it| it.name).collect();
    names.join(", ")
}

/// Writes what is new, and says so.
fn write(file: &Path, answers: &SetupAnswers) -> anyhow::Result<()> {
    let changes = answers.changes();
    let shown = file.display();
    if changes.is_empty() {
        out::line(format!("{shown} says all of this already"))?;
    } else {
        edit::answer_in_file(file, &changes)?;
        out::line(format!("written to {shown}:"))?;
        for (key, value) in &changes {
            out::line(format!(
                "  {key}: {}",
                answers::shown(key, value.as_deref())
            ))?;
        }
    }
    Ok(())
}

/// What comes next.
fn next(context: &Context, may_be_wired: bool) -> anyhow::Result<&'static str> {
    Ok(if context.home.holder()?.is_some() {
        "next: metaclaw stop, and metaclaw start, so that the running one takes it"
    } else if may_be_wired && wiring(&context.home).record()?.is_none() {
        "next: metaclaw start (with --yes OpenClaw is pointed at it, without it stays as it is)"
    } else {
        "next: metaclaw start"
    })
}
