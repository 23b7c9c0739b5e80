//! How replies are drawn and measured.
//!
//! The reference are the replies of the base model with an agent's wishes in its prompt. Seeds are fixed, so that what is
//! made again is the same, and a set of 16 questions is asked when a step's turn comes to it: no start waits.

use std::iter;

use futures_util::future::{try_join, try_join_all};
use metaclaw_chat::count_words;
use metaclaw_trainer_api::BackendError;
use serde::{Deserialize, Serialize};

use super::{
    probes::{user_says, user_told},
    report::ReplyPair,
};
use crate::{
    calls::mentions_call,
    formulas::{mean, median, standard_error},
    policy::{
        self, By, DrawRequest, DrawnReply, PolicyModel, SERVED_TEMPERATURE, ScoredPair,
        distinct_share,
    },
};

/// Tokens of a reply. Not fewer: lengths are compared as well, and a reply that is cut has the
/// length of the cut; 48 tokens are about 35 words, so that one of a few words is still 2.5 times shorter than one of a page.
/// Not more: drawing is what a test costs.
const MAX_TOKENS: u32 = 48;
/// Ids of a reply by which it is held against other questions: what would answer anything shows from its first words on, and
/// a reply's own tail makes the ids behind it likely under any question. Under its own question all are scored.
const SCORED: usize = 32;
const SEED: u64 = 12;
/// Distances to the other questions that a reply is held against, of 16: neither is next to it, which may be akin.
const OTHERS: [usize; 2] = [5, 11];

#[derive(Debug, Clone)]
pub(super) struct Prompts {
    pub(super) plain: Vec<Vec<u32>>,
    /// With the wishes; none where there are none, so that both are the same.
    wished: Option<Vec<Vec<u32>>>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct ReplyFigures {
    /// How much more the base expects them after their own questions than after others, in nat a token.
    pub(super) relevance: f64,
    pub(super) relevance_error: f64,
    /// How little the base expects them after their questions, in nat a token: with the wishes or without, whichever is less.
    pub(super) surprise: f64,
    /// The standard error of that mean, without the wishes.
    pub(super) surprise_error: f64,
    /// How much more the base expects them with the wishes than without, in nat a token; none where that was not looked at.
    pub(super) gain: Option<f64>,
    pub(super) asking: f64,
    pub(super) calling: f64,
    pub(super) short: f64,
    pub(super) distinct: f64,
    pub(super) words: f64,
}

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

pub(super) async fn draw(
    policy: &PolicyModel,
    adapter: Option<&str>,
    prompts: &[Vec<u32>],
) -> Result<Vec<DrawnReply>, BackendError> {
    let draws = (SEED..).zip(prompts).map(|(seed, prompt)| {
        policy.draw_one(DrawRequest {
            seed,
            ..DrawRequest::new(adapter, prompt, MAX_TOKENS)
        })
    });
    try_join_all(draws).await
}

/// Draws the replies to one question without and with an adapter, for people to compare.
pub(super) async fn draw_pair(
    policy: &PolicyModel,
    adapter: &str,
    question: &str,
) -> Result<ReplyPair, BackendError> {
    let prompt = [policy.render(vec![user_says(question)], None).await?];
    let said = async |adapter| {
        let drawn = draw(policy, adapter, &prompt).await?;
        let text = |reply: &DrawnReply| {
            let rest = if reply.ended { "" } else { " …" };
            format!("{}{rest}", reply.text.trim())
        };
        Ok::<String, BackendError>(drawn.iter().map(text).collect())
    };
    let (before, after) = try_join(said(None), said(Some(adapter))).await?;
    Ok(ReplyPair {
        question: question.to_owned(),
        before,
        after,
    })
}

/// How replies are drawn and measured, in a text that changes with it: figures of another way are not compared.
pub(super) fn manner() -> String {
    format!("{SERVED_TEMPERATURE} {MAX_TOKENS} {SCORED} {SEED} {OTHERS:?}")
}

#[derive(Debug)]
pub(super) struct ScoredReply<'a> {
    pub(super) reply: &'a DrawnReply,
    pub(super) own: &'a [u32],
    pub(super) others: Vec<&'a [u32]>,
    pub(super) told: Option<&'a [u32]>,
}

