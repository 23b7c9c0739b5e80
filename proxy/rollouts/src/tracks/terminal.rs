//! The track `terminal`: the model works in a shell, and a script checks what it did.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{
    dialogue::Dialogue,
    error::AgentError,
    policy::PolicyClient,
    reward::EpisodeScore,
    settings::AgentSettings,
    shell::{SandboxShell, set_up},
    task::{self, TaskOptions},
};
use crate::sandbox::{Exec, Sandbox, SandboxError, SandboxFile};

const SYSTEM: &str = "You do a task in a Linux shell. Run commands with the tool bash, one at a time, and read their \
                      output. If you cannot call tools, write one command in a code block that begins with ```bash. \
                      There is no network. When the task is done, say so without a command.";

#[derive(Debug, Deserialize)]
struct TerminalTask {
    prompt: String,
    #[serde(default)]
    system: Option<String>,
    /// The files of the work folder at the beginning, by name.
    #[serde(default)]
    files: BTreeMap<String, String>,
    /// A script that runs before the model is asked.
    #[serde(default)]
    setup: Option<String>,
    /// A script that runs after the model has ended.
    check: String,
    /// Files that are written before the check. The model never sees them.
    #[serde(default)]
    check_files: BTreeMap<String, String>,
    #[serde(skip)]
    options: TaskOptions,
}

/// Runs one task.
///
/// # Errors
/// If the task, the sandbox or the model cannot be used.
pub(super) async fn run(
    settings: &AgentSettings,
    http: reqwest::Client,
) -> Result<EpisodeScore, AgentError> {
    let mut task: TerminalTask = task::read(settings)?;
    task.options = task::read(settings)?;
    let sandbox = Sandbox::start(settings.sandbox, &task.options.sandbox).await?;
    let score = run_in(&task, &sandbox, settings, http).await;
    sandbox.close().await?;
    score
}

async fn run_in(
    task: &TerminalTask,
    sandbox: &Sandbox,
    settings: &AgentSettings,
    http: reqwest::Client,
) -> Result<EpisodeScore, AgentError> {
    let options = &task.options;
    write(sandbox, &task.files).await?;
    if let Some(setup) = &task.setup {
        set_up(sandbox, setup, options).await?;
    }
    let policy = PolicyClient::new(http, settings, options);
    let mut shell = SandboxShell::new(sandbox, options);
    let system = shell.system_prompt(task.system.as_deref().unwrap_or(SYSTEM));
    let dialogue = Dialogue::new(&system, &options.earlier, task.prompt.as_str());
    dialogue
        .run(&policy, &mut shell, options.turns(settings))
        .await?;
    match write(sandbox, &task.check_files).await {
        Ok(()) => {}
        // The model has filled the disk.
        Err(AgentError::Sandbox(SandboxError::Copy { .. })) => {
            return Ok(EpisodeScore::of_outcome(0.0));
        }
        Err(error) => return Err(error),
    }
    let check = Exec::script(&task.check).within(options.check_time());
    Ok(EpisodeScore::of_check(&sandbox.exec(&check).await?))
}

async fn write(sandbox: &Sandbox, files: &BTreeMap<String, String>) -> Result<(), AgentError> {
    let files = files.iter().map(|(name, content)| SandboxFile {
        name,
        content: content.as_bytes(),
    });
    Ok(sandbox.write_files(&files.collect::<Vec<_>>()).await?)
}
