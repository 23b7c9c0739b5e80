//! The tool `bash`: commands in a sandbox.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    dialogue::{Toolbox, with_tools},
    error::AgentError,
    reply::PolicyCall,
    task::TaskOptions,
};
use crate::sandbox::{Exec, ExecEnd, ExecOutcome, Sandbox};

/// The shell of a model.
#[derive(Debug)]
pub(super) struct SandboxShell<'a> {
    sandbox: &'a Sandbox,
    options: &'a TaskOptions,
    tools: [Value; 1],
    /// A model that calls the tool is not read for code blocks: they are quotations then.
    has_called: bool,
}

#[derive(Deserialize)]
struct BashArguments {
    command: String,
}

// === impl SandboxShell ===

impl<'a> SandboxShell<'a> {
    pub(super) fn new(sandbox: &'a Sandbox, options: &'a TaskOptions) -> Self {
        Self {
            sandbox,
            options,
            tools: [bash()],
            has_called: false,
        }
    }

    /// Returns the system prompt, with the tool's description if the task says that it belongs there.
    pub(super) fn system_prompt(&self, system: &str) -> String {
        if self.options.tools_in_prompt {
            with_tools(system, &self.tools)
        } else {
            system.to_owned()
        }
    }

    async fn run(&self, command: &str) -> Result<String, AgentError> {
        let exec = Exec::script(command)
            .within(self.options.command_time())
            .with_max_output(self.options.max_output);
        let outcome = self.sandbox.exec(&exec).await?;
        Ok(shown(&outcome, self.options))
    }
}

impl Toolbox for SandboxShell<'_> {
    fn definitions(&self) -> &[Value] {
        &self.tools
    }

    async fn call(&mut self, call: &PolicyCall) -> Result<String, AgentError> {
        self.has_called = true;
        if call.name != "bash" {
            return Ok(format!("there is no tool {:?}: call bash", call.name));
        }
        match serde_json::from_str::<BashArguments>(&call.arguments) {
            Ok(arguments) => self.run(&arguments.command).await,
            Err(error) => Ok(format!("the arguments cannot be read: {error}")),
        }
    }

    async fn read_text(&mut self, text: &str) -> Result<Option<String>, AgentError> {
        let block = code_block(text).filter(|_| !self.has_called);
        match block {
            Some(command) => self.run(command).await.map(Some),
            None => Ok(None),
        }
    }
}

// === functions ===

fn bash() -> Value {
    json!({
        "type": "function",
        "function": {
            "name": "bash",
            "description": "Runs a command in bash and returns its output. Each command starts in the work folder. Files \
                            stay from one command to the next; variables do not.",
            "parameters": {
                "type": "object",
                "properties": { "command": { "type": "string" } },
                "required": ["command"],
            },
        },
    })
}

/// Runs the script that prepares a task.
///
/// # Errors
/// If it fails: a task that is not prepared is none.
pub(super) async fn set_up(
    sandbox: &Sandbox,
    script: &str,
    options: &TaskOptions,
) -> Result<(), AgentError> {
    let outcome = sandbox
        .exec(&Exec::script(script).within(options.check_time()))
        .await?;
    if outcome.succeeded() {
        Ok(())
    } else {
        let said = outcome.text();
        Err(AgentError::Setup(format!(
            "{:?}: {}",
            outcome.end,
            said.trim()
        )))
    }
}

/// Returns what the model is shown of a command.
pub(super) fn shown(outcome: &ExecOutcome, options: &TaskOptions) -> String {
    let text = outcome.text();
    let text = text.trim_end();
    let note = match outcome.end {
        ExecEnd::Exited(0) if text.is_empty() => "[no output]".to_owned(),
        ExecEnd::Exited(0) => return text.to_owned(),
        ExecEnd::Exited(code) => format!("[exit code {code}]"),
        ExecEnd::TimedOut => {
            let seconds = options.command_timeout_s;
            format!("[killed after {seconds} s, with every program in the background]")
        }
    };
    if text.is_empty() {
        note
    } else {
        format!("{text}\n{note}")
    }
}

/// Returns the first code block that is marked as a shell's.
fn code_block(text: &str) -> Option<&str> {
    let marks = ["```bash\n", "```sh\n", "```shell\n"];
    let places = marks
        .iter()
        .filter_map(|mark| Some((text.find(mark)?, mark.len())));
    let (place, length) = places.min()?;
    let rest = &text[place + length..];
    // A reply that was cut off has no end mark, and half a command is no command.
    let end = if rest.starts_with("```") {
        0
    } else {
        rest.find("\n```")?
    };
    Some(rest[..end].trim()).filter(|it| !it.is_empty())
}

#[cfg(test)]
mod tests {
    use super::code_block;

    #[test]
    fn the_first_whole_block_of_a_shell_is_the_command() {
        for (text, command) in [
            (
                "I look.\n```bash\nls -l\npwd\n```\nThen\n```bash\nrm x\n```",
                Some("ls -l\npwd"),
            ),
            ("```sh\nls\n```", Some("ls")),
            ("```python\nprint()\n```\n```sh\nls\n```", Some("ls")),
            ("```bash\nls", None),
            ("```bash\n```", None),
            ("```\nls\n```", None),
            ("done", None),
        ] {
            assert_eq!(code_block(text), command, "{text}");
        }
    }
}
