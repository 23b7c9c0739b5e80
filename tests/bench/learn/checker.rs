//! Decides by a script whether a reply keeps a wish: a Python process with the checkers of a checkout
//! (`../wishes/checkers.py`), which is asked line by line.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::{Mutex, PoisonError},
};

use anyhow::{Context as _, Result};
use serde::Deserialize;
use serde_json::{Map, Value, json};

pub const SCRIPT: &str = include_str!("../wishes/checkers.py");

/// A running script. It ends when its input does, so on drop.
#[derive(Debug)]
pub struct Checker(Mutex<Process>);

#[derive(Debug)]
struct Process {
    _child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

/// What the script is asked about a reply.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    kind: String,
    #[serde(default)]
    args: Map<String, Value>,
}

// === impl Checker ===

impl Checker {
    /// Starts the script with `python`, which has its packages, and IFEval's checkout at `data`.
    pub fn start(python: &Path, data: &Path) -> Result<Self> {
        let mut command = Command::new(python);
        command.args(["-c", SCRIPT]).arg(data);
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = spawned.with_context(|| format!("cannot start {}", python.display()))?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        Ok(Self(Mutex::new(Process {
            input: input.context("piped")?,
            output: BufReader::new(output.context("piped")?),
            _child: child,
        })))
    }

    /// Returns whether a reply to a question keeps a wish.
    ///
    /// # Panics
    /// Panics if the script has ended. Its error output, which is that of the bench, says why.
    pub fn keeps(&self, check: &Check, question: &str, reply: &str) -> bool {
        let Check { kind, args } = check;
        let asked = json!({"kind": kind, "args": args, "question": question, "reply": reply});
        let mut process = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut answer = String::new();
        // `flush` of a pipe does nothing.
        let sent = writeln!(process.input, "{asked}");
        let received = sent.and_then(|()| process.output.read_line(&mut answer));
        received.expect("the script is there");
        let answer: Value = serde_json::from_str(&answer).expect("the script answers in JSON");
        answer["kept"].as_bool().expect("the script decides")
    }
}
