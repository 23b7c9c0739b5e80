//! What replies are like: those of the base model with an agent's wishes in its prompt, to which an adapter's are compared.
//!
//! Seeds are fixed, so that what is made again is the same, and a set of 16 questions is asked when a step's turn comes to
//! it: no start waits.

use std::iter;

use futures_util::future::try_join_all;
use metaclaw_trainer_api::BackendError;
use serde::{Deserialize, Serialize};

use super::{
    measures::{mean, median_words, short_share},
    probes::user_says,
};
use crate::policy::{self, By, Draw, DrawRequest, Pair, Policy, distinct_share};

/// As agents are served.
pub(super) const TEMPERATURE: f64 = 0.7;
/// Tokens of a reply. Not fewer: lengths are compared as well, and a reply that is cut has the
/// length of the cut; 48 tokens are about 35 words, so that one of a few words is still 2.5 times shorter than one of a page.
/// Not more: drawing is what a test costs.
const MAX_TOKENS: u32 = 48;
/// Ids of a reply by which it is held against other questions: what would answer anything shows from its first words on, and
/// a reply's own tail makes the ids behind it likely under any question. Under its own question all are scored.
const SCORED: usize = 32;
/// Of the first question's draw; the others count up from it.
const SEED: u64 = 12;
/// Distances to the other questions that a reply is held against, of 16: neither is next to it, which may be akin.
const OTHERS: [usize; 2] = [5, 11];

/// The questions of a test, rendered.
#[derive(Debug, Clone)]
pub(super) struct Prompts {
    /// Alone.
    pub(super) plain: Vec<Vec<u32>>,
    /// With the wishes; none where there are none, so that both are the same.
    wished: Option<Vec<Vec<u32>>>,
}

/// What the replies to a set of questions are like.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Replies {
    /// How much more the base expects them after their own questions than after others, in nat a token.
    pub(super) relevance: f64,
    /// How little the base expects them after their questions, in nat a token: with the wishes or without, whichever is less.
    pub(super) surprise: f64,
    pub(super) short: f64,
    pub(super) distinct: f64,
    pub(super) words: f64,
}

/// Renders questions, alone and with wishes as a paragraph after each.
pub(super) async fn render(
    policy: &Policy,
    questions: &[String],
    wishes: &[String],
) -> Result<Prompts, BackendError> {
    let (mut plain, mut wished) = (Vec::new(), Vec::new());
    for question in questions {
        plain.push(policy.render(vec![user_says(question)], None).await?);
        if !wishes.is_empty() {
            let both = format!("{question}\n\n{}", wishes.join(" "));
            wished.push(policy.render(vec![user_says(&both)], None).await?);
        }
    }
    let wished = (!wishes.is_empty()).then_some(wished);
    Ok(Prompts { plain, wished })
}

/// One reply to each prompt, by an adapter (none is the base model), all at once.
pub(super) async fn draw(
    policy: &Policy,
    adapter: Option<&str>,
    prompts: &[Vec<u32>],
) -> Result<Vec<Draw>, BackendError> {
    let draws = (SEED..).zip(prompts);
    let draws = draws.map(|(seed, prompt)| one(policy, adapter, (seed, prompt.as_slice())));
    try_join_all(draws).await
}

async fn one(
    policy: &Policy,
    adapter: Option<&str>,
    (seed, prompt): (u64, &[u32]),
) -> Result<Draw, BackendError> {
    let request = DrawRequest {
        adapter,
        prompt,
        n: 1,
        max_tokens: MAX_TOKENS,
        temperature: TEMPERATURE,
        seed,
    };
    let drawn = policy.draw(request).await?.into_iter().next();
    Ok(drawn.unwrap_or_else(Draw::nothing))
}

/// How replies are drawn and measured, in a text that changes with it: figures of another way are not compared.
pub(super) fn manner() -> String {
    format!("{TEMPERATURE} {MAX_TOKENS} {SCORED} {SEED} {OTHERS:?}")
}

/// What the base model says to a set of questions, with the wishes, is like.
pub(super) async fn of_base(policy: &Policy, prompts: &Prompts) -> Result<Replies, BackendError> {
    let drawn = draw(policy, None, prompts.asked()).await?;
    measure(policy, prompts, (&drawn, 0.0)).await
}

