//! The laptop script: forty short conversations with an owner who likes short answers.
//!
//! A question; if the answer has over 40 words, "Too long. Please answer in one short sentence."; "Thanks." once an
//! answer is short. There is at most one complaint in a conversation. Nothing in it identifies the client to the proxy:
//! the script is any client.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    client::{Client, Refusal, Reply},
    questions,
};

/// This owner finds an answer of more words too long.
pub const MAX_WORDS: usize = 40;
const COMPLAINT: &str = "Too long. Please answer in one short sentence.";
const THANKS: &str = "Thanks.";

#[derive(Debug, Clone)]
pub struct Script {
    /// The seed of the order of the questions and of every draw.
    pub seed: u64,
    /// The number of conversations, at most that of the questions.
    pub conversations: usize,
    /// The `max_tokens` of each request.
    pub max_tokens: u32,
    /// How long a failed request is repeated; `None`: a failure is only counted.
    pub retry_for: Duration,
}

/// The record of one conversation.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Conversation {
    pub question: String,
    pub answer: String,
    /// The number of words in the first answer.
    pub words: usize,
    /// The number of words in the answer after the complaint, if there was one.
    pub corrected_words: Option<usize>,
    /// Whether the owner said thanks in the end.
    pub thanked: bool,
    /// The adapter that gave the first answer.
    pub adapter: Option<String>,
    /// Every request of the conversation.
    pub requests: Vec<Request>,
}

/// The record of one request.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Request {
    /// When it was sent, in milliseconds from the script's start.
    pub sent_ms: u64,
    /// The time from sending it to the first token, in milliseconds.
    pub first_token_ms: u64,
    /// The time from sending it to the end, in milliseconds.
    pub total_ms: u64,
    pub reply: String,
    /// The number of failed attempts before.
    pub failures: Vec<String>,
}

/// Returns the words of a text, as people count.
pub fn words(text: &str) -> usize {
    text.split_whitespace().count()
}

impl Script {
    /// Runs the script; calls `told` with each conversation when it ends. Times count from `started`.
    ///
    /// # Panics
    /// Returns an error if a request still fails after `retry_for`.
    pub async fn run(
        &self,
        client: &Client,
        started: Instant,
        mut told: impl FnMut(usize, &Conversation),
    ) -> Vec<Conversation> {
        let mut all = Vec::with_capacity(self.conversations);
        for (number, question) in questions::shuffled(self.seed)
            .into_iter()
            .take(self.conversations)
            .enumerate()
        {
            let talk = Talk::new(self, client, started, number);
            let conversation = talk.hold(question).await;
            told(number, &conversation);
            all.push(conversation);
        }
        all
    }
}

/// One conversation in progress.
struct Talk<'a> {
    script: &'a Script,
    client: &'a Client,
    started: Instant,
    draw: u64,
    messages: Vec<Value>,
    requests: Vec<Request>,
}

impl<'a> Talk<'a> {
    fn new(script: &'a Script, client: &'a Client, started: Instant, number: usize) -> Self {
        let draw = script
            .seed
            .wrapping_mul(1_000_003)
            .wrapping_add(number as u64);
        Self {
            script,
            client,
            started,
            draw,
            messages: Vec::new(),
            requests: Vec::new(),
        }
    }

    async fn hold(mut self, question: &str) -> Conversation {
        let first = self.say(question).await;
        let (answer, adapter) = (first.text.clone(), first.adapter.clone());
        let mut latest = words(&answer);
        let mut corrected_words = None;
        if latest > MAX_WORDS {
            latest = words(&self.say(COMPLAINT).await.text);
            corrected_words = Some(latest);
        }
        let thanked = latest <= MAX_WORDS;
        if thanked {
            self.say(THANKS).await;
        }
        Conversation {
            question: question.to_owned(),
            words: words(&answer),
            answer,
            corrected_words,
            thanked,
            adapter,
            requests: self.requests,
        }
    }

    /// Sends one message and reads the reply; repeats it for as long as the script allows.
    async fn say(&mut self, text: &str) -> Reply {
        self.messages.push(json!({"role": "user", "content": text}));
        let seed = questions::split_mix(&mut self.draw) >> 33;
        let extra = json!({"max_tokens": self.script.max_tokens, "temperature": 0.7, "seed": seed});
        let give_up = Instant::now() + self.script.retry_for;
        let mut failures = Vec::new();
        loop {
            let sent = Instant::now();
            match self.client.stream(&self.messages, &extra).await {
                Ok(reply) => {
                    self.requests.push(Request {
                        sent_ms: millis(sent - self.started),
                        first_token_ms: millis(reply.first_token),
                        total_ms: millis(sent.elapsed()),
                        reply: reply.text.clone(),
                        failures,
                    });
                    self.messages
                        .push(json!({"role": "assistant", "content": reply.text}));
                    return reply;
                }
                Err(refusal) => {
                    assert!(Instant::now() < give_up, "gave up on {text:?}: {refusal:?}");
                    tokio::time::sleep(patience(&refusal)).await;
                    failures.push(format!("{refusal:?}"));
                }
            }
        }
    }
}

/// Returns how long a well-behaved client waits before it tries again.
fn patience(refusal: &Refusal) -> Duration {
    match refusal {
        Refusal::Status {
            retry_after: Some(seconds),
            ..
        } => Duration::from_secs(*seconds),
        Refusal::Status { .. } | Refusal::Cut { .. } | Refusal::Unreachable(_) => {
            Duration::from_millis(500)
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The figures of a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Outcome {
    /// How many of the last ten first answers have at most 40 words.
    pub short_of_last_ten: usize,
    /// The median words of the last ten first answers.
    pub median_of_last_ten: usize,
    pub requests: usize,
    pub failures: usize,
    /// The longest wait for a first token, in milliseconds.
    pub longest_first_token_ms: u64,
}

impl Outcome {
    /// Computes the figures of a run.
    pub fn of(run: &[Conversation]) -> Self {
        let mut last: Vec<usize> = run.iter().rev().take(10).map(|c| c.words).collect();
        last.sort_unstable();
        let requests: Vec<&Request> = run.iter().flat_map(|c| &c.requests).collect();
        Self {
            short_of_last_ten: last.iter().filter(|words| **words <= MAX_WORDS).count(),
            median_of_last_ten: last.get(last.len() / 2).copied().unwrap_or_default(),
            requests: requests.len(),
            failures: requests.iter().map(|request| request.failures.len()).sum(),
            longest_first_token_ms: requests.iter().map(|r| r.first_token_ms).max().unwrap_or(0),
        }
    }
}
