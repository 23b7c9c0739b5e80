//! The track `terminal`: the model works in a shell, and a script checks what it did.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{
    checks::CheckPlace,
    error::AgentError,
    reward::EpisodeScore,
    shell::{ShellTask, set_up},
    task::{self, EpisodeStart, TaskOptions},
};
use crate::sandbox::{Sandbox, SandboxFile};

#[derive(Debug, Deserialize)]
pub(super) struct TerminalTask {
    prompt: String,
    /// The files of the work folder at the beginning, by name.
    #[serde(default)]
    files: BTreeMap<String, String>,
    /// A script that runs before the model is asked.
    setup: Option<String>,
    /// A script that runs after the model has ended.
    check: String,
    /// Files that the check alone sees.
    #[serde(default)]
    check_files: BTreeMap<String, String>,
}

impl ShellTask for TerminalTask {
    const SYSTEM: &'static str = include_str!("../../data/terminal_system.txt").trim_ascii_end();
    const NOT_COPIED: &'static [&'static str] = &[];

    async fn read(start: &EpisodeStart<'_>) -> Result<Self, AgentError> {
        Ok(task::read(start.settings)?)
    }

    fn prompt(&self) -> &str {
        &self.prompt
    }

    async fn prepare(&self, sandbox: &Sandbox, options: &TaskOptions) -> Result<(), AgentError> {
        sandbox.write_files(&sandbox_files(&self.files)).await?;
        set_up(sandbox, self.setup.as_ref(), options).await
    }

    fn check_names(&self) -> Vec<String> {
        self.check_files.keys().cloned().collect()
    }

    fn check_files(&self) -> Vec<SandboxFile<'_>> {
        sandbox_files(&self.check_files)
    }

    async fn check(
        &self,
        place: &CheckPlace<'_>,
        options: &TaskOptions,
    ) -> Result<EpisodeScore, AgentError> {
        if place.has_link_to_check().await? {
            return Ok(EpisodeScore::of_outcome(0.0));
        }
        let outcome = place.run(&self.check, &[], options.check_time()).await?;
        Ok(EpisodeScore::of_check(&outcome))
    }
}

pub(super) fn sandbox_files<T: AsRef<[u8]>>(files: &BTreeMap<String, T>) -> Vec<SandboxFile<'_>> {
    let files = files.iter().map(|(name, content)| SandboxFile {
        name,
        content: content.as_ref(),
    });
    files.collect()
}
