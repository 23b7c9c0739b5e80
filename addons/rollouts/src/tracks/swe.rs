//! The track `swe`: the model fixes an issue in a repository, and tests that it cannot change say whether it did.
//!
//! The model works in a copy of the files of one commit, without the repository's history. The tests run on a copy of
//! the model's files, in which the test files are replaced with those of the task and cannot be changed.

mod repository;
mod test_files;

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, de::Error as _};

use self::{
    repository::{RepositorySettings, RepositoryTree},
    test_files::{NOT_COPIED, TestFiles},
};
use super::{
    checks::CheckPlace,
    error::AgentError,
    reward::EpisodeScore,
    shell::{ShellTask, set_up},
    task::{self, EpisodeStart, TaskOptions},
};
use crate::sandbox::{Exec, Sandbox, SandboxFile, SandboxLimits};

/// Replaces the repository's history with a single commit, if git is there, and makes the files that are its arguments
/// read-only.
const HIDE_HISTORY: &str = "rm -rf .git && command -v git >/dev/null && git init -q && git add -A && \
     git -c user.name=metaclaw -c user.email=metaclaw@localhost commit -qm 'The repository' >/dev/null; \
     chmod -R a-w -- \"$@\" 2>/dev/null; true";

/// A task in our form or in SWE-bench's. Its field `patch`, the solution, is never read.
#[derive(Debug, Deserialize)]
struct SweFile {
    /// The issue.
    #[serde(alias = "problem_statement")]
    prompt: String,
    /// A folder, a git repository or a git bundle.
    repository: Option<String>,
    /// A name in `repositories.json`, such as `django/django`.
    repo: Option<String>,
    version: Option<String>,
    /// The commit that the model begins with; the repository's HEAD if none.
    #[serde(default, alias = "base_commit")]
    commit: Option<String>,
    /// Files and folders of the repository that are tests.
    #[serde(default)]
    tests: Vec<String>,
    /// Tests that the model never sees, by name.
    #[serde(default)]
    hidden_tests: BTreeMap<String, String>,
    /// A patch with tests that the model never sees. The files that it changes are tests.
    #[serde(default)]
    test_patch: String,
    /// A script that runs the tests that are its arguments, and ends with code 0 if all of them pass.
    test_command: Option<String>,
    #[serde(alias = "FAIL_TO_PASS", deserialize_with = "test_names")]
    fail_to_pass: Vec<String>,
    #[serde(default, alias = "PASS_TO_PASS", deserialize_with = "test_names")]
    pass_to_pass: Vec<String>,
    /// A script that runs before the model is asked.
    setup: Option<String>,
}

/// Names of tests: a list, or a text that contains a list in JSON, as in SWE-bench's files.
#[derive(Deserialize)]
#[serde(untagged)]
enum TestNames {
    List(Vec<String>),
    Text(String),
}

pub(super) struct SweTask {
    file: SweFile,
    source: RepositoryTree,
    tests: TestFiles,
    test_command: String,
    setup: Option<String>,
    limits: SandboxLimits,
}

// === impl SweTask ===

impl SweTask {
    /// Checks that the test command fails for a test that does not exist.
    ///
    /// # Errors
    /// If it does not: its code does not say whether tests were run.
    async fn check_command(
        &self,
        sandbox: &Sandbox,
        options: &TaskOptions,
    ) -> Result<(), AgentError> {
        let command = &self.test_command;
        let run = Exec::script(command).with_args(["bash", &self.missing_test()]);
        let mut run = run.within(options.check_time());
        run.env = vec![("PYTHONDONTWRITEBYTECODE", "1".into())];
        if sandbox.exec(&run).await?.succeeded() {
            return Err(AgentError::Field(format!(
                "test_command {command:?} ends with code 0 for a test that does not exist: it has to fail unless each of \
                 its arguments names a test that was run and has passed"
            )));
        }
        Ok(())
    }

