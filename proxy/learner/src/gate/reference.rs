//! What replies are like: those of the base model with an agent's wishes in its prompt, to which an adapter's are compared.
//!
//! Seeds are fixed, so that what is made again is the same, and a set of 16 questions is asked when a step's turn comes to
//! it: no start waits.

use std::iter;

use futures_util::future::try_join_all;
use metaclaw_trainer_api::BackendError;
use serde::{Deserialize, Serialize};

use super::{
    measures::{asking_share, calling_share, mean, median_words, short_share, standard_error},
    probes::{user_says, user_told},
};
use crate::policy::{self, By, DrawRequest, DrawnReply, PolicyModel, ScoredPair, distinct_share};

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
    pub(super) plain: Vec<Vec<u32>>,
    /// With the wishes; none where there are none, so that both are the same.
    wished: Option<Vec<Vec<u32>>>,
}

/// What the replies to a set of questions are like.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct ReplyFigures {
    /// How much more the base expects them after their own questions than after others, in nat a token.
    pub(super) relevance: f64,
    /// The standard error of that mean.
    pub(super) relevance_error: f64,
    /// How little the base expects them after their questions, in nat a token: with the wishes or without, whichever is less.
    pub(super) surprise: f64,
    /// The standard error of that mean, without the wishes.
    pub(super) surprise_error: f64,
    /// How much more the base expects them with the wishes than without, in nat a token; none where that was not looked at.
    pub(super) gain: Option<f64>,
    /// The share that asks back in place of an answer.
    pub(super) asking: f64,
    /// The share that calls a tool, of which none was offered.
    pub(super) calling: f64,
    pub(super) short: f64,
    pub(super) distinct: f64,
    pub(super) words: f64,
}

/// Renders questions, alone and with wishes as a paragraph after each.
pub(super) async fn render(
    policy: &PolicyModel,
    questions: &[String],
    wishes: &[String],
) -> Result<Prompts, BackendError> {
    let (mut plain, mut wished) = (Vec::new(), Vec::new());
    for question in questions {
        plain.push(policy.render(vec![user_says(question)], None).await?);
        if !wishes.is_empty() {
            let told = user_told(question, wishes);
            wished.push(policy.render(vec![told], None).await?);
        }
    }
    let wished = (!wishes.is_empty()).then_some(wished);
    Ok(Prompts { plain, wished })
}

/// One reply to each prompt, by an adapter (none is the base model), all at once.
pub(super) async fn draw(
    policy: &PolicyModel,
    adapter: Option<&str>,
    prompts: &[Vec<u32>],
) -> Result<Vec<DrawnReply>, BackendError> {
    let draws = (SEED..).zip(prompts).map(|(seed, prompt)| {
        policy.draw_one(DrawRequest {
            adapter,
            prompt,
            n: 1,
            max_tokens: MAX_TOKENS,
            temperature: TEMPERATURE,
            seed,
        })
    });
    try_join_all(draws).await
}

/// How replies are drawn and measured, in a text that changes with it: figures of another way are not compared.
pub(super) fn manner() -> String {
    format!("{TEMPERATURE} {MAX_TOKENS} {SCORED} {SEED} {OTHERS:?}")
}

/// What replies to these prompts are like, by the base model's judgement.
pub(super) async fn measure(
    policy: &PolicyModel,
    prompts: &Prompts,
    drawn: &[DrawnReply],
) -> Result<ReplyFigures, BackendError> {
    let mut replies = untold(policy, prompts, drawn).await?;
    with_wishes(policy, prompts, drawn, &mut replies).await?;
    Ok(replies)
}

/// The same without a look at them with the wishes, which costs as much again.
pub(super) async fn untold(
    policy: &PolicyModel,
    prompts: &Prompts,
    drawn: &[DrawnReply],
) -> Result<ReplyFigures, BackendError> {
    alone(policy, &prompts.said(drawn)).await
}

/// Looks at replies with the wishes too: whether the base expects them more then. Nothing where there are no wishes.
pub(super) async fn with_wishes(
    policy: &PolicyModel,
    prompts: &Prompts,
    drawn: &[DrawnReply],
    replies: &mut ReplyFigures,
) -> Result<(), BackendError> {
    told(policy, &prompts.said(drawn), replies).await
}

/// How much more the base expects its own plain replies with the wishes than without; `surprise` is how little without.
pub(super) async fn gain(
    policy: &PolicyModel,
    prompts: &Prompts,
    drawn: &[DrawnReply],
    surprise: f64,
) -> Result<Option<f64>, BackendError> {
    let expected = expected_told(policy, &prompts.said(drawn)).await?;
    Ok(expected.map(|it| it + surprise))
}

