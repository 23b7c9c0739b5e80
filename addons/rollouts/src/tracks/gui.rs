//! The track `gui`: the model works on a screen that an environment server shows it.
//!
//! The server says which actions there are, carries them out, and gives the score. `docs/training/tracks.md` describes
//! its five addresses.

mod environment;

use serde::Deserialize;
use serde_json::{Value, json};

use self::environment::GuiServer;
use super::{
    dialogue::{Dialogue, Toolbox, with_tools},
    error::AgentError,
    policy::{PolicyClient, PolicyRequestError},
    reply::PolicyCall,
    reward::EpisodeScore,
    settings::AgentSettings,
    task::{self, TaskOptions},
};

const SYSTEM: &str = "You do a task on a screen. Call one tool at a time, and look at what it changed. When the task is \
                      done, say so without a call.";
/// The address of the example's server.
const SERVER: &str = "http://127.0.0.1:8931";

#[derive(Debug, Deserialize)]
struct GuiTask {
    prompt: String,
    #[serde(default)]
    system: Option<String>,
    /// The environment server's address.
    #[serde(default)]
    server: Option<String>,
    #[serde(default)]
    observation: Observation,
    #[serde(skip)]
    options: TaskOptions,
}

/// How the model sees the screen.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Observation {
    /// As an image, which a model that reads only text refuses.
    #[default]
    Screenshot,
    /// As the server's description in words.
    Text,
}

/// The screen, and what can be done on it.
struct GuiScreen<'a> {
    server: &'a GuiServer,
    session: String,
    tools: Vec<Value>,
    observation: Observation,
    /// Whether the model has not been shown the screen since its last action.
    has_changed: bool,
}

/// Runs one task.
///
/// # Errors
/// If the task, the environment server or the model cannot be used.
pub(super) async fn run(
    settings: &AgentSettings,
    http: reqwest::Client,
) -> Result<EpisodeScore, AgentError> {
    let mut task: GuiTask = task::read(settings)?;
    task.options = task::read(settings)?;
    let whole: Value = task::read(settings)?;
    let address = settings.gui_server.as_deref().or(task.server.as_deref());
    let server = GuiServer::new(http.clone(), address.unwrap_or(SERVER));
    let (session, tools, first) = begin(&server, &whole).await?;
    let mut screen = GuiScreen {
        server: &server,
        session,
        tools,
        observation: task.observation,
        has_changed: true,
    };
    let score = work(&task, &mut screen, &first, settings, http).await;
    let closed = server
        .post("close", &json!({ "session": screen.session }))
        .await;
    let score = score?;
    closed?;
    Ok(score)
}

async fn work(
    task: &GuiTask,
    screen: &mut GuiScreen<'_>,
    first: &str,
    settings: &AgentSettings,
    http: reqwest::Client,
) -> Result<EpisodeScore, AgentError> {
    let options = &task.options;
    let mut system = task.system.clone().unwrap_or_else(|| SYSTEM.to_owned());
    if options.tools_in_prompt {
        system = with_tools(&system, &screen.tools);
    }
    let prompt = match screen.image().await? {
        Some(image) => json!([{ "type": "text", "text": task.prompt }, image]),
        None => json!(format!("{}\n\nThe screen:\n{first}", task.prompt)),
    };
    let policy = PolicyClient::new(http, settings, options);
    let dialogue = Dialogue::new(&system, &options.earlier, prompt);
    let turns = options.turns(settings);
    let ended = dialogue.run(&policy, screen, turns).await;
    ended.map_err(|error| no_images(error, task.observation))?;
    let body = json!({ "session": screen.session });
    let answer = screen.server.post("evaluate", &body).await?;
    let score = answer["score"]
        .as_f64()
        .filter(|it| (-1.0..=1.0).contains(it));
    let score = score.ok_or_else(|| {
        let words = format!("score {} is not allowed: from -1 to 1", answer["score"]);
        screen.server.wrong("evaluate", words)
    })?;
    Ok(EpisodeScore::of_outcome(score))
}

/// Returns the session, the tools, and the screen in words.
async fn begin(
    server: &GuiServer,
    task: &Value,
) -> Result<(String, Vec<Value>, String), AgentError> {
    let begun = server.post("reset", &json!({ "task": task })).await?;
    let session = begun["session"].as_str();
    let session = session.ok_or_else(|| server.wrong("reset", "session is missing".to_owned()))?;
    let tools = begun["tools"].as_array().filter(|it| !it.is_empty());
    let tools = tools.ok_or_else(|| server.wrong("reset", "tools are missing".to_owned()))?;
    let first = shown(&begun["observation"]);
    Ok((session.to_owned(), tools.clone(), first))
}

/// Says what to do about a model that reads only text.
fn no_images(error: AgentError, observation: Observation) -> AgentError {
    match error {
        AgentError::Policy(PolicyRequestError::Refused { status, words, .. })
            if observation == Observation::Screenshot && is_about_images(status, &words) =>
        {
            AgentError::NoImages { words }
        }
        other => other,
    }
}

fn is_about_images(status: reqwest::StatusCode, words: &str) -> bool {
    let words = words.to_lowercase();
    let names = ["image", "text only", "only text", "multimodal", "vision"];
    status.is_client_error() && names.iter().any(|it| words.contains(it))
}

fn shown(observation: &Value) -> String {
    if let Some(error) = observation["error"].as_str() {
        return format!("error: {error}");
    }
    observation["text"].as_str().unwrap_or_default().to_owned()
}

// === impl GuiScreen ===

impl GuiScreen<'_> {
    async fn image(&mut self) -> Result<Option<Value>, AgentError> {
        if self.observation == Observation::Text {
            return Ok(None);
        }
        self.has_changed = false;
        let body = json!({ "session": self.session });
        let image = self.server.post("screenshot", &body).await?;
        if image["type"] != "image_url" {
            let words = "the answer is no image part: {\"type\": \"image_url\", ..}";
            return Err(self.server.wrong("screenshot", words.to_owned()));
        }
        Ok(Some(image))
    }
}

impl Toolbox for GuiScreen<'_> {
    fn definitions(&self) -> &[Value] {
        &self.tools
    }

    async fn call(&mut self, call: &PolicyCall) -> Result<String, AgentError> {
        let arguments = match serde_json::from_str::<Value>(&call.arguments) {
            Ok(arguments) => arguments,
            Err(error) => return Ok(format!("error: the arguments are no JSON: {error}")),
        };
        let action = json!({ "name": call.name, "arguments": arguments });
        let body = json!({ "session": self.session, "action": action });
        let answer = self.server.post("act", &body).await?;
        self.has_changed = true;
        let observation = &answer["observation"];
        if self.observation == Observation::Text || observation.get("error").is_some() {
            Ok(shown(observation))
        } else {
            Ok("done".to_owned())
        }
    }

    /// An answer to a call cannot contain an image; a message of the user can.
    async fn after_calls(&mut self) -> Result<Option<Value>, AgentError> {
        if !self.has_changed {
            return Ok(None);
        }
        Ok(self.image().await?.map(|image| json!([image])))
    }
}
