//! Whether a training server runs on this machine.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context as _, bail, ensure};

use crate::installed::TRAINER;

/// What of an error's text is shown.
const LINES: usize = 5;

/// The version of the training server in `folder`, by its own word: that it can say it shows that its libraries are there.
///
/// # Errors
/// It is not there, or does not run; in its own words.
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
    let version = version.filter(|it| !it.is_empty());
    let version = version.with_context(|| {
        format!(
            "{} --version says {:?}: it is no {TRAINER}",
            program.display(),
            said.trim()
        )
    })?;
    Ok(version.to_owned())
}

/// Refuses one of another release: proxy and training server are made for each other.
pub(super) fn same_release(found: &str) -> anyhow::Result<()> {
    let own = env!("CARGO_PKG_VERSION");
    ensure!(
        found == own,
        "it is {TRAINER} {found}, and this is metaclaw {own}: take the archive of the same release"
    );
    Ok(())
}