/// A reply, and what it is held against.
#[derive(Debug)]
pub(super) struct ScoredReply<'a> {
    pub(super) reply: &'a DrawnReply,
    /// What it was said to, without a wish.
    pub(super) own: &'a [u32],
    /// Questions that it is no answer to.
    pub(super) others: Vec<&'a [u32]>,
    /// What it was said to, with the wishes; none where there are none.
    pub(super) told: Option<&'a [u32]>,
}

/// What replies are like, by the base model's judgement of each after its own prompts and after others.
pub(super) async fn judge(
    policy: &PolicyModel,
    said: &[ScoredReply<'_>],
) -> Result<ReplyFigures, BackendError> {
    let mut replies = alone(policy, said).await?;
    told(policy, said, &mut replies).await?;
    Ok(replies)
}

async fn told(
    policy: &PolicyModel,
    said: &[ScoredReply<'_>],
    replies: &mut ReplyFigures,
) -> Result<(), BackendError> {
    if let Some(expected) = expected_told(policy, said).await? {
        replies.gain = Some(expected + replies.surprise);
        replies.surprise = replies.surprise.min(-expected);
    }
    Ok(())
}

/// How much the replies are expected on average with the wishes; none where there are none.
async fn expected_told(
    policy: &PolicyModel,
    said: &[ScoredReply<'_>],
) -> Result<Option<f64>, BackendError> {
    let scored = said.iter().filter(|it| !it.reply.ids.is_empty());
    let told: Vec<ScoredPair<'_>> = scored.filter_map(|it| Some(it.after(it.told?))).collect();
    if told.is_empty() {
        return Ok(None);
    }
    Ok(Some(mean(
        &policy.score(By::Base, &told, usize::MAX).await?,
    )))
}

/// What replies are like after the questions alone: scored in one go, so that the server computes a question once for the
/// replies that are held against it.
async fn alone(
    policy: &PolicyModel,
    said: &[ScoredReply<'_>],
) -> Result<ReplyFigures, BackendError> {
    // One that said nothing has nothing to be scored, and none of what is measured so.
    let scored = said.iter().filter(|it| !it.reply.ids.is_empty());
    let scored: Vec<&ScoredReply<'_>> = scored.collect();
    let pairs = scored.iter().flat_map(|it| {
        let others = it.others.iter().map(|other| it.after(other).cut(SCORED));
        iter::once(it.after(it.own)).chain(others)
    });
    let pairs: Vec<ScoredPair<'_>> = pairs.collect();
    let scores = policy.logprobs(By::Base, &pairs).await?;
    let mut scores = scores.iter();
    let (mut relevances, mut expected) = (Vec::new(), Vec::new());
    for it in scored {
        let Some(own) = scores.next() else { break };
        let others = scores.by_ref().take(it.others.len());
        let others: Vec<f64> = others.map(|it| policy::mean(it)).collect();
        let first = &own[..own.len().min(SCORED)];
        relevances.push(policy::relevance(policy::mean(first), &others));
        expected.push(policy::mean(own));
    }
    relevances.resize(said.len(), 0.0);
    let drawn: Vec<&DrawnReply> = said.iter().map(|it| it.reply).collect();
    Ok(ReplyFigures {
        relevance: mean(&relevances),
        relevance_error: standard_error(&relevances),
        surprise: -mean(&expected),
        surprise_error: standard_error(&expected),
        gain: None,
        asking: asking_share(&drawn),
        calling: calling_share(&drawn),
        short: short_share(&drawn),
        distinct: distinct_share(&drawn),
        words: median_words(&drawn),
    })
}

// === impl ScoredReply ===

impl<'a> ScoredReply<'a> {
    /// The reply after a prompt.
    fn after(&self, prompt: &'a [u32]) -> ScoredPair<'a> {
        ScoredPair {
            prompt,
            reply: &self.reply.ids,
        }
    }
}

// === impl Prompts ===

impl Prompts {
    /// Replies to them, with what each is held against.
    fn said<'a>(&'a self, drawn: &'a [DrawnReply]) -> Vec<ScoredReply<'a>> {
        let other = |at: usize| self.plain.iter().cycle().nth(at).map(Vec::as_slice);
        let wished = |at: usize| self.wished.as_ref()?.get(at).map(Vec::as_slice);
        let said = drawn.iter().zip(&self.plain).enumerate();
        let said = said.map(|(at, (reply, own))| ScoredReply {
            reply,
            own,
            others: OTHERS.iter().filter_map(|by| other(at + by)).collect(),
            told: wished(at),
        });
        said.collect()
    }

    /// Those that the reference answers.
    pub(super) fn asked(&self) -> &[Vec<u32>] {
        self.wished.as_ref().unwrap_or(&self.plain)
    }
}
