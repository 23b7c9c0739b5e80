//! A larger model of the owner's, which says how likely it finds what the policy sampled (`opd.*`, as MetaClaw has it): each id
//! is pushed towards what that model would rather have said, beside what the verdict pushes.
//!
//! It is asked for no text: `POST /v1/completions` with the ids of prompt and reply, `echo`, and no new tokens. Ids mean the
//! same to both only where both have one tokenizer, so what it reads in them is compared with the reply.

use std::{fmt, sync::Arc};

use metaclaw_turns::Tokens;
use serde::Deserialize;
use serde_json::json;

use crate::judge::{Post, PostFailed};

/// Ids by which is learned whether it fails at whatever it is asked.
const HARMLESS: usize = 4;
/// Letters and digits of a reply that it has to read in the ids.
const COMPARED: usize = 32;

/// A model with the policy's tokenizer, asked for log-probabilities.
#[derive(Clone)]
pub struct ExternalTeacher {
    post: Arc<dyn Post>,
    model: String,
    coef: f32,
}

/// Why it said nothing about a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NotScored {
    /// It cannot be asked for now, about this turn or another.
    Away(String),
    /// It fails at this turn, and at no others.
    Turn(String),
}

/// Of a completion, as far as it is needed.
#[derive(Debug, Deserialize)]
struct TeacherCompletion {
    choices: Vec<CompletionChoice>,
}

#[derive(Debug, Deserialize)]
struct CompletionChoice {
    logprobs: Option<CompletionLogprobs>,
}

/// One entry for each id, the prompt's first.
#[derive(Debug, Deserialize)]
struct CompletionLogprobs {
    token_logprobs: Vec<Option<f32>>,
    #[serde(default)]
    tokens: Vec<String>,
}

/// What it makes of a reply.
#[derive(Debug)]
struct Scored {
    logprobs: Vec<f32>,
    /// The reply as it reads it; none where it does not say.
    text: Option<String>,
}

// === impl ExternalTeacher ===

impl ExternalTeacher {
    /// The model of this name, which `post` asks; `coef` is what its word weighs (`opd.kl_penalty_coef`).
    pub fn new(post: Arc<dyn Post>, model: String, coef: f32) -> Self {
        Self { post, model, coef }
    }

    /// What is added to the advantage of each id of a turn's reply: -coef·(log p of the policy - log p of the teacher), both at
    /// T = 1, in nats.
    ///
    /// # Shapes
    /// `[R]`, as many as the reply has ids.
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

    /// Whether a failure is of the turn, or of whatever it is asked.
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

impl fmt::Debug for ExternalTeacher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("ExternalTeacher");
        shown.field("model", &self.model).field("coef", &self.coef);
        shown.finish_non_exhaustive()
    }
}

/// The reply's part of an answer.
fn scored(answer: &str, n_prompt: usize, n_reply: usize) -> Result<Scored, String> {
    let completion: TeacherCompletion = serde_json::from_str(answer)
        .map_err(|error| format!("the answer is no completion: {error}"))?;
    let choice = completion.choices.into_iter().next();
    let found = choice.and_then(|choice| choice.logprobs);
    let found = found.ok_or("the completion has no logprobs, which echo and logprobs ask for")?;
    let range = n_prompt..n_prompt + n_reply;
    let own = found.token_logprobs.get(range.clone());
    let own = own.ok_or_else(|| {
        let (n, asked) = (found.token_logprobs.len(), n_prompt + n_reply);
        format!("it says {n} log-probabilities of {asked} ids: echo has to be done")
    })?;
    let number = |it: &Option<f32>| it.filter(|it| it.is_finite());
    let logprobs = own.iter().map(number).collect::<Option<Vec<f32>>>();
    let logprobs = logprobs.ok_or("a log-probability of the reply is no number")?;
    let read = found.tokens.get(range);
    Ok(Scored {
        logprobs,
        text: read.map(<[String]>::concat),
    })
}

/// Whether what was read has the beginning of the reply in it. Signs of word boundaries differ, and a reply's reasoning and
/// calls are not part of its text, so letters and digits are looked for, wherever they stand; of ASCII, since others may be split between ids.
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
