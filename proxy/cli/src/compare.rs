//! Some of the owner's own questions, asked with and without what was learned.
//!
//! They go straight to the model, beside the gateway: no turn is kept, nothing is heard, no session begins. They are
//! asked alone, without the agent's own system text, so that the answers differ by the lessons and cost little.

use metaclaw_chat::{AgentId, Message, Usage};
use metaclaw_gateway::Serving;
use metaclaw_llm::{AskError, AskParams, ChatClient, LlmConfig};
use metaclaw_settings::address::host;
use metaclaw_skills::{Lessons, Library};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::supervise::TrainerState;

mod questions;

pub(crate) use self::questions::pick;

/// The most tokens of an answer.
pub(crate) const MAX_ANSWER: u32 = 800;
/// The base model's name at a training server.
pub(crate) const BASE: &str = "base";

/// Whom a comparison asks.
#[derive(Debug)]
pub(crate) struct Comparer {
    pub http: reqwest::Client,
    pub whom: Whom,
    /// How it is asked.
    pub params: AskParams,
}

/// The model behind the comparison.
#[derive(Debug)]
pub(crate) enum Whom {
    /// The one of `llm.*`.
    Llm(LlmConfig),
    /// The policy model, by name of base or adapter.
    Policy(PolicyAddress),
    /// None is known by address and name.
    Nobody,
}

/// Where the policy model is.
#[derive(Debug)]
pub(crate) struct PolicyAddress {
    /// Of a training server that runs already.
    pub url: Option<String>,
    pub trainer: Option<watch::Receiver<TrainerState>>,
    pub key: Option<String>,
}

/// What an answer may know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Given {
    Nothing,
    /// Wishes and skills, as a new session would have them.
    Lessons,
    /// The same, and the agent's adapter.
    Weights,
}

/// What is to be compared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Wanted {
    pub agent: AgentId,
    /// So many of the owner's own, where none are given.
    pub n: usize,
    pub questions: Vec<String>,
}

/// What will be asked, of whom.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// The model, and where it is.
    pub model: String,
    pub adapter: Option<String>,
    pub questions: Vec<Planned>,
}

/// One question, and the lessons that fit it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Planned {
    pub question: String,
    /// What a new session would be given with it.
    pub lessons: Option<String>,
}

/// One question to be answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Question {
    pub agent: AgentId,
    pub text: String,
    pub given: Given,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Answered {
    pub text: String,
    pub usage: Option<Usage>,
}

// === impl Comparer ===

impl Comparer {
    /// What asking these questions would take.
    ///
    /// # Errors
    /// Where there is nobody to ask.
    pub(crate) fn plan(
        &self,
        library: &Library,
        serving: &Serving,
        (agent, questions): (&AgentId, Vec<String>),
    ) -> anyhow::Result<Plan> {
        let is_policy = matches!(self.whom, Whom::Policy(_));
        let adapter = serving.current(agent).filter(|_| is_policy);
        let config = self.config(BASE)?;
        let planned = |question: String| Planned {
            lessons: shown(&library.lessons(agent, &question)),
            question,
        };
        Ok(Plan {
            model: format!("{} at {}", config.model, host(&config.url)),
            adapter: adapter.map(|name| name.to_string()),
            questions: questions.into_iter().map(planned).collect(),
        })
    }

    /// Asks one question.
    ///
    /// # Errors
    /// Where there is nobody to ask, or no answer.
    pub(crate) async fn answer(
        &self,
        library: &Library,
        serving: &Serving,
        question: &Question,
    ) -> anyhow::Result<Answered> {
        let adapter = serving.current(&question.agent);
        let model = adapter.filter(|_| question.given == Given::Weights);
        let config = self.config(model.as_deref().unwrap_or(BASE))?;
        let has_key = config.key.is_some();
        let client = ChatClient::new(config, self.http.clone())?;
        let lessons = match question.given {
            Given::Nothing => Lessons::default(),
            Given::Lessons => library.lessons(&question.agent, &question.text),
            Given::Weights => {
                let adapter = model.as_deref();
                let lessons = library.lessons_for(&question.agent, &question.text, adapter);
                lessons.where_answers(adapter).clone()
            }
        };
        let messages = messages(&question.text, &lessons);
        let answer = client.ask(&messages, self.params.clone()).await;
        let answer = answer.map_err(|error| explained(error, has_key))?;
        Ok(Answered {
            text: answer.text,
            usage: answer.usage,
        })
    }

    /// Where to ask; `name` counts where the policy model is asked.
    fn config(&self, name: &str) -> anyhow::Result<LlmConfig> {
        match &self.whom {
            Whom::Llm(config) => Ok(config.clone()),
            Whom::Policy(address) => address.config(name),
            Whom::Nobody => anyhow::bail!(
                "there is no model to compare with: set llm.api_base and llm.model_id (an upstream of another name is not asked)"
            ),
        }
    }
}

// === impl PolicyAddress ===

impl PolicyAddress {
    /// How the base or an adapter is asked there, now.
    pub(crate) fn config(&self, name: &str) -> anyhow::Result<LlmConfig> {
        Ok(LlmConfig {
            url: format!("{}/v1", self.url()?),
            model: name.to_owned(),
            key: self.key.clone().map(Into::into),
            ..LlmConfig::default()
        })
    }

    fn url(&self) -> anyhow::Result<String> {
        if let Some(url) = &self.url {
            let url = url.trim_end_matches('/');
            return Ok(url.trim_end_matches("/v1").to_owned());
        }
        let state = self.trainer.as_ref().map(|it| it.borrow().clone());
        match state {
            Some(TrainerState::Ready { address, .. }) => Ok(format!("http://{address}")),
            _ => anyhow::bail!("the trainer does not answer yet: `metaclaw status` says why"),
        }
    }
}

/// All that a request is given, as one text.
fn shown(lessons: &Lessons) -> Option<String> {
    let parts = [&lessons.system_block, &lessons.user_line];
    let parts: Vec<&str> = parts.into_iter().flatten().map(String::as_str).collect();
    (!parts.is_empty()).then(|| parts.join("\n\n"))
}

/// As the gateway puts lessons into a request.
fn messages(question: &str, lessons: &Lessons) -> Vec<Message> {
    let asked = match &lessons.user_line {
        Some(line) => format!("{question}\n\n{line}"),
        None => question.to_owned(),
    };
    let system = lessons.system_block.clone().map(Message::system);
    system.into_iter().chain([Message::user(asked)]).collect()
}

/// An error, with the remedy where the caller's key is the one that is missing.
fn explained(error: AskError, has_key: bool) -> anyhow::Error {
    let is_key =
        matches!(&error, AskError::Status { status, .. } if matches!(status.as_u16(), 401 | 403));
    if is_key && !has_key {
        return anyhow::anyhow!(
            "{error}: the key that your agent shows passes through and is not kept; with llm.api_key this can be asked"
        );
    }
    error.into()
}
