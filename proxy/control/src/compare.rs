//! Asks a model some of the owner's own questions, with and without what was learned.
//!
//! The requests go directly to the model, not through the gateway: no turn is recorded, no wish is detected, no session
//! begins. The questions are sent alone, without the agent's own system text, so that the answers differ by the lessons
//! and cost little.

use std::collections::BTreeSet;

use futures_util::future::BoxFuture;
use metaclaw_chat::{AgentId, Message, Usage};
use metaclaw_gateway::Serving;
use metaclaw_llm::{AskError, AskParams, ChatClient, LlmConfig};
use metaclaw_settings::address::host;
use metaclaw_skills::{Lessons, Library, hear};
use metaclaw_turns::{StreamEnd, Turn, TurnFilter, TurnKind, TurnLog};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::status::TrainerState;

/// The largest number of tokens of an answer.
pub const MAX_ANSWER: u32 = 800;
/// The base model's name at a training server.
pub const BASE: &str = "base";
const LOOKED_AT: usize = 400;
/// Longer questions are papers and programs, which cost much and show little.
const LONGEST: usize = 2_000;
/// Fewer words are usually an answer, such as "yes".
const FEWEST_WORDS: usize = 3;

/// The model that a comparison uses.
#[derive(Debug)]
pub struct Comparer {
    pub http: reqwest::Client,
    pub whom: ComparedModel,
    /// How it is asked.
    pub params: AskParams,
}

/// The model of the comparison.
#[derive(Debug)]
pub enum ComparedModel {
    /// The model of `llm.*`.
    Llm(Box<LlmConfig>),
    /// The policy model, by the name of the base model or of an adapter.
    Policy(PolicyAddress),
    /// The model is unknown by address and name.
    Nobody,
}

/// Where the policy model runs.
#[derive(Debug, Clone)]
pub struct PolicyAddress {
    /// The address of a training server that is already running.
    pub url: Option<String>,
    pub trainer: Option<watch::Receiver<TrainerState>>,
    pub key: Option<String>,
}

/// What an answer may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GivenLessons {
    Nothing,
    /// Wishes and skills, as in a new session.
    Lessons,
    /// Wishes, skills and the agent's adapter.
    Weights,
}

/// An operation that asks the model an agent's own questions with and without the lessons, or only shows the questions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compare {
    pub agent: AgentId,
    /// The number of the agent's own questions to take if `questions` is empty.
    pub n: usize,
    pub questions: Vec<String>,
    /// Whether the model is asked. If not, the questions have no answers.
    pub asks: bool,
}

/// The questions, the model that is asked, and the answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Comparison {
    /// The model, and where it runs.
    pub model: String,
    pub adapter: Option<String>,
    pub questions: Vec<ComparedQuestion>,
}

/// One question, as `compare --json` prints it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComparedQuestion {
    pub question: String,
    /// The lessons that a new session would add to it.
    pub lessons: Option<String>,
    // pair: what an answer was given, and the answer
    pub answers: Vec<(GivenLessons, ComparedAnswer)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComparedAnswer {
    pub text: String,
    pub usage: Option<Usage>,
}

// === impl Comparison ===

impl Comparison {
    /// Returns what each answer to a question is given: nothing, the lessons that fit it, and the adapter, if there are
    /// any.
    pub fn columns(&self, question: &ComparedQuestion) -> Vec<GivenLessons> {
        let lessons = question.lessons.as_ref().map(|_| GivenLessons::Lessons);
        let weights = self.adapter.as_ref().map(|_| GivenLessons::Weights);
        let all = [Some(GivenLessons::Nothing), lessons, weights];
        all.into_iter().flatten().collect()
    }
}

// === impl Comparer ===

impl Comparer {
    /// Returns the questions with the lessons that fit them, without answers.
    ///
    /// # Errors
    /// Returns an error if there is no model to ask.
    pub fn plan(
        &self,
        library: &Library,
        serving: &Serving,
        agent: &AgentId,
        questions: Vec<String>,
    ) -> anyhow::Result<Comparison> {
        let is_policy = matches!(self.whom, ComparedModel::Policy(_));
        let adapter = serving.current(agent).filter(|_| is_policy);
        let config = self.config(BASE)?;
        let planned = |question: String| ComparedQuestion {
            lessons: lessons_text(&library.lessons(agent, &question)),
            question,
            answers: Vec::new(),
        };
        Ok(Comparison {
            model: format!("{} at {}", config.model, host(&config.url)),
            adapter: adapter.map(|name| name.to_string()),
            questions: questions.into_iter().map(planned).collect(),
        })
    }

