//! The owner's larger model, which rates the policy's sampled ids (`opd.*`, as in MetaClaw's Python original): each id
//! gets an advantage towards what the larger model finds more probable, in addition to the verdict's.
//!
//! The model generates no text: the request is `POST /v1/completions` with the ids of prompt and reply, `echo`, and no
//! new tokens. Ids mean the same to both models only if they have the same tokenizer, so the text that the model
//! reports is compared with the reply.

use std::sync::Arc;

use metaclaw_turns::Tokens;
use serde::Deserialize;
use serde_json::json;

use crate::judge::{Post, PostFailed};

/// Ids for a test request that shows whether the model fails at every request.
const HARMLESS: usize = 4;
/// The number of a reply's letters and digits that the model's text must contain.
const COMPARED: usize = 32;

/// A model with the policy's tokenizer that returns log-probabilities.
#[derive(Debug, Clone)]
pub struct ExternalTeacher {
    post: Arc<dyn Post>,
    model: String,
    coef: f32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NotScored {
    /// The model cannot be reached now, for this turn or another.
    Away(String),
    /// The model fails at this turn only.
    Turn(String),
}

#[derive(Debug, Deserialize)]
struct TeacherCompletion {
    choices: Vec<CompletionChoice>,
}

#[derive(Debug, Deserialize)]
struct CompletionChoice {
    logprobs: Option<CompletionLogprobs>,
}

/// One entry for each id, beginning with the prompt's.
#[derive(Debug, Deserialize)]
struct CompletionLogprobs {
    token_logprobs: Vec<Option<f32>>,
    #[serde(default)]
    tokens: Vec<String>,
}

#[derive(Debug)]
struct Scored {
    logprobs: Vec<f32>,
    text: Option<String>,
}

// === impl ExternalTeacher ===

impl ExternalTeacher {
    /// Creates the teacher from the model's name; `post` sends its requests, and `coef` is its weight
    /// (`opd.kl_penalty_coef`).
    pub fn new(post: Arc<dyn Post>, model: String, coef: f32) -> Self {
        Self { post, model, coef }
    }

    /// Returns what is added to the advantage of each id of a turn's reply: -coef·(log p of the policy - log p of the
    /// teacher), both at T = 1, in nats.
    ///
    /// # Shapes
    /// `[R]`, one for each id of the reply.
    pub(crate) async fn pulls(
        &self,
        tokens: &Tokens,
        reply: &str,
    ) -> Result<Arc<[f32]>, NotScored> {
        let (prompt, ids) = (&tokens.prompt_ids, &tokens.ids);
        let scored = match self.score(prompt, ids).await {
            Ok(scored) => scored,
            Err(failed) => return Err(self.at_fault(prompt, failed).await),
        };
        if scored.text.is_some_and(|read| !reads_as(&read, reply)) {
            let model = &self.model;
            let why = format!(
                "{model} reads other text in the policy's token ids: opd.teacher_model needs the policy model's tokenizer"
            );
            return Err(NotScored::Away(why));
        }
        let each = tokens.logprobs.iter().zip(scored.logprobs);
        Ok(each.map(|(own, its)| -self.coef * (own - its)).collect())
    }

    async fn at_fault(&self, prompt: &[u32], failed: PostFailed) -> NotScored {
        let few = prompt.get(..HARMLESS).unwrap_or(prompt);
        let fails_at_all = match few.split_last() {
            Some((last, before)) if failed.was_asked => self.score(before, &[*last]).await.is_err(),
            Some(_) | None => true,
        };
        if fails_at_all {
            NotScored::Away(failed.why)
        } else {
            NotScored::Turn(failed.why)
        }
    }

    async fn score(&self, prompt: &[u32], reply: &[u32]) -> Result<Scored, PostFailed> {
        let ids = [prompt, reply].concat();
        let body = json!({
            "model": self.model, "prompt": ids, "max_tokens": 0, "echo": true, "logprobs": 1, "temperature": 1.0,
        });
        let answer = self.post.post(&body).await?;
        scored(&answer, prompt.len(), reply.len()).map_err(|why| PostFailed {
            why: format!("{}: {why}", self.model),
            was_asked: true,
        })
    }
}

fn scored(answer: &str, n_prompt: usize, n_reply: usize) -> Result<Scored, String> {
    let completion: TeacherCompletion = serde_json::from_str(answer)
        .map_err(|error| format!("the answer is no completion: {error}"))?;
    let choice = completion.choices.into_iter().next();
    let found = choice.and_then(|choice| choice.logprobs);
    let found = found.ok_or("the completion has no logprobs, which echo and logprobs ask for")?;
    let range = n_prompt..n_prompt + n_reply;
    let own = found.token_logprobs.get(range.clone()).ok_or_else(|| {
        let (n, asked) = (found.token_logprobs.len(), n_prompt + n_reply);
        format!("it says {n} log-probabilities of {asked} ids: echo has to be done")
    })?;
    let number = |logprob: &Option<f32>| logprob.filter(|logprob| logprob.is_finite());
    let numbers = own.iter().map(number).collect::<Option<Vec<f32>>>();
    let logprobs = numbers.ok_or("a log-probability of the reply is no number")?;
    let read = found.tokens.get(range);
    Ok(Scored {
        logprobs,
        text: read.map(<[String]>::concat),
    })
}

/// Returns whether the text contains the beginning of the reply. Marks of word boundaries differ, and a reply's
/// reasoning and calls are not part of its text, so only letters and digits are searched, at any position; only those
/// of ASCII, because others may be split between ids.
fn reads_as(read: &str, reply: &str) -> bool {
    let plain = |text: &str| -> String {
        let plain = text.chars().filter(char::is_ascii_alphanumeric);
        plain.collect()
    };
    let begins: String = plain(reply).chars().take(COMPARED).collect();
    plain(read).contains(&begins)
}

#[cfg(test)]
mod tests;
