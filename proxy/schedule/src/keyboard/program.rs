//! Runs programs of the system.

use std::{
    io,
    process::{Command, Stdio},
};

/// Reads at most so many bytes of their output.
const MAX_OUTPUT: usize = 1 << 20;

/// Returns the output of a program of the system, or `None` if there is no such program.
pub(super) fn output(program: &str, arguments: &[&str]) -> Result<Option<String>, String> {
    let run = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output();
    match run {
        Ok(run) if run.status.success() => {
            let text = &run.stdout[..run.stdout.len().min(MAX_OUTPUT)];
            Ok(Some(String::from_utf8_lossy(text).into_owned()))
        }
        Ok(run) => Err(format!("{program} ended with {}", run.status)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("{program}: {error}")),
    }
}
