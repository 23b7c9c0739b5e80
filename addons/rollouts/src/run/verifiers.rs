//! The tasks of an environment of the Python package `verifiers`: the rows of its data sets.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use metaclaw_chat::excerpt;

use super::{programs::local_program, setup::RunTasks};
use crate::{
    episode::TaskRunError,
    file::{EpisodeProgram, RolloutFile},
    program::LocalProgram,
    task::tasks,
};

/// Lists the tasks of the environment that a file names, and reads them. The environment loads its data sets for that,
/// which can take long. `folder` is the folder of all runs. Returns `None` if the file's program is no environment.
///
/// # Errors
/// If the package or the environment is not installed, or it has no tasks.
pub fn verifiers_tasks(
    file: &RolloutFile,
    folder: &Path,
) -> Result<Option<RunTasks>, TaskRunError> {
    if !matches!(file.program, Some(EpisodeProgram::Verifiers(_))) {
        return Ok(None);
    }
    // The program starts in the folder of its file, so the paths that it gets must be absolute.
    let runs = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    let folder = runs.join("verifiers");
    let program = local_program(file, Path::new(""), &folder)?;
    let (train, held_out) = (folder.join("train.jsonl"), folder.join("eval.jsonl"));
    list(&program, &[&train, &held_out])?;
    let read = |path: &Path| tasks(path).map_err(|error| TaskRunError::Refused(error.to_string()));
    let is_empty = fs::metadata(&held_out).is_ok_and(|file| file.len() == 0);
    Ok(Some(RunTasks {
        train: read(&train)?,
        held_out: if is_empty {
            Vec::new()
        } else {
            read(&held_out)?
        },
    }))
}

fn list(program: &LocalProgram, files: &[&Path]) -> Result<(), TaskRunError> {
    let python = program.words.first().map_or("python3", String::as_str);
    let output = Command::new(python)
        .args(program.words.iter().skip(1))
        .arg("--list")
        .args(files)
        .current_dir(&program.folder)
        .envs(&program.env)
        .stdin(Stdio::null())
        .output();
    let output = output.map_err(|error| {
        TaskRunError::Refused(format!(
            "{python} cannot be started: {error}; `python` names another one"
        ))
    })?;
    if output.status.success() {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = errors.lines().collect();
    let last = lines[lines.len().saturating_sub(3)..].join(" ");
    Err(TaskRunError::Refused(format!(
        "the environment cannot be loaded with {python}: {}",
        excerpt(&last)
    )))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{super::programs::write_verifiers_program, *};

    /// A package whose only environment gives the reward that its task names.
    const PACKAGE: &str = "
class Environment:
    async def run_rollout(self, task, **_):
        return {'reward': task['reward']}


def load_environment(name):
    return Environment()
";
    const TYPES: &str = "def ClientConfig(**_):\n    return None\n";

    fn written(reward: &str) -> Result<Value, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path("verifiers")).unwrap();
        fs::write(path("verifiers/__init__.py"), PACKAGE).unwrap();
        fs::write(path("verifiers/types.py"), TYPES).unwrap();
        let task = format!("{{\"input\": {{\"reward\": {reward}}}}}");
        fs::write(path("task.json"), task).unwrap();
        let program = write_verifiers_program(folder.path()).unwrap();
        let output = Command::new("python3")
            .arg(program)
            .env("METACLAW_VERIFIERS", "scripted")
            .env("METACLAW_TASK", path("task.json"))
            .env("METACLAW_REWARD", path("reward.json"))
            .env("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
            .output()
            .unwrap();
        match fs::read(path("reward.json")) {
            Ok(text) => Ok(serde_json::from_slice(&text).unwrap()),
            Err(_) => Err(String::from_utf8(output.stderr).unwrap()),
        }
    }

    #[test]
    fn a_reward_is_cut_to_its_range_and_one_that_is_not_a_number_fails_the_episode() {
        assert_eq!(written("0.5"), Ok(json!({"score": 0.5})));
        assert_eq!(written("3"), Ok(json!({"score": 1.0})));
        let said = written("NaN").unwrap_err();
        assert_eq!(said, "the environment failed: its reward is not a number\n");
    }
}
