//! The track `toolcall`: the model calls tools whose replies the task gives, and its calls and its answer are checked.

mod expected;
mod schema;

use std::fs;

use metaclaw_chat::{ToolCall, regular};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use self::{
    expected::{Expectation, MadeCall},
    schema::{ArgumentSchema, is_same},
};
use super::{
    episode::TrackEpisode,
    error::AgentError,
    reward::EpisodeScore,
    settings::AgentSettings,
    shell,
    task::{self, EpisodeStart},
};
use crate::sandbox::{Exec, Sandbox};

const PYTHON: &str = "python";

#[derive(Debug, Deserialize)]
struct ToolcallTask {
    prompt: String,
    /// The tools in OpenAI's form, or the name of a JSON file with them.
    #[serde(default)]
    tools: Value,
    /// The replies of the tools.
    #[serde(default)]
    replies: Vec<SimulatedReply>,
    /// Whether the model has the tool `python` too.
    #[serde(default)]
    python: bool,
    expect: Expectation,
    /// What a turn with an invalid call earns, from -1 to 0, as a step reward. If 0, turns have no rewards of their own.
    #[serde(default)]
    invalid_call_reward: f64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SimulatedReply {
    name: String,
    /// The arguments that a call has to have, among others.
    #[serde(default)]
    arguments: Map<String, Value>,
    reply: Value,
}

pub(super) struct ToolcallEpisode<'a> {
    start: &'a EpisodeStart<'a>,
    task: ToolcallTask,
    definitions: Vec<Value>,
    schemas: Vec<ToolSchema>,
    sandbox: Option<Sandbox>,
    /// The valid calls, except those of the Python tool.
    made: Vec<MadeCall>,
    invalid: Vec<usize>,
}

struct ToolSchema {
    name: String,
    parameters: ArgumentSchema,
}

// === impl ToolcallEpisode ===

impl ToolcallEpisode<'_> {
    /// Reads a call by its tool's schema.
    ///
    /// # Errors
    /// Says in words what is wrong, as the model is told.
    fn valid(&self, call: &ToolCall) -> Result<MadeCall, String> {
        let tool = self.schemas.iter().find(|tool| tool.name == call.name);
        let tool = tool.ok_or_else(|| format!("there is no tool {:?}", call.name))?;
        let text = match call.arguments.trim() {
            "" => "{}",
            _ => &*call.arguments,
        };
        let arguments: Value = serde_json::from_str(text)
            .map_err(|error| format!("the arguments are no JSON: {error}"))?;
        tool.parameters.check(&arguments, "arguments")?;
        match arguments {
            Value::Object(arguments) => Ok(MadeCall {
                name: call.name.clone(),
                arguments,
            }),
            other => Err(format!("arguments: {other} is no object")),
        }
    }

    fn reply(&self, made: &MadeCall) -> String {
        let fits = |reply: &&SimulatedReply| {
            let has = |(name, value)| {
                let given = made.arguments.get(name);
                given.is_some_and(|given| is_same(given, value))
            };
            reply.name == made.name && reply.arguments.iter().all(has)
        };
        match self
            .task
            .replies
            .iter()
            .find(fits)
            .map(|found| &found.reply)
        {
            Some(Value::String(text)) => text.clone(),
            Some(reply) => reply.to_string(),
            None => json!({ "error": "no result for these arguments" }).to_string(),
        }
    }
}

