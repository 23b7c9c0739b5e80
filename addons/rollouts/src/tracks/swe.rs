//! The track `swe`: the model mends a repository in a shell, and tests that it cannot change say whether it has.
//!
//! The model works in a copy of the files of one commit, whose history is not there. The tests run in a second sandbox,
//! on a copy of the model's files in which the test files are those of the task and cannot be changed. No program that
//! the model left running is there.

mod repository;
mod test_files;
mod test_names;

use std::collections::BTreeMap;

use serde::Deserialize;

use self::{
    repository::{RepositorySettings, RepositoryTree},
    test_files::{NOT_COPIED, TestFiles},
};
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
use crate::sandbox::{Exec, Sandbox, SandboxLimits};

const SYSTEM: &str = "You mend a program. Its repository is your work folder. Run commands with the tool bash, one at a \
                      time, and read their output. If you cannot call tools, write one command in a code block that \
                      begins with ```bash. There is no network. Tests decide whether the issue is solved: find the \
                      cause, change the code, and try it. You cannot change the test files. When you have ended, say \
                      so without a command.";
/// The only commit that the model sees. A repository without git in its sandbox has none.
const HIDE_HISTORY: &str = "rm -rf .git && command -v git >/dev/null && git init -q && git add -A && \
     git -c user.name=metaclaw -c user.email=metaclaw@localhost commit -qm 'The repository' >/dev/null; \
     chmod -R a-w -- \"$@\" 2>/dev/null; true";

/// A task in our form or in SWE-bench's. Its field `patch`, the solution, is never read.
#[derive(Debug, Deserialize)]
struct SweTask {
    /// The issue.
    #[serde(alias = "problem_statement")]
    prompt: String,
    #[serde(default)]
    system: Option<String>,
    /// A folder, a git repository or a git bundle.
    #[serde(default)]
    repository: Option<String>,
    /// A name in `repositories.json`, such as `django/django`.
    #[serde(default)]
    repo: Option<String>,
    #[serde(default)]
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
    #[serde(default)]
    test_command: Option<String>,
    #[serde(alias = "FAIL_TO_PASS", deserialize_with = "test_names::read")]
    fail_to_pass: Vec<String>,
    #[serde(default, alias = "PASS_TO_PASS", deserialize_with = "test_names::read")]
    pass_to_pass: Vec<String>,
    /// A script that runs before the model is asked.
    #[serde(default)]
    setup: Option<String>,
    #[serde(skip)]
    options: TaskOptions,
}

/// A task with all that it needs.
struct PreparedTask {
    source: RepositoryTree,
    tests: TestFiles,
    test_command: String,
    setup: Option<String>,
    limits: SandboxLimits,
}

/// Runs one task.
///
/// # Errors
/// If the task, the repository, the sandbox or the model cannot be used.
pub(super) async fn run(
    settings: &AgentSettings,
    http: reqwest::Client,
) -> Result<EpisodeScore, AgentError> {
    let mut task: SweTask = task::read(settings)?;
    task.options = task::read(settings)?;
    let prepared = prepare(&task, settings).await?;
    let sandbox = Sandbox::start(settings.sandbox, &prepared.limits).await?;
    let mended = mend(&task, &prepared, &sandbox, settings, http).await;
    sandbox.close().await?;
    let Some(tree) = mended? else {
        return Ok(EpisodeScore::of_outcome(0.0));
    };
    let (names, files) = (prepared.tests.names(), prepared.tests.files());
    let place = CheckPlace::start(settings.sandbox, &prepared.limits, names, &files).await?;
    let passed = passes(&task, &prepared, &place, tree).await;
    place.close().await?;
    Ok(EpisodeScore::of_outcome(if passed? { 1.0 } else { 0.0 }))
}

