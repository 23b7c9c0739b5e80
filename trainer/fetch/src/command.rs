//! Runs other programs, with errors that say what to do.
#![expect(
    clippy::print_stdout,
    reason = "a program that writes to the terminal is announced there"
)]

use std::io::ErrorKind;
use std::process::{Command, Output};

use anyhow::{Context, Result, anyhow, bail};

/// Runs a command in the foreground. An exit status other than 0 is an error.
///
/// # Errors
/// Fails if the command cannot be started, or fails itself.
pub fn run(command: &mut Command) -> Result<()> {
    let shown = shown(command);
    println!("$ {shown}");
    let status = command
        .status()
        .map_err(|error| not_started(command, &error))?;
    if status.success() {
        return Ok(());
    }
    bail!("`{shown}` failed ({status})")
}

/// Runs a command without showing its output, and returns its standard output. An exit status other than 0 is an error
/// that contains the end of its standard error.
///
/// # Errors
/// Fails if the command cannot be started, fails itself, or prints text that is not UTF-8.
pub fn output(command: &mut Command) -> Result<String> {
    let shown = shown(command);
    let output = attempt(command)?;
    if !output.status.success() {
        let complaint = last_lines(&output.stderr, &output.stdout);
        bail!("`{shown}` failed ({}):\n{complaint}", output.status);
    }
    String::from_utf8(output.stdout)
        .with_context(|| format!("`{shown}` printed something that is not UTF-8"))
}

/// Runs a command without showing its output. Only a failure to start it is an error.
///
/// # Errors
/// Fails if the command cannot be started. If it is not installed, the error says how to install it.
pub fn attempt(command: &mut Command) -> Result<Output> {
    command
        .output()
        .map_err(|error| not_started(command, &error))
}

fn last_lines(stderr: &[u8], stdout: &[u8]) -> String {
    const SHOWN: usize = 15;
    let text =
        String::from_utf8_lossy(if stderr.is_empty() { stdout } else { stderr }).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(SHOWN)..].join("\n")
}

fn not_started(command: &Command, error: &std::io::Error) -> anyhow::Error {
    let program = command.get_program().to_string_lossy();
    if error.kind() == ErrorKind::NotFound {
        anyhow!("`{program}` was not found. {}", how_to_get(&program))
    } else {
        anyhow!("`{program}` could not be started: {error}")
    }
}

fn how_to_get(program: &str) -> String {
    let package = match program {
        "python3" => {
            "python3 with pip and venv (Debian, Ubuntu: apt install python3-pip python3-venv)"
        }
        "cc" => {
            "a C and C++ compiler (Debian, Ubuntu: apt install g++; Fedora: dnf install gcc-c++)"
        }
        "nm" | "ldd" => {
            "binutils and the C library's tools (Debian, Ubuntu: apt install binutils libc-bin)"
        }
        "npm" => "Node.js with npm (Debian, Ubuntu: apt install npm)",
        "cargo" => "Rust with cargo and rustup",
        other => return format!("Install {other} and see that it is on PATH."),
    };
    format!("Install {package} and see that it is on PATH.")
}

fn shown(command: &Command) -> String {
    std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}
