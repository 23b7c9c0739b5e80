//! Checks whether a training server can run on this machine.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context as _, bail, ensure};

use crate::{
    commands::context::Context,
    installed::{self, TRAINER},
    supervise::TrainerProgram,
};

const LINES: usize = 5;

/// Runs the training server in `folder` for its version, which also shows that its libraries are there.
///
/// # Errors
/// Returns the server's own message if it is missing or does not run.
pub(super) fn version(folder: &Path) -> anyhow::Result<String> {
    let program = folder.join(TRAINER);
    let mut command = Command::new(&program);
    let answer = command.arg("--version").stdin(Stdio::null()).output();
    let answer = answer.with_context(|| format!("cannot start {}", program.display()))?;
    if !answer.status.success() {
        let text = String::from_utf8_lossy(&answer.stderr);
        let last: Vec<&str> = text.lines().rev().take(LINES).collect();
        let last: Vec<&str> = last.into_iter().rev().collect();
        bail!(
            "{} does not run on this machine ({}): {}",
            program.display(),
            answer.status,
            last.join("\n")
        );
    }
    let said = String::from_utf8_lossy(&answer.stdout);
    let version = said.trim().strip_prefix(TRAINER).map(str::trim);
    let version = version.filter(|version| !version.is_empty());
    let version = version.with_context(|| {
        format!(
            "{} --version says {:?}: it is no {TRAINER}",
            program.display(),
            said.trim()
        )
    })?;
    Ok(version.to_owned())
}

/// Refuses a server of another release, because proxy and training server must be of the same release.
pub(super) fn same_release(found: &str) -> anyhow::Result<()> {
    let own = env!("CARGO_PKG_VERSION");
    ensure!(
        found == own,
        "it is {TRAINER} {found}, and this is metaclaw {own}: take the archive of the same release"
    );
    Ok(())
}

pub(super) fn found(context: &Context) -> anyhow::Result<Option<TrainerProgram>> {
    let own = std::env::current_exe()?;
    let path = context.environment.get("PATH");
    Ok(TrainerProgram::find(&own, &installed::programs(&context.home), path).ok())
}
