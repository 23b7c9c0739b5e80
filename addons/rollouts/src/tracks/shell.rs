//! The tracks in a shell: the model has the tool `bash` in a sandbox.
//!
//! The check runs in a second sandbox, on a copy of the work folder. No program of the model is started there before
//! the check, so none could have changed the check's files.

use metaclaw_chat::ToolCall;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    checks::CheckPlace,
    episode::TrackEpisode,
    error::AgentError,
    reward::EpisodeScore,
    task::{EpisodeStart, TaskOptions},
};
use crate::sandbox::{Exec, ExecEnd, ExecOutcome, Sandbox, SandboxFile, SandboxLimits};

/// A task that is done in a shell.
pub(super) trait ShellTask: Sized {
    const SYSTEM: &'static str;
    /// Names of files and folders that are not copied into the check's sandbox, wherever the model made them.
    const NOT_COPIED: &'static [&'static str];

    async fn read(start: &EpisodeStart<'_>) -> Result<Self, AgentError>;

    fn prompt(&self) -> &str;

    fn limits<'a>(&'a self, options: &'a TaskOptions) -> &'a SandboxLimits {
        &options.sandbox
    }

    async fn prepare(&self, sandbox: &Sandbox, options: &TaskOptions) -> Result<(), AgentError>;

    /// Returns the names of files and folders that the check replaces with its own.
    fn check_names(&self) -> Vec<String>;

    fn check_files(&self) -> Vec<SandboxFile<'_>>;

    async fn check(
        &self,
        place: &CheckPlace<'_>,
        options: &TaskOptions,
    ) -> Result<EpisodeScore, AgentError>;
}

pub(super) struct ShellEpisode<'a, T> {
    start: &'a EpisodeStart<'a>,
    task: T,
    sandbox: Sandbox,
    tools: [Value; 1],
    /// A model that calls the tool is not read for code blocks: they are quotations then.
    has_called: bool,
}

#[derive(Deserialize)]
struct BashArguments {
    command: String,
}

// === impl ShellEpisode ===

impl<T: ShellTask> ShellEpisode<'_, T> {
    async fn run(&self, command: &str) -> Result<String, AgentError> {
        run(&self.sandbox, Exec::script(command), &self.start.options).await
    }
}

impl<'a, T: ShellTask> TrackEpisode<'a> for ShellEpisode<'a, T> {
    const SYSTEM: &'static str = T::SYSTEM;

    async fn open(start: &'a EpisodeStart<'a>) -> Result<Self, AgentError> {
        let task = T::read(start).await?;
        let sandbox = Sandbox::start(start.settings.sandbox, task.limits(&start.options)).await?;
        Ok(Self {
            start,
            task,
            sandbox,
            tools: [bash()],
            has_called: false,
        })
    }

    async fn prepare(&mut self) -> Result<Value, AgentError> {
        self.task
            .prepare(&self.sandbox, &self.start.options)
            .await?;
        Ok(self.task.prompt().into())
    }

    fn tools(&self) -> &[Value] {
        &self.tools
    }

    async fn call(&mut self, call: &ToolCall) -> Result<String, AgentError> {
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
        match code_block(text).filter(|_| !self.has_called) {
            Some(command) => self.run(command).await.map(Some),
            None => Ok(None),
        }
    }

    async fn reward(self, _last: &str) -> Result<EpisodeScore, AgentError> {
        let Self { start, task, .. } = self;
        let (settings, options) = (start.settings, &start.options);
        let limits = task.limits(options);
        let names = task.check_names();
        let packed = self
            .sandbox
            .pack(limits.disk_mb, &names, T::NOT_COPIED)
            .await;
        self.sandbox.close().await?;
        let Some(tree) = packed? else {
            // The model has filled the disk, or made files that cannot be read.
            return Ok(EpisodeScore::of_outcome(0.0));
        };
        let files = task.check_files();
        let place = CheckPlace::start(settings.sandbox, limits, &names, &files).await?;
        let score = match place.unpack(tree).await {
            Ok(true) => task.check(&place, options).await,
            Ok(false) => Ok(EpisodeScore::of_outcome(0.0)),
            Err(error) => Err(error),
        };
        place.close().await?;
        score
    }

    async fn close(self) -> Result<(), AgentError> {
        Ok(self.sandbox.close().await?)
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

/// Runs the script that prepares a task, if it has one.
///
/// # Errors
/// If the script fails, because the model cannot do a task that is not prepared.
pub(super) async fn set_up(
    sandbox: &Sandbox,
    script: Option<&String>,
    options: &TaskOptions,
) -> Result<(), AgentError> {
    let Some(script) = script else {
        return Ok(());
    };
    let exec = Exec::script(script).within(options.check_time());
    let outcome = sandbox.exec(&exec).await?;
    if outcome.succeeded() {
        return Ok(());
    }
    let words = format!("{:?}: {}", outcome.end, outcome.text().trim());
    Err(AgentError::Setup(words))
}

pub(super) async fn run(
    sandbox: &Sandbox,
    exec: Exec,
    options: &TaskOptions,
) -> Result<String, AgentError> {
    let exec = exec.within(options.command_time());
    let outcome = sandbox
        .exec(&exec.with_max_output(options.max_output))
        .await?;
    Ok(shown(&outcome, options))
}

fn shown(outcome: &ExecOutcome, options: &TaskOptions) -> String {
    let whole = outcome.text();
    let text = whole.trim_end();
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
