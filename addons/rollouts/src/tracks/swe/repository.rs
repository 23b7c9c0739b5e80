//! Where a task's files come from: a folder, a git repository or a git bundle on this machine.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use metaclaw_chat::regular;
use serde::Deserialize;
use tempfile::TempDir;
use tokio::process::Command;

use super::super::error::AgentError;
use crate::sandbox::SandboxLimits;

const REPOSITORIES: &str = "repositories.json";

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RepositorySettings {
    /// A folder, a git repository or a git bundle.
    pub(super) repository: Option<PathBuf>,
    pub(super) test_command: Option<String>,
    pub(super) setup: Option<String>,
    pub(super) sandbox: Option<SandboxLimits>,
}

#[derive(Debug)]
pub(super) struct RepositoryTree {
    pub(super) tree: Vec<u8>,
}

// === impl RepositorySettings ===

impl RepositorySettings {
    /// Reads the settings of `NAME@VERSION`, else of `NAME`.
    ///
    /// # Errors
    /// If the file cannot be read, or does not name the repository.
    pub(super) fn find(
        folder: &Path,
        name: &str,
        version: Option<&str>,
    ) -> Result<Self, AgentError> {
        let path = folder.join(REPOSITORIES);
        let wrong = |words: String| AgentError::Field(format!("{}: {words}", path.display()));
        let text = regular(&path).and_then(fs::read);
        let text = text.map_err(|error| {
            wrong(format!("{error}; it has to say where repo {name:?} is: {{\"{name}\": {{\"repository\": \"/path\"}}}}"))
        })?;
        let mut known: BTreeMap<String, Self> =
            serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))?;
        let particular = version.and_then(|it| known.remove(&format!("{name}@{it}")));
        let found = particular.or_else(|| known.remove(name));
        found.ok_or_else(|| wrong(format!("it does not name repo {name:?}")))
    }
}

// === impl RepositoryTree ===

impl RepositoryTree {
    /// Reads the files of `commit`, or of HEAD.
    ///
    /// # Errors
    /// If there is no such repository or commit, or a commit is named and there is no git.
    pub(super) async fn open(place: &Path, commit: Option<&str>) -> Result<Self, AgentError> {
        let wrong =
            |words: &str| AgentError::Field(format!("repository {}: {words}", place.display()));
        let tree = if place.is_file() {
            let clone = TempDir::new().map_err(|error| wrong(&error.to_string()))?;
            let mut command = git();
            command.args(["clone", "--quiet", "--bare"]);
            command.arg(place).arg(clone.path());
            output(command).await.map_err(|words| wrong(&words))?;
            archive(clone.path(), commit).await
        } else if place.join(".git").exists() || place.join("objects").is_dir() {
            archive(place, commit).await
        } else if !place.is_dir() {
            return Err(wrong("there is no such folder, git repository or bundle"));
        } else if commit.is_some() {
            return Err(wrong("it is a folder without git, so it has no commits"));
        } else {
            folder(place).map_err(|error| error.to_string())
        };
        let tree = tree.map_err(|words| wrong(&words))?;
        Ok(Self { tree })
    }

    /// Returns the content of each file for which `is_meant` says so, by name.
    ///
    /// # Errors
    /// If the archive cannot be read.
    pub(super) fn files(
        &self,
        is_meant: impl Fn(&str) -> bool,
    ) -> std::io::Result<BTreeMap<String, Vec<u8>>> {
        let mut files = BTreeMap::new();
        for entry in tar::Archive::new(&*self.tree).entries()? {
            let mut entry = entry?;
            let name = entry.path()?.to_string_lossy().into_owned();
            if entry.header().entry_type().is_file() && is_meant(&name) {
                let mut content = Vec::new();
                std::io::Read::read_to_end(&mut entry, &mut content)?;
                files.insert(name, content);
            }
        }
        Ok(files)
    }
}

// === functions ===

/// Git that reads no settings of the user, and knows no repository but the one that it is given.
pub(super) fn git() -> Command {
    let mut command = Command::new("git");
    command
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null");
    command.env_remove("GIT_DIR").env_remove("GIT_WORK_TREE");
    // The owner of a repository that a task names need not be this user.
    command.args(["-c", "safe.directory=*"]);
    command.kill_on_drop(true);
    command
}

/// Runs a command.
///
/// # Errors
/// What it complained of.
pub(super) async fn output(mut command: Command) -> Result<Vec<u8>, String> {
    let ended = command.output().await;
    let ended = ended.map_err(|error| format!("git cannot be started: {error}"))?;
    if ended.status.success() {
        Ok(ended.stdout)
    } else {
        Err(String::from_utf8_lossy(&ended.stderr).trim().to_owned())
    }
}

async fn archive(repository: &Path, commit: Option<&str>) -> Result<Vec<u8>, String> {
    let commit = commit.unwrap_or("HEAD");
    if commit.starts_with('-') {
        return Err(format!("commit {commit:?} is not allowed"));
    }
    let place = TempDir::new().map_err(|error| error.to_string())?;
    let files = place.path().join("files");
    fs::create_dir(&files).map_err(|error| error.to_string())?;
    // `git archive` would leave out what the repository excludes from its releases, which can be its tests.
    for args in [&["read-tree", commit][..], &["checkout-index", "--all"]] {
        let mut command = git();
        command.arg("-C").arg(repository);
        command.arg("--work-tree").arg(&files).args(args);
        command.env("GIT_INDEX_FILE", place.path().join("index"));
        output(command).await?;
    }
    folder(&files).map_err(|error| error.to_string())
}

fn folder(place: &Path) -> std::io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    archive.follow_symlinks(false);
    archive.append_dir_all("", place)?;
    archive.into_inner()
}