    /// Asks one question.
    ///
    /// # Errors
    /// Returns an error if there is no model to ask, or it does not answer.
    pub async fn answer(
        &self,
        library: &Library,
        serving: &Serving,
        agent: &AgentId,
        question: &str,
        given: GivenLessons,
    ) -> anyhow::Result<ComparedAnswer> {
        let adapter = serving.current(agent);
        let model = adapter.filter(|_| given == GivenLessons::Weights);
        let config = self.config(model.as_deref().unwrap_or(BASE))?;
        let has_key = config.key.is_some();
        let client = ChatClient::new(config, self.http.clone())?;
        let lessons = match given {
            GivenLessons::Nothing => Lessons::default(),
            GivenLessons::Lessons => library.lessons(agent, question),
            GivenLessons::Weights => {
                let adapter = model.as_deref();
                let lessons = library.lessons_for(agent, question, adapter);
                lessons.where_answers(adapter).clone()
            }
        };
        let messages = messages(question, &lessons);
        let answer = client.ask(&messages, self.params.clone()).await;
        let answer = answer.map_err(|error| explained(error, has_key))?;
        Ok(ComparedAnswer {
            text: answer.text,
            usage: answer.usage,
        })
    }

    /// Returns the address; `name` is used for the policy model.
    fn config(&self, name: &str) -> anyhow::Result<LlmConfig> {
        match &self.whom {
            ComparedModel::Llm(config) => Ok((**config).clone()),
            ComparedModel::Policy(address) => address.config(name),
            ComparedModel::Nobody => anyhow::bail!(
                "no model is set that could answer both ways: choose one with `metaclaw setup` (llm.api_base and llm.model_id; other upstreams are not asked)"
            ),
        }
    }
}

// === impl PolicyAddress ===

impl PolicyAddress {
    /// Returns the current request form for the base model or an adapter.
    ///
    /// # Errors
    /// Where the local trainer does not answer yet.
    pub fn config(&self, name: &str) -> anyhow::Result<LlmConfig> {
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
        let state = self.trainer.as_ref().map(|one| one.borrow().clone());
        match state {
            Some(TrainerState::Ready { address, .. }) => Ok(format!("http://{address}")),
            _ => anyhow::bail!("the trainer does not answer yet: `metaclaw status` says why"),
        }
    }
}

fn lessons_text(lessons: &Lessons) -> Option<String> {
    let parts = [&lessons.system_block, &lessons.user_line];
    let parts: Vec<&str> = parts.into_iter().flatten().map(String::as_str).collect();
    (!parts.is_empty()).then(|| parts.join("\n\n"))
}

fn messages(question: &str, lessons: &Lessons) -> Vec<Message> {
    let asked = match &lessons.user_line {
        Some(line) => format!("{question}\n\n{line}"),
        None => question.to_owned(),
    };
    let system = lessons.system_block.clone().map(Message::system);
    system.into_iter().chain([Message::user(asked)]).collect()
}

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

/// Returns up to `n` of the owner's last questions; those that began a session come first.
///
/// # Errors
/// Returns the log's errors.
pub fn pick<'a>(
    log: &'a TurnLog,
    agent: &'a AgentId,
    n: usize,
) -> BoxFuture<'a, anyhow::Result<Vec<String>>> {
    Box::pin(async move {
        let filter = TurnFilter {
            agent: Some(agent.clone()),
            limit: LOOKED_AT,
            ..TurnFilter::default()
        };
        let (mut first, mut later) = (Vec::new(), Vec::new());
        let mut known = BTreeSet::new();
        for turn in log.list(filter).await? {
            if first.len() >= n {
                break;
            }
            if turn.kind != TurnKind::Main
                || turn.end != StreamEnd::Complete
                || turn.asked.is_none()
            {
                continue;
            }
            let Some(turn) = log.get(turn.id).await? else {
                continue;
            };
            let Some(question) = question(&turn).filter(|one| known.insert(one.clone())) else {
                continue;
            };
            let list = if turn.parent.is_none() {
                &mut first
            } else {
                &mut later
            };
            list.push(question);
        }
        first.extend(later);
        first.truncate(n);
        Ok(first)
    })
}

/// Returns what the owner asked in a turn, if it can be asked alone: no wish, no complaint, nobody else's words.
fn question(turn: &Turn) -> Option<String> {
    let text = turn.new_words()?.text;
    let is_fit = text.chars().count() <= LONGEST
        && (text.split_whitespace().count() >= FEWEST_WORDS || !text.is_ascii())
        && hear(&text, true).is_empty();
    is_fit.then(|| text.into_owned())
}
