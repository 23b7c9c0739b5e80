//! The track `terminal`: the model works in a shell, and a script checks what it did.
//!
//! The check runs in a second sandbox, on a copy of the work folder. No program of the model runs there, and none was
//! running where the files of the check are.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{
    checks::CheckPlace,
    dialogue::Dialogue,
    error::AgentError,
    policy::PolicyClient,
    reward::EpisodeScore,
    settings::AgentSettings,
    shell::{SandboxShell, set_up},
    task::{self, TaskOptions},
};
use crate::sandbox::{Sandbox, SandboxFile};

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
    /// Files that the check alone sees.
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
    let tree = work(&task, &sandbox, settings, http).await;
    sandbox.close().await?;
    let Some(tree) = tree? else {
        return Ok(EpisodeScore::of_outcome(0.0));
    };
    let files = sandbox_files(&task.check_files);
    let place = CheckPlace::start(settings.sandbox, &task.options.sandbox, &[], &files).await?;
    let score = check(&task, &place, tree).await;
    place.close().await?;
    score
}

/// Has the model do the task. Returns its files as a tar archive, or `None` if they cannot be copied: the model has
/// filled the disk, or made files that cannot be read.
async fn work(
    task: &TerminalTask,
    sandbox: &Sandbox,
    settings: &AgentSettings,
    http: reqwest::Client,
) -> Result<Option<Vec<u8>>, AgentError> {
    let options = &task.options;
    sandbox.write_files(&sandbox_files(&task.files)).await?;
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
    let disk_mb = options.sandbox.disk_mb;
    Ok(sandbox.pack(disk_mb, task.check_files.keys(), &[]).await?)
}

async fn check(
    task: &TerminalTask,
    place: &CheckPlace<'_>,
    tree: Vec<u8>,
) -> Result<EpisodeScore, AgentError> {
    if !place.unpack(tree).await? || place.has_link_to_check().await? {
        return Ok(EpisodeScore::of_outcome(0.0));
    }
    let time = task.options.check_time();
    let outcome = place.run(&task.check, &[], time).await?;
    Ok(EpisodeScore::of_check(&outcome))
}

fn sandbox_files(files: &BTreeMap<String, String>) -> Vec<SandboxFile<'_>> {
    let files = files.iter().map(|(name, content)| SandboxFile {
        name,
        content: content.as_bytes(),
    });
    files.collect()
}
