//! The track `gui`: the model works on a screen that an environment server shows it.
//!
//! The server says which actions there are, carries them out, and gives the score. `docs/training/tracks.md` describes
//! its five addresses.

use std::time::Duration;

use metaclaw_chat::ToolCall;
use reqwest::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    episode::TrackEpisode,
    error::AgentError,
    policy::PolicyRequestError,
    reward::EpisodeScore,
    task::{self, EpisodeStart},
};
use crate::{
    http::{fetch, in_words},
    proxy::error_message,
};

const SERVER: &str = "http://127.0.0.1:8931";
const PATIENCE: Duration = Duration::from_secs(120);

#[derive(Debug, Deserialize)]
struct GuiTask {
    prompt: String,
    /// The environment server's address.
    server: Option<String>,
    #[serde(default)]
    observation: Observation,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Observation {
    /// As an image, which a model that reads only text refuses.
    #[default]
    Screenshot,
    /// As the server's description in words.
    Text,
}

pub(super) struct GuiEpisode {
    http: reqwest::Client,
    address: String,
    task: GuiTask,
    session: String,
    tools: Vec<Value>,
    first: String,
    /// Whether the model has not been shown the screen since its last action.
    has_changed: bool,
}

// === impl GuiEpisode ===

impl GuiEpisode {
    /// Sends a request, and returns the answer. It is never sent twice: an action is not done twice.
    ///
    /// # Errors
    /// If the server is not reached, answers with an error, or with something else than JSON.
    async fn post(&self, verb: &str, body: &Value) -> Result<Value, AgentError> {
        let request = self.http.post(format!("{}/{verb}", self.address));
        let answer = fetch(request.json(body).timeout(PATIENCE)).await;
        let (status, bytes) = answer.map_err(|error| self.wrong(verb, in_words(error)))?;
        let value: Option<Value> = serde_json::from_slice(&bytes).ok();
        match value {
            Some(value) if status.is_success() => Ok(value),
            _ => {
                let words = error_message(&bytes);
                Err(self.wrong(verb, format!("status {status}: {words}")))
            }
        }
    }

    fn wrong(&self, verb: &str, words: impl Into<String>) -> AgentError {
        AgentError::Environment {
            url: format!("{}/{verb}", self.address),
            words: words.into(),
        }
    }

    fn session(&self) -> Value {
        json!({ "session": self.session })
    }

    async fn image(&mut self) -> Result<Option<Value>, AgentError> {
        if self.task.observation == Observation::Text {
            return Ok(None);
        }
        self.has_changed = false;
        let image = self.post("screenshot", &self.session()).await?;
        if image["type"] != "image_url" {
            let words = "the answer is no image part: {\"type\": \"image_url\", ..}";
            return Err(self.wrong("screenshot", words));
        }
        Ok(Some(image))
    }

    async fn score(&self) -> Result<f64, AgentError> {
        let answer = self.post("evaluate", &self.session()).await?;
        let given = answer["score"].as_f64();
        let score = given.filter(|score| (-1.0..=1.0).contains(score));
        score.ok_or_else(|| {
            let words = format!("score {} is not allowed: from -1 to 1", answer["score"]);
            self.wrong("evaluate", words)
        })
    }
}

impl<'a> TrackEpisode<'a> for GuiEpisode {
    const SYSTEM: &'static str = "You do a task on a screen. Call one tool at a time, and look at what it changed. When \
                                  the task is done, say so without a call.";

    async fn open(start: &'a EpisodeStart<'a>) -> Result<Self, AgentError> {
        let settings = start.settings;
        let task: GuiTask = task::read(settings)?;
        let whole: Value = task::read(settings)?;
        let address = settings.gui_server.as_deref().or(task.server.as_deref());
        let mut opened = Self {
            http: start.http.clone(),
            address: address.unwrap_or(SERVER).trim_end_matches('/').to_owned(),
            task,
            session: String::new(),
            tools: Vec::new(),
            first: String::new(),
            has_changed: true,
        };
        let begun = opened.post("reset", &json!({ "task": whole })).await?;
        let missing = |what| opened.wrong("reset", what);
        let session = begun["session"].as_str();
        let session = session
            .ok_or_else(|| missing("session is missing"))?
            .to_owned();
        let tools = begun["tools"].as_array().filter(|tools| !tools.is_empty());
        let tools = tools.ok_or_else(|| missing("tools are missing"))?.clone();
        opened.first = shown(&begun["observation"]);
        (opened.session, opened.tools) = (session, tools);
        Ok(opened)
    }

    async fn prepare(&mut self) -> Result<Value, AgentError> {
        Ok(match self.image().await? {
            Some(image) => json!([{ "type": "text", "text": self.task.prompt }, image]),
            None => json!(format!(
                "{}\n\nThe screen:\n{}",
                self.task.prompt, self.first
            )),
        })
    }

    fn tools(&self) -> &[Value] {
        &self.tools
    }

    async fn call(&mut self, call: &ToolCall) -> Result<String, AgentError> {
        let arguments = match serde_json::from_str::<Value>(&call.arguments) {
            Ok(arguments) => arguments,
            Err(error) => return Ok(format!("error: the arguments are no JSON: {error}")),
        };
        let action = json!({ "name": call.name, "arguments": arguments });
        let body = json!({ "session": self.session, "action": action });
        let answer = self.post("act", &body).await?;
        self.has_changed = true;
        let observation = &answer["observation"];
        if self.task.observation == Observation::Text || observation.get("error").is_some() {
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

    fn explain(&self, error: PolicyRequestError) -> AgentError {
        match error {
            PolicyRequestError::Refused { status, words, .. }
                if self.task.observation == Observation::Screenshot
                    && is_about_images(status, &words) =>
            {
                AgentError::NoImages { words }
            }
            other => other.into(),
        }
    }

    async fn reward(self, _last: &str) -> Result<EpisodeScore, AgentError> {
        let score = self.score().await;
        let closed = self.close().await;
        let score = EpisodeScore::of_outcome(score?);
        closed.map(|()| score)
    }

    async fn close(self) -> Result<(), AgentError> {
        self.post("close", &self.session()).await.map(drop)
    }
}

// === functions ===

fn is_about_images(status: StatusCode, words: &str) -> bool {
    let words = words.to_lowercase();
    let names = ["image", "text only", "only text", "multimodal", "vision"];
    status.is_client_error() && names.iter().any(|name| words.contains(name))
}

fn shown(observation: &Value) -> String {
    if let Some(error) = observation["error"].as_str() {
        return format!("error: {error}");
    }
    observation["text"].as_str().unwrap_or_default().to_owned()
}