impl<'a> TrackEpisode<'a> for ToolcallEpisode<'a> {
    const SYSTEM: &'static str = "";

    async fn open(start: &'a EpisodeStart<'a>) -> Result<Self, AgentError> {
        let task: ToolcallTask = task::read(start.settings)?;
        task.expect.validate().map_err(AgentError::Field)?;
        if !(-1.0..=0.0).contains(&task.invalid_call_reward) {
            let given = task.invalid_call_reward;
            let words = format!("invalid_call_reward {given} is not allowed: from -1 to 0");
            return Err(AgentError::Field(words));
        }
        let mut definitions = definitions(&task, start.settings)?;
        definitions.extend(task.python.then(python));
        let schemas = schemas(&task, &definitions).map_err(AgentError::Field)?;
        let sandbox = if task.python {
            Some(Sandbox::start(start.settings.sandbox, &start.options.sandbox).await?)
        } else {
            None
        };
        Ok(Self {
            start,
            task,
            definitions,
            schemas,
            sandbox,
            made: Vec::new(),
            invalid: Vec::new(),
        })
    }

    async fn prepare(&mut self) -> Result<Value, AgentError> {
        Ok(json!(self.task.prompt))
    }

    fn tools(&self) -> &[Value] {
        &self.definitions
    }

    fn begin_turn(&mut self) {
        self.invalid.push(0);
    }

    async fn call(&mut self, call: &ToolCall) -> Result<String, AgentError> {
        let made = match self.valid(call) {
            Ok(made) => made,
            Err(words) => {
                if let Some(last) = self.invalid.last_mut() {
                    *last += 1;
                }
                return Ok(json!({ "error": words }).to_string());
            }
        };
        if let (Some(sandbox), PYTHON) = (&self.sandbox, &*made.name) {
            let code = made.arguments.get("code").and_then(Value::as_str);
            // An empty input would be none: the interpreter would wait for a terminal.
            let input = format!("{}\n", code.unwrap_or_default());
            let exec = Exec::script("exec python3 -I -").with_stdin(input.into_bytes());
            return shell::run(sandbox, exec, &self.start.options).await;
        }
        let reply = self.reply(&made);
        self.made.push(made);
        Ok(reply)
    }

    async fn reward(self, last: &str) -> Result<EpisodeScore, AgentError> {
        let (task, invalid) = (&self.task, &self.invalid);
        let score = task.expect.score(&self.made, invalid.iter().sum(), last);
        let mut score = EpisodeScore::of_outcome(score);
        if task.invalid_call_reward < 0.0 {
            let of_turn = |n_invalid: &usize| match n_invalid {
                0 => 0.0,
                _ => task.invalid_call_reward,
            };
            score.steps = invalid.iter().map(of_turn).collect();
        }
        self.close().await?;
        Ok(score)
    }

    async fn close(self) -> Result<(), AgentError> {
        match self.sandbox {
            Some(sandbox) => Ok(sandbox.close().await?),
            None => Ok(()),
        }
    }
}

// === functions ===

fn definitions(task: &ToolcallTask, settings: &AgentSettings) -> Result<Vec<Value>, AgentError> {
    match &task.tools {
        Value::Null => Ok(Vec::new()),
        Value::Array(list) => Ok(list.clone()),
        Value::String(name) => {
            let path = settings.folder.join(name);
            let wrong =
                |words: String| AgentError::Field(format!("tools {}: {words}", path.display()));
            let text = regular(&path).and_then(fs::read);
            let text = text.map_err(|error| wrong(error.to_string()))?;
            serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))
        }
        other => {
            let words = format!("tools {other} is not allowed: a list, or the name of a JSON file");
            Err(AgentError::Field(words))
        }
    }
}

/// Reads the definitions of the tools.
///
/// # Errors
/// If a definition has a wrong field, or the task names a tool that has no definition.
fn schemas(task: &ToolcallTask, definitions: &[Value]) -> Result<Vec<ToolSchema>, String> {
    let mut schemas: Vec<ToolSchema> = Vec::new();
    for (place, tool) in definitions.iter().enumerate() {
        let at = format!("tools[{place}]");
        if tool["type"] != "function" {
            let given = &tool["type"];
            return Err(format!(
                "{at}.type {given} is not allowed: it has to be \"function\""
            ));
        }
        let function = &tool["function"];
        let name = function["name"].as_str().filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| format!("{at}.function.name is missing"))?;
        let nothing = json!({ "type": "object", "properties": {}, "additionalProperties": false });
        let parameters = function.get("parameters").unwrap_or(&nothing);
        let parameters = ArgumentSchema::new(parameters, &format!("{at}.function.parameters"))?;
        if schemas.iter().any(|known| known.name == name) {
            return Err(format!("{at}: there are two tools {name:?}"));
        }
        schemas.push(ToolSchema {
            name: name.to_owned(),
            parameters,
        });
    }
    let replied = task.replies.iter().map(|reply| ("replies", &*reply.name));
    let expected = task.expect.names().map(|name| ("expect.calls", name));
    let is_unknown = |name: &str| !schemas.iter().any(|known| known.name == name);
    match replied.chain(expected).find(|(_, name)| is_unknown(name)) {
        Some((field, name)) => Err(format!("{field}: there is no tool {name:?} in tools")),
        None => Ok(schemas),
    }
}

fn python() -> Value {
    json!({
        "type": "function",
        "function": {
            "name": PYTHON,
            "description": "Runs a Python program and returns what it prints. Each program starts anew.",
            "parameters": {
                "type": "object",
                "properties": { "code": { "type": "string" } },
                "required": ["code"],
                "additionalProperties": false,
            },
        },
    })
}
