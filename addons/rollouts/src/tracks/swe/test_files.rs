//! The test files of a task: what the model may not change, and what it does not see.

use std::{collections::BTreeMap, fs, path::Path};

use tempfile::TempDir;

use super::{
    super::error::AgentError,
    repository::{RepositoryTree, git, output},
};
use crate::sandbox::{SandboxError, SandboxFile, is_inside};

/// Names of files and folders, anywhere, that are never the model's: they configure test runners, or are Python's
/// compiled files, which can be older than their sources. Files of these names are as the repository has them.
pub(super) const NOT_COPIED: [&str; 8] = [
    ".git",
    ".pytest.ini",
    "__pycache__",
    "conftest.py",
    "pyproject.toml",
    "pytest.ini",
    "setup.cfg",
    "tox.ini",
];

#[derive(Debug)]
pub(super) struct TestFiles {
    pub(super) names: Vec<String>,
    files: BTreeMap<String, Vec<u8>>,
}

// === impl TestFiles ===

impl TestFiles {
    /// Reads the test files of the repository, and adds those that the model does not see.
    ///
    /// # Errors
    /// If a name leaves the repository, or the patch does not fit.
    pub(super) async fn new(
        source: &RepositoryTree,
        tests: &[String],
        patch: &str,
        hidden: &BTreeMap<String, String>,
    ) -> Result<Self, AgentError> {
        let mut names = tests.to_vec();
        let patched = patched_names(patch);
        names.extend(patched.iter().cloned());
        names.extend(hidden.keys().cloned());
        if let Some(name) = names.iter().find(|it| !is_inside(it)) {
            return Err(SandboxError::FileName { name: name.clone() }.into());
        }
        let is_test = |file: &str| {
            let file = Path::new(file);
            let is_kept = NOT_COPIED.iter().any(|it| file.ends_with(it));
            is_kept || names.iter().any(|it| file.starts_with(it))
        };
        let wrong = |error: std::io::Error| AgentError::Field(format!("the test files: {error}"));
        let mut files = source.files(is_test).map_err(wrong)?;
        if !patched.is_empty() {
            apply(patch, &patched, &mut files)
                .await
                .map_err(|words| AgentError::Field(format!("test_patch: {words}")))?;
        }
        for (name, content) in hidden {
            files.insert(name.clone(), content.clone().into_bytes());
        }
        Ok(Self { names, files })
    }

    pub(super) fn files(&self) -> Vec<SandboxFile<'_>> {
        let files = self.files.iter();
        let files = files.map(|(name, content)| SandboxFile { name, content });
        files.collect()
    }
}

// === functions ===

fn patched_names(patch: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for line in patch.lines() {
        let side = line
            .strip_prefix("--- a/")
            .or_else(|| line.strip_prefix("+++ b/"));
        let renamed = line
            .strip_prefix("rename from ")
            .or_else(|| line.strip_prefix("rename to "));
        if let Some(name) = side.or(renamed) {
            let name = name.trim_end().to_owned();
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    names
}

async fn apply(
    patch: &str,
    names: &[String],
    files: &mut BTreeMap<String, Vec<u8>>,
) -> Result<(), String> {
    let folder = TempDir::new().map_err(|error| error.to_string())?;
    let place = folder.path().join("tree");
    let write = |name: &str, content: &[u8]| {
        let path = place.join(name);
        let parent = path.parent().unwrap_or(&place);
        fs::create_dir_all(parent).and_then(|()| fs::write(&path, content))
    };
    fs::create_dir_all(&place).map_err(|error| error.to_string())?;
    for name in names {
        if let Some(content) = files.remove(name) {
            write(name, &content).map_err(|error| error.to_string())?;
        }
    }
    let patch_file = folder.path().join("tests.patch");
    fs::write(&patch_file, patch).map_err(|error| error.to_string())?;
    let mut command = git();
    command
        .args(["apply", "--whitespace=nowarn"])
        .arg(&patch_file);
    // Git looks for a repository no higher than here.
    command
        .current_dir(&place)
        .env("GIT_CEILING_DIRECTORIES", folder.path());
    output(command).await?;
    for name in names {
        if let Ok(content) = fs::read(place.join(name)) {
            files.insert(name.clone(), content);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{apply, patched_names};

    const PATCH: &str = "diff --git a/tests/test_a.py b/tests/test_a.py\n--- a/tests/test_a.py\n+++ b/tests/test_a.py\n\
        @@ -1,2 +1,2 @@\n one\n-two\n+three\ndiff --git a/tests/new.py b/tests/new.py\nnew file mode 100644\n\
        --- /dev/null\n+++ b/tests/new.py\n@@ -0,0 +1 @@\n+new\ndiff --git a/old.py b/old.py\ndeleted file mode 100644\n\
        --- a/old.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-old\n";

    #[tokio::test]
    async fn a_patch_changes_adds_and_deletes_test_files() {
        let names = patched_names(PATCH);
        assert_eq!(names, ["tests/test_a.py", "tests/new.py", "old.py"]);
        let file = |name: &str, content: &str| (name.to_owned(), content.as_bytes().to_vec());
        let before = [
            file("tests/test_a.py", "one\ntwo\n"),
            file("old.py", "old\n"),
            file("tests/b.py", "b"),
        ];
        let mut files = BTreeMap::from(before);
        apply(PATCH, &names, &mut files).await.unwrap();
        let after = [
            file("tests/test_a.py", "one\nthree\n"),
            file("tests/new.py", "new\n"),
            file("tests/b.py", "b"),
        ];
        assert_eq!(files, BTreeMap::from(after));
        let error = apply(PATCH, &names, &mut files).await.unwrap_err();
        assert!(
            error.contains("patch failed") || error.contains("already exists"),
            "{error}"
        );
    }
}
