//! The track `toolcall`: the model calls tools whose replies the task gives, and its calls and its answer are checked.

mod expected;
mod schema;
mod simulated;

use std::fs;

use metaclaw_chat::regular;
use serde::Deserialize;
use serde_json::Value;

use self::{
    expected::Expectation,
    simulated::{PythonTool, SimulatedReply, SimulatedTools, python},
};
use super::{
    dialogue::{Dialogue, with_tools},
    error::AgentError,
    policy::PolicyClient,
    reward::EpisodeScore,
    settings::AgentSettings,
    task::{self, TaskOptions},
};
use crate::sandbox::Sandbox;

#[derive(Debug, Deserialize)]
struct ToolcallTask {
    prompt: String,
    #[serde(default)]
    system: String,
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
    #[serde(skip)]
    options: TaskOptions,
}

/// Runs one task.
///
/// # Errors
/// If the task, the sandbox or the model cannot be used.
pub(super) async fn run(
    settings: &AgentSettings,
    http: reqwest::Client,
) -> Result<EpisodeScore, AgentError> {
    let mut task: ToolcallTask = task::read(settings)?;
    task.options = task::read(settings)?;
    task.expect.validate().map_err(AgentError::Field)?;
    if !(-1.0..=0.0).contains(&task.invalid_call_reward) {
        let given = task.invalid_call_reward;
        let words = format!("invalid_call_reward {given} is not allowed: from -1 to 0");
        return Err(AgentError::Field(words));
    }
    let sandbox = if task.python {
        Some(Sandbox::start(settings.sandbox, &task.options.sandbox).await?)
    } else {
        None
    };
    let score = run_with(&task, sandbox.as_ref(), settings, http).await;
    if let Some(sandbox) = sandbox {
        sandbox.close().await?;
    }
    score
}

async fn run_with(
    task: &ToolcallTask,
    sandbox: Option<&Sandbox>,
    settings: &AgentSettings,
    http: reqwest::Client,
) -> Result<EpisodeScore, AgentError> {
    let options = &task.options;
    let mut definitions = definitions(task, settings)?;
    let python_tool = sandbox.map(|sandbox| PythonTool { sandbox, options });
    definitions.extend(python_tool.is_some().then(python));
    let mut system = task.system.clone();
    if options.tools_in_prompt {
        system = with_tools(&system, &definitions);
    }
    let replies = &task.replies;
    let mut tools =
        SimulatedTools::new(definitions, replies, python_tool).map_err(AgentError::Field)?;
    if let Some(name) = task.expect.names().find(|it| !tools.has(it)) {
        let words = format!("expect.calls: there is no tool {name:?} in tools");
        return Err(AgentError::Field(words));
    }
    let policy = PolicyClient::new(http, settings, options);
    let dialogue = Dialogue::new(&system, &options.earlier, task.prompt.as_str());
    let turns = options.turns(settings);
    let end = dialogue.run(&policy, &mut tools, turns).await?;
    let score = task
        .expect
        .score(&tools.made, tools.invalid.iter().sum(), &end.last);
    let mut score = EpisodeScore::of_outcome(score);
    if task.invalid_call_reward < 0.0 {
        let of_turn = |n: &usize| {
            if *n > 0 {
                task.invalid_call_reward
            } else {
                0.0
            }
        };
        score.steps = tools.invalid.iter().map(of_turn).collect();
        score.steps.resize(end.turns as usize, 0.0);
    }
    Ok(score)
}

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