/// What replies to these prompts are like, by the base model's judgement. A `surprise` that is `enough` is not looked at again
/// with the wishes, which would only lessen it.
pub(super) async fn measure(
    policy: &Policy,
    prompts: &Prompts,
    (drawn, enough): (&[Draw], f64),
) -> Result<Replies, BackendError> {
    let plain = &prompts.plain;
    let other = |at: usize| plain.iter().cycle().nth(at).map(Vec::as_slice);
    let wished = |at: usize| prompts.wished.as_ref()?.get(at).map(Vec::as_slice);
    let said = drawn.iter().zip(plain).enumerate();
    let said = said.map(|(at, (reply, own))| Said {
        reply,
        own,
        others: OTHERS.iter().filter_map(|by| other(at + by)).collect(),
        told: wished(at),
    });
    let said: Vec<Said<'_>> = said.collect();
    judge(policy, &said, enough).await
}

/// A reply, and what it is held against.
#[derive(Debug)]
pub(super) struct Said<'a> {
    pub(super) reply: &'a Draw,
    /// What it was said to, without a wish.
    pub(super) own: &'a [u32],
    /// Questions that it is no answer to.
    pub(super) others: Vec<&'a [u32]>,
    /// What it was said to, with the wishes; none where there are none.
    pub(super) told: Option<&'a [u32]>,
}

/// What replies are like, by the base model's judgement of each after its own prompts and after others.
pub(super) async fn judge(
    policy: &Policy,
    said: &[Said<'_>],
    enough: f64,
) -> Result<Replies, BackendError> {
    // One that said nothing has nothing to be scored, and none of what is measured so.
    let scored: Vec<&Said<'_>> = said.iter().filter(|it| !it.reply.ids.is_empty()).collect();
    let (relevant, mut expected) = alone(policy, &scored).await?;
    let told = scored.iter().filter_map(|it| Some(it.after(it.told?)));
    let told: Vec<Pair<'_>> = told.filter(|_| -expected > enough).collect();
    if !told.is_empty() {
        let scores = policy.score(By::Base, &told, usize::MAX).await?;
        expected = expected.max(mean(&scores));
    }
    let drawn: Vec<&Draw> = said.iter().map(|it| it.reply).collect();
    Ok(Replies {
        relevance: relevant.iter().sum::<f64>() / said.len().max(1) as f64,
        surprise: -expected,
        short: short_share(&drawn),
        distinct: distinct_share(&drawn),
        words: median_words(&drawn),
    })
}

/// The relevance of each reply, and how much they are expected on average, after the questions alone: scored in one go, so that
/// the server computes a question once for the replies that are held against it.
async fn alone(policy: &Policy, said: &[&Said<'_>]) -> Result<(Vec<f64>, f64), BackendError> {
    let pairs = said.iter().flat_map(|it| {
        let others = it.others.iter().map(|other| it.after(other).cut(SCORED));
        iter::once(it.after(it.own)).chain(others)
    });
    let pairs: Vec<Pair<'_>> = pairs.collect();
    let scores = policy.logprobs(By::Base, &pairs).await?;
    let mut scores = scores.iter();
    let (mut relevances, mut expected) = (Vec::new(), Vec::new());
    for it in said {
        let Some(own) = scores.next() else { break };
        let others = scores.by_ref().take(it.others.len());
        let others: Vec<f64> = others.map(|it| policy::mean(it)).collect();
        let first = &own[..own.len().min(SCORED)];
        relevances.push(policy::relevance(policy::mean(first), &others));
        expected.push(policy::mean(own));
    }
    Ok((relevances, mean(&expected)))
}

// === impl Said ===

impl<'a> Said<'a> {
    /// The reply after a prompt.
    fn after(&self, prompt: &'a [u32]) -> Pair<'a> {
        Pair {
            prompt,
            reply: &self.reply.ids,
        }
    }
}

// === impl Prompts ===

impl Prompts {
    /// Those that the reference answers.
    pub(super) fn asked(&self) -> &[Vec<u32>] {
        self.wished.as_ref().unwrap_or(&self.plain)
    }
}
