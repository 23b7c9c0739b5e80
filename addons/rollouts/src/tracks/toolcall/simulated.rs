//! The tools of a task: replies that the task gives, and Python in the sandbox.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    super::{
        dialogue::Toolbox, error::AgentError, reply::PolicyCall, shell::shown, task::TaskOptions,
    },
    expected::MadeCall,
    schema::{ArgumentSchema, is_same},
};
use crate::sandbox::{Exec, Sandbox};

/// The tool that runs code.
const PYTHON: &str = "python";

/// What a tool replies to calls with certain arguments.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SimulatedReply {
    name: String,
    /// The arguments that a call has to have, among others.
    #[serde(default)]
    arguments: Map<String, Value>,
    reply: Value,
}

#[derive(Debug)]
pub(super) struct PythonTool<'a> {
    pub(super) sandbox: &'a Sandbox,
    pub(super) options: &'a TaskOptions,
}

/// The tools, and what the model did with them.
#[derive(Debug)]
pub(super) struct SimulatedTools<'a> {
    definitions: Vec<Value>,
    schemas: Vec<ToolSchema>,
    replies: &'a [SimulatedReply],
    python: Option<PythonTool<'a>>,
    /// The valid calls, but for those of Python.
    pub(super) made: Vec<MadeCall>,
    /// The number of invalid calls of each turn.
    pub(super) invalid: Vec<usize>,
}

#[derive(Debug)]
struct ToolSchema {
    name: String,
    parameters: ArgumentSchema,
}

// === impl SimulatedTools ===

impl<'a> SimulatedTools<'a> {
    /// Reads the definitions of the tools.
    ///
    /// # Errors
    /// Names the field of a definition that is wrong, or the reply that has no tool.
    pub(super) fn new(
        definitions: Vec<Value>,
        replies: &'a [SimulatedReply],
        python: Option<PythonTool<'a>>,
    ) -> Result<Self, String> {
        let mut schemas: Vec<ToolSchema> = Vec::new();
        for (place, tool) in definitions.iter().enumerate() {
            let read = ToolSchema::new(tool, &format!("tools[{place}]"))?;
            if schemas.iter().any(|it| it.name == read.name) {
                return Err(format!(
                    "tools[{place}]: there are two tools {:?}",
                    read.name
                ));
            }
            schemas.push(read);
        }
        let is_known = |name: &str| schemas.iter().any(|it| it.name == name);
        if let Some(reply) = replies.iter().find(|it| !is_known(&it.name)) {
            return Err(format!(
                "replies: there is no tool {:?} in tools",
                reply.name
            ));
        }
        Ok(Self {
            definitions,
            schemas,
            replies,
            python,
            made: Vec::new(),
            invalid: Vec::new(),
        })
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.schemas.iter().any(|it| it.name == name)
    }

    /// Reads a call by its tool's schema.
    ///
    /// # Errors
    /// Says in words what is wrong, as the model is told.
    fn valid(&self, call: &PolicyCall) -> Result<MadeCall, String> {
        let tool = self.schemas.iter().find(|it| it.name == call.name);
        let tool = tool.ok_or_else(|| format!("there is no tool {:?}", call.name))?;
        let arguments = if call.arguments.trim().is_empty() {
            "{}"
        } else {
            &*call.arguments
        };
        let arguments: Value = serde_json::from_str(arguments)
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
        match self.replies.iter().find(fits).map(|it| &it.reply) {
            Some(Value::String(text)) => text.clone(),
            Some(reply) => reply.to_string(),
            None => json!({ "error": "no result for these arguments" }).to_string(),
        }
    }
}

impl Toolbox for SimulatedTools<'_> {
    fn definitions(&self) -> &[Value] {
        &self.definitions
    }

    fn begin_turn(&mut self) {
        self.invalid.push(0);
    }

    async fn call(&mut self, call: &PolicyCall) -> Result<String, AgentError> {
        let made = match self.valid(call) {
            Ok(made) => made,
            Err(words) => {
                if let Some(last) = self.invalid.last_mut() {
                    *last += 1;
                }
                return Ok(json!({ "error": words }).to_string());
            }
        };
        if let (Some(python), PYTHON) = (&self.python, &*made.name) {
            let code = made.arguments.get("code").and_then(Value::as_str);
            return python.run(code.unwrap_or_default()).await;
        }
        let reply = self.reply(&made);
        self.made.push(made);
        Ok(reply)
    }
}

// === impl PythonTool ===

impl PythonTool<'_> {
    /// Runs a program, within the sandbox's limits and the task's limits of time and output.
    async fn run(&self, code: &str) -> Result<String, AgentError> {
        // An empty input would be none: the interpreter would wait for a terminal.
        let exec = Exec::script("exec python3 -I -")
            .with_stdin(format!("{code}\n").into_bytes())
            .within(self.options.command_time())
            .with_max_output(self.options.max_output);
        let outcome = self.sandbox.exec(&exec).await?;
        Ok(shown(&outcome, self.options))
    }
}

// === impl ToolSchema ===

impl ToolSchema {
    fn new(tool: &Value, at: &str) -> Result<Self, String> {
        if tool["type"] != "function" {
            return Err(format!(
                "{at}.type {} is not allowed: it has to be \"function\"",
                tool["type"]
            ));
        }
        let function = &tool["function"];
        let name = function["name"].as_str().filter(|it| !it.is_empty());
        let name = name.ok_or_else(|| format!("{at}.function.name is missing"))?;
        let at = format!("{at}.function.parameters");
        let nothing = json!({ "type": "object", "properties": {}, "additionalProperties": false });
        let parameters = function.get("parameters").unwrap_or(&nothing);
        Ok(Self {
            name: name.to_owned(),
            parameters: ArgumentSchema::new(parameters, &at)?,
        })
    }
}

// === functions ===

/// The definition of the Python tool.
pub(super) fn python() -> Value {
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