pub(super) async fn measure(
    policy: &PolicyModel,
    replies: &[ScoredReply<'_>],
) -> Result<ReplyFigures, BackendError> {
    let mut figures = alone(policy, replies).await?;
    add_wishes(policy, replies, &mut figures).await?;
    Ok(figures)
}

/// Looks at replies with the wishes too, which costs as much again: whether the base expects them more then. Nothing where
/// there are no wishes.
pub(super) async fn add_wishes(
    policy: &PolicyModel,
    replies: &[ScoredReply<'_>],
    figures: &mut ReplyFigures,
) -> Result<(), BackendError> {
    if let Some(expected) = expected_told(policy, replies).await? {
        figures.gain = Some(expected + figures.surprise);
        figures.surprise = figures.surprise.min(-expected);
    }
    Ok(())
}

pub(super) async fn expected_told(
    policy: &PolicyModel,
    replies: &[ScoredReply<'_>],
) -> Result<Option<f64>, BackendError> {
    let scored = replies.iter().filter(|reply| reply.says_something());
    let told: Vec<ScoredPair<'_>> = scored
        .filter_map(|reply| Some(reply.after(reply.told?)))
        .collect();
    if told.is_empty() {
        return Ok(None);
    }
    let expected = policy.score(By::Base, &told, usize::MAX).await?;
    Ok(Some(mean(&expected)))
}

/// What replies are like after the questions alone: scored in one go, so that the server computes a question once for the
/// replies that are held against it.
pub(super) async fn alone(
    policy: &PolicyModel,
    replies: &[ScoredReply<'_>],
) -> Result<ReplyFigures, BackendError> {
    let scored: Vec<&ScoredReply<'_>> = replies
        .iter()
        .filter(|reply| reply.says_something())
        .collect();
    let pairs = scored.iter().flat_map(|reply| {
        let others = reply
            .others
            .iter()
            .map(|other| reply.after(other).cut(SCORED));
        iter::once(reply.after(reply.own)).chain(others)
    });
    let pairs: Vec<ScoredPair<'_>> = pairs.collect();
    let scores = policy.logprobs(By::Base, &pairs).await?;
    let mut logprobs = scores.iter();
    let (mut relevances, mut expected) = (Vec::new(), Vec::new());
    for reply in scored {
        let Some(own) = logprobs.next() else { break };
        let others = logprobs.by_ref().take(reply.others.len());
        let others: Vec<f64> = others.map(|ids| policy::mean(ids)).collect();
        let first = &own[..own.len().min(SCORED)];
        relevances.push(policy::relevance(policy::mean(first), &others));
        expected.push(policy::mean(own));
    }
    relevances.resize(replies.len(), 0.0);
    let drawn: Vec<&DrawnReply> = replies.iter().map(|scored| scored.reply).collect();
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
    fn says_something(&self) -> bool {
        !self.reply.ids.is_empty()
    }

    fn after(&self, prompt: &'a [u32]) -> ScoredPair<'a> {
        ScoredPair {
            prompt,
            reply: &self.reply.ids,
        }
    }
}

// === impl Prompts ===

impl Prompts {
    pub(super) fn with<'a>(&'a self, drawn: &'a [DrawnReply]) -> Vec<ScoredReply<'a>> {
        let other = |at: usize| self.plain.iter().cycle().nth(at).map(Vec::as_slice);
        let wished = |at: usize| self.wished.as_ref()?.get(at).map(Vec::as_slice);
        let both = drawn.iter().zip(&self.plain).enumerate();
        both.map(|(at, (reply, own))| ScoredReply {
            reply,
            own,
            others: OTHERS.iter().filter_map(|by| other(at + by)).collect(),
            told: wished(at),
        })
        .collect()
    }

    pub(super) fn asked(&self) -> &[Vec<u32>] {
        self.wished.as_ref().unwrap_or(&self.plain)
    }
}

/// A reply with fewer words is no answer.
const FEW_WORDS: usize = 3;

pub(super) fn median_words(replies: &[&DrawnReply]) -> f64 {
    let words = replies.iter().map(|reply| count_words(&reply.text) as f64);
    median(words.collect())
}

pub(super) fn short_share(replies: &[&DrawnReply]) -> f64 {
    let short = replies
        .iter()
        .filter(|reply| count_words(&reply.text) < FEW_WORDS);
    short.count() as f64 / replies.len().max(1) as f64
}

pub(super) fn asking_share(replies: &[&DrawnReply]) -> f64 {
    let asking = replies.iter().filter(|reply| asks_back(&reply.text));
    asking.count() as f64 / replies.len().max(1) as f64
}

/// Returns whether a reply has twice as many words in questions as in statements. An exclamation ("Sure!") counts as
/// neither.
fn asks_back(reply: &str) -> bool {
    let (mut asked, mut said) = (0, 0);
    for sentence in reply.split_inclusive(['.', '!', '?', '\n', '。', '！', '？']) {
        let n_words = count_words(sentence);
        if sentence.ends_with(['?', '？']) {
            asked += n_words;
        } else if !sentence.ends_with(['!', '！']) {
            said += n_words;
        }
    }
    asked > 2 * said
}

/// Returns the share of replies that contain a mark of a tool call. The gate's questions offer no tools.
pub(super) fn calling_share(replies: &[&DrawnReply]) -> f64 {
    let calling = replies.iter().filter(|reply| mentions_call(&reply.text));
    calling.count() as f64 / replies.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(text: &str, ids: &[u32]) -> DrawnReply {
        DrawnReply {
            ids: ids.to_vec(),
            text: text.to_owned(),
            ended: true,
        }
    }

    fn is(value: f64, expected: f64) {
        assert!((value - expected).abs() < 1e-9, "{value}, not {expected}");
    }

    #[test]
    fn a_question_back_is_told_from_an_answer() {
        for asks in [
            "What would you like to know about eggs?",
            "Sure! Which kettle do you have? Is it made of steel?",
            "你想知道什么？",
        ] {
            assert!(asks_back(asks), "{asks}");
        }
        for answers in [
            "Boil it for six minutes.",
            "Boil it for six minutes. Would you like to know more?",
            "How do I boil an egg? You put it into boiling water for six minutes.",
            "Boil it for six",
            "",
        ] {
            assert!(!asks_back(answers), "{answers}");
        }
        let replies = [reply("Why?", &[]), reply("It is so.", &[])];
        is(asking_share(&replies.each_ref()), 0.5);
        is(asking_share(&[]), 0.0);
    }

    #[test]
    fn a_call_where_no_tool_is_offered_is_counted() {
        let replies = [
            reply("<tool_call>{\"name\": \"x\"}</tool_call>", &[]),
            reply("Boil it.", &[]),
        ];
        is(calling_share(&replies.each_ref()), 0.5);
    }

    #[test]
    fn words_are_counted_whatever_the_spaces() {
        let replies = [
            reply("Yes.", &[]),
            reply("  two words\n", &[]),
            reply("here are three", &[]),
            reply("", &[]),
        ];
        is(median_words(&replies.each_ref()), 1.5);
        is(short_share(&replies.each_ref()), 0.75);
        is(short_share(&[]), 0.0);
    }
}
