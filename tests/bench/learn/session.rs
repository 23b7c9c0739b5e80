//! Sessions of one owner with the product, over HTTP.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use metaclaw_tests::client::Client;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    owner::{Answer, Owner, THANKS},
    trainer::{MAX_TOKENS, Reply, TEMPERATURE, Trainer},
};

/// A reply that takes longer was held.
const HELD_AFTER: Duration = Duration::from_secs(60);
/// How often a request that failed is sent again.
const TRIES: usize = 5;
const PAUSE: Duration = Duration::from_secs(2);

/// One session as it went.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Session {
    /// The question's place in the list.
    pub question: usize,
    /// The reply to it.
    pub first: Reply,
    /// Whether that was as she wishes.
    pub right: bool,
    /// Whether the reply after a complaint was; none without one.
    pub corrected: Option<bool>,
    /// The adapter that gave the first reply; none is the base model.
    pub adapter: Option<String>,
    /// The longest that she waited for a reply.
    pub longest_ms: u64,
    pub n_requests: u64,
    /// Of those, held for long.
    pub n_held: u64,
    pub failures: Vec<String>,
}

/// A session under way.
#[derive(Debug)]
pub struct Talk<'a> {
    client: &'a Client,
    trainer: &'a Trainer,
    name: String,
    messages: Vec<Value>,
    session: Session,
}

// === impl Talk ===

impl<'a> Talk<'a> {
    pub fn new(client: &'a Client, trainer: &'a Trainer, name: String) -> Self {
        let session = Session {
            question: 0,
            first: Reply::default(),
            right: false,
            corrected: None,
            adapter: None,
            longest_ms: 0,
            n_requests: 0,
            n_held: 0,
            failures: Vec::new(),
        };
        Self {
            client,
            trainer,
            name,
            messages: Vec::new(),
            session,
        }
    }

    /// Asks, and answers to the reply.
    pub async fn hold(
        mut self,
        owner: &Owner,
        index: usize,
        question: &str,
        mut draw: impl FnMut() -> u64,
    ) -> Result<Session> {
        let (first, adapter) = self.say(question, draw()).await?;
        self.session.question = index;
        self.session.adapter = adapter;
        let answer = owner.answer(&first.text, false);
        self.session.right = answer == Answer::Thanks;
        self.session.first = first;
        let last = match answer {
            Answer::Complaint(said) => {
                let (second, _) = self.say(&said, draw()).await?;
                let answer = owner.answer(&second.text, true);
                self.session.corrected = Some(answer == Answer::Thanks);
                answer
            }
            answer => answer,
        };
        if last == Answer::Thanks {
            self.say(THANKS, draw()).await?;
        }
        Ok(self.session)
    }

    /// Says one thing and hears the reply.
    async fn say(&mut self, text: &str, seed: u64) -> Result<(Reply, Option<String>)> {
        self.messages.push(json!({"role": "user", "content": text}));
        let body = json!({
            "model": "default", "messages": self.messages, "seed": seed,
            "max_tokens": MAX_TOKENS, "temperature": TEMPERATURE,
        });
        for _ in 0..TRIES {
            let sent = Instant::now();
            self.session.n_requests += 1;
            match self.ask(&body).await {
                Ok((reply, adapter)) => {
                    let took = sent.elapsed();
                    let ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
                    self.session.longest_ms = self.session.longest_ms.max(ms);
                    self.session.n_held += u64::from(took > HELD_AFTER);
                    self.messages
                        .push(json!({"role": "assistant", "content": reply.text}));
                    return Ok((reply, adapter));
                }
                Err(error) => self.session.failures.push(format!("{error:#}")),
            }
            tokio::time::sleep(PAUSE).await;
        }
        bail!(
            "{}: gave up on {text:?}: {:?}",
            self.name,
            self.session.failures
        )
    }

    async fn ask(&self, body: &Value) -> Result<(Reply, Option<String>)> {
        let request = self.client.post("/v1/chat/completions", body);
        let response = request.header("x-session-id", &self.name).send().await?;
        let status = response.status();
        let adapter = response.headers().get("x-metaclaw-adapter");
        let adapter = adapter.and_then(|it| it.to_str().ok()).map(str::to_owned);
        let text = response.text().await?;
        if !status.is_success() {
            bail!("{status}: {text}");
        }
        let answer: Value = serde_json::from_str(&text)?;
        let choice = &answer["choices"][0];
        let content = choice["message"]["content"].as_str().context("no text")?;
        let id = answer["id"].as_str().context("a reply without an id")?;
        let reply = Reply {
            text: content.to_owned(),
            ended: choice["finish_reason"] == "stop",
            ids: self.trainer.ids_of(id, content).await?,
        };
        Ok((reply, adapter))
    }
}