async fn prepare(task: &SweTask, settings: &AgentSettings) -> Result<PreparedTask, AgentError> {
    let known = match &task.repo {
        Some(repo) if task.repository.is_none() => {
            RepositorySettings::find(&settings.folder, repo, task.version.as_deref())?
        }
        _ => RepositorySettings::default(),
    };
    let place = task.repository.as_ref().map(Into::into);
    let place = place.or(known.repository);
    let place = place.ok_or_else(|| AgentError::Field("repository is missing".to_owned()))?;
    let command = task.test_command.clone().or(known.test_command);
    let missing = || AgentError::Field("test_command is missing".to_owned());
    let test_command = command.ok_or_else(missing)?;
    if task.fail_to_pass.is_empty() {
        let words = "fail_to_pass is empty: name at least one test";
        return Err(AgentError::Field(words.to_owned()));
    }
    let source = RepositoryTree::open(&settings.folder.join(place), task.commit.as_deref()).await?;
    let tests = TestFiles::new(&source, &task.tests, &task.test_patch, &task.hidden_tests).await?;
    Ok(PreparedTask {
        source,
        tests,
        test_command,
        setup: task.setup.clone().or(known.setup),
        limits: known
            .sandbox
            .unwrap_or_else(|| task.options.sandbox.clone()),
    })
}

/// Has the model mend the repository. Returns its files as a tar archive, or `None` if they cannot be copied: the model
/// has filled the disk, or made files that cannot be read.
async fn mend(
    task: &SweTask,
    prepared: &PreparedTask,
    sandbox: &Sandbox,
    settings: &AgentSettings,
    http: reqwest::Client,
) -> Result<Option<Vec<u8>>, AgentError> {
    let options = &task.options;
    sandbox.unpack(prepared.source.tree().to_vec()).await?;
    if let Some(setup) = &prepared.setup {
        set_up(sandbox, setup, options).await?;
    }
    check_command(task, prepared, sandbox).await?;
    let names = prepared.tests.names();
    let hide = Exec::script(HIDE_HISTORY).with_args(["bash"]);
    let hide = hide.with_args(names);
    sandbox.exec(&hide.within(options.check_time())).await?;
    let policy = PolicyClient::new(http, settings, options);
    let mut shell = SandboxShell::new(sandbox, options);
    let system = shell.system_prompt(task.system.as_deref().unwrap_or(SYSTEM));
    let dialogue = Dialogue::new(&system, &options.earlier, task.prompt.as_str());
    let turns = options.turns(settings);
    dialogue.run(&policy, &mut shell, turns).await?;
    let pack = sandbox.pack(prepared.limits.disk_mb, names.iter(), &NOT_COPIED);
    Ok(pack.await?)
}

/// Runs the tests on the model's files.
async fn passes(
    task: &SweTask,
    prepared: &PreparedTask,
    place: &CheckPlace<'_>,
    tree: Vec<u8>,
) -> Result<bool, AgentError> {
    if !place.unpack(tree).await? {
        return Ok(false);
    }
    let time = task.options.check_time();
    for tests in [&task.fail_to_pass, &task.pass_to_pass] {
        let run = place.run(&prepared.test_command, tests, time);
        if !tests.is_empty() && !run.await?.succeeded() {
            return Ok(false);
        }
    }
    // The model's program may have ended the test command early. Then this passes too.
    let tests = [&task.fail_to_pass[..], &[missing_test(task)]].concat();
    let control = place.run(&prepared.test_command, &tests, time).await?;
    Ok(!control.succeeded())
}

/// Checks that the test command fails for a test that does not exist.
///
/// # Errors
/// If it does not: its code does not say whether tests were run.
async fn check_command(
    task: &SweTask,
    prepared: &PreparedTask,
    sandbox: &Sandbox,
) -> Result<(), AgentError> {
    let missing = missing_test(task);
    let run = Exec::script(&prepared.test_command).with_args(["bash", &missing]);
    let mut run = run.within(task.options.check_time());
    run.env = vec![("PYTHONDONTWRITEBYTECODE", "1".into())];
    if sandbox.exec(&run).await?.succeeded() {
        let words = format!(
            "test_command {:?} ends with code 0 for a test that does not exist: it has to fail unless each of its \
             arguments names a test that was run and has passed",
            prepared.test_command
        );
        return Err(AgentError::Field(words));
    }
    Ok(())
}

/// Returns the name of a test that does not exist, in the place where the last test is that has to pass.
fn missing_test(task: &SweTask) -> String {
    let last = task.fail_to_pass.last().map_or("", String::as_str);
    format!("{last}_{:016x}", rand::random::<u64>())
}