    async fn passes(
        &self,
        place: &CheckPlace<'_>,
        options: &TaskOptions,
    ) -> Result<bool, AgentError> {
        let time = options.check_time();
        let (fail_to_pass, pass_to_pass) = (&self.file.fail_to_pass, &self.file.pass_to_pass);
        for tests in [fail_to_pass, pass_to_pass] {
            let run = place.run(&self.test_command, tests, time);
            if !tests.is_empty() && !run.await?.succeeded() {
                return Ok(false);
            }
        }
        // The model's program may have ended the test command early. Then this passes too.
        let tests = [&fail_to_pass[..], &[self.missing_test()]].concat();
        let control = place.run(&self.test_command, &tests, time).await?;
        Ok(!control.succeeded())
    }

    /// Returns the name of a test that does not exist, in the place where the last test is that has to pass.
    fn missing_test(&self) -> String {
        let last = self.file.fail_to_pass.last().map_or("", String::as_str);
        format!("{last}_{:016x}", rand::random::<u64>())
    }
}

impl ShellTask for SweTask {
    const SYSTEM: &'static str = include_str!("../../data/swe_system.txt").trim_ascii_end();
    const NOT_COPIED: &'static [&'static str] = &NOT_COPIED;

    async fn read(start: &EpisodeStart<'_>) -> Result<Self, AgentError> {
        let folder = &start.settings.folder;
        let file: SweFile = task::read(start.settings)?;
        let known = match &file.repo {
            Some(repo) if file.repository.is_none() => {
                RepositorySettings::find(folder, repo, file.version.as_deref())?
            }
            _ => RepositorySettings::default(),
        };
        let missing = |what: &str| AgentError::Field(format!("{what} is missing"));
        let place = file
            .repository
            .as_ref()
            .map(Into::into)
            .or(known.repository);
        let place = place.ok_or_else(|| missing("repository"))?;
        let test_command = file.test_command.clone().or(known.test_command);
        let test_command = test_command.ok_or_else(|| missing("test_command"))?;
        if file.fail_to_pass.is_empty() {
            let words = "fail_to_pass is empty: name at least one test";
            return Err(AgentError::Field(words.to_owned()));
        }
        let source = RepositoryTree::open(&folder.join(place), file.commit.as_deref()).await?;
        let tests =
            TestFiles::new(&source, &file.tests, &file.test_patch, &file.hidden_tests).await?;
        Ok(Self {
            setup: file.setup.clone().or(known.setup),
            limits: known
                .sandbox
                .unwrap_or_else(|| start.options.sandbox.clone()),
            file,
            source,
            tests,
            test_command,
        })
    }

    fn prompt(&self) -> &str {
        &self.file.prompt
    }

    fn limits<'a>(&'a self, _options: &'a TaskOptions) -> &'a SandboxLimits {
        &self.limits
    }

    async fn prepare(&self, sandbox: &Sandbox, options: &TaskOptions) -> Result<(), AgentError> {
        sandbox.unpack(self.source.tree.clone()).await?;
        set_up(sandbox, self.setup.as_ref(), options).await?;
        self.check_command(sandbox, options).await?;
        let hide = Exec::script(HIDE_HISTORY).with_args(["bash"]);
        let hide = hide.with_args(&self.tests.names);
        sandbox.exec(&hide.within(options.check_time())).await?;
        Ok(())
    }

    fn check_names(&self) -> Vec<String> {
        self.tests.names.clone()
    }

    fn check_files(&self) -> Vec<SandboxFile<'_>> {
        self.tests.files()
    }

    async fn check(
        &self,
        place: &CheckPlace<'_>,
        options: &TaskOptions,
    ) -> Result<EpisodeScore, AgentError> {
        let passes = self.passes(place, options).await?;
        Ok(EpisodeScore::of_outcome(f64::from(u8::from(passes))))
    }
}

// === functions ===

fn test_names<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    match TestNames::deserialize(from)? {
        TestNames::List(names) => Ok(names),
        TestNames::Text(text) => serde_json::from_str(&text).map_err(|error| {
            D::Error::custom(format!("{text:?} is no list of tests in JSON: {error}"))
        }),
    }
}
