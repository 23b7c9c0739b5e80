//! Tasks: a JSONL file whose lines are objects with a string `id`. All other fields belong to the program.

use std::{
    collections::HashMap,
    fs, io,
    path::{Path, PathBuf},
};

use metaclaw_chat::{TaskId, excerpt, regular};
use serde_json::{Map, Value};

/// One task: what a program reads from the file that `METACLAW_TASK` names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RolloutTask {
    pub id: String,
    /// The whole object, `id` included.
    pub fields: Map<String, Value>,
}

/// Why a file of tasks cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    #[error("cannot read the tasks of {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{}, line {line}: {reason}", path.display())]
    Line {
        path: PathBuf,
        line: usize,
        /// What is wrong, the value that was given, what is allowed.
        reason: String,
    },
    #[error("{} contains no task: each line is a JSON object such as {{\"id\": \"a\", ..}}", path.display())]
    Empty { path: PathBuf },
}

/// Reads a JSONL file of tasks. Blank lines are skipped.
///
/// # Errors
/// If the file cannot be read, has no task, or a line is no object with an `id` of its own.
pub fn tasks(path: &Path) -> Result<Vec<RolloutTask>, TaskError> {
    let text = regular(path).and_then(fs::read_to_string);
    let text = text.map_err(|source| TaskError::Read {
        path: path.to_owned(),
        source,
    })?;
    let at = |line: usize, reason: String| TaskError::Line {
        path: path.to_owned(),
        line,
        reason,
    };
    let mut tasks = Vec::new();
    let mut lines: HashMap<String, usize> = HashMap::new();
    for (index, text) in text.lines().enumerate() {
        let line = index + 1;
        if text.trim().is_empty() {
            continue;
        }
        let task = parse(text).map_err(|reason| at(line, reason))?;
        if let Some(first) = lines.insert(task.id.clone(), line) {
            let reason = format!(
                "id {:?} is also that of line {first}: each task needs an id of its own",
                task.id
            );
            return Err(at(line, reason));
        }
        tasks.push(task);
    }
    if tasks.is_empty() {
        return Err(TaskError::Empty {
            path: path.to_owned(),
        });
    }
    Ok(tasks)
}

fn parse(text: &str) -> Result<RolloutTask, String> {
    let value: Value = serde_json::from_str(text).map_err(|error| {
        format!("this is no JSON: {error}; each line is an object such as {{\"id\": \"a\", ..}}")
    })?;
    let shown = excerpt(text).into_owned();
    let Value::Object(fields) = value else {
        return Err(format!(
            "{shown} is no object; each line is an object such as {{\"id\": \"a\", ..}}"
        ));
    };
    let id = match fields.get("id") {
        Some(Value::String(id)) => id
            .parse::<TaskId>()
            .map_err(|error| format!("id: {error}"))?,
        Some(other) => return Err(format!("id {other} is not allowed: it has to be a text")),
        None => return Err(format!("{shown} has no id: each task needs a text `id`")),
    };
    Ok(RolloutTask {
        id: id.to_string(),
        fields,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_no_task_is_refused_with_its_number() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tasks.jsonl");
        let told = |second: &str| {
            fs::write(&path, format!("{{\"id\": \"a\"}}\n\n{second}\n")).unwrap();
            let error = tasks(&path).unwrap_err().to_string();
            let place = format!("{}, line 3: ", path.display());
            error.strip_prefix(&place).unwrap().to_owned()
        };
        for (line, said) in [
            ("[1]", "[1] is no object"),
            ("{", "this is no JSON"),
            ("{}", "{} has no id"),
            ("{\"id\": 7}", "id 7 is not allowed"),
            // The proxy knows a task by its id without the space around it.
            ("{\"id\": \" \"}", "id: the name \"\" is not allowed"),
            ("{\"id\": \" a \"}", "id \"a\" is also that of line 1"),
        ] {
            let told = told(line);
            assert!(told.contains(said), "{line}: {told}");
        }
        fs::write(&path, "\n").unwrap();
        let error = tasks(&path).unwrap_err();
        assert!(matches!(error, TaskError::Empty { .. }), "{error}");
    }
}
