//! Which of the replies is taught.

use metaclaw_chat::{Message, Score};
use metaclaw_reward::{Evidence, count_words, prompt, vote};
use metaclaw_turns::Turn;

use super::draws::{Answers, Candidate};
use crate::{
    judge::{Ask, AskFailed, Judge},
    samples::MIN_TARGET_WORDS,
};

/// Why none is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoChoice {
    /// None is whole and does what is wished.
    NotObeyed,
    /// Those that do would answer other questions as well.
    NotRelevant,
}

/// The most relevant reply that is whole and does what is wished: by the rules on replies, where none decides by the judge
/// model, where there is none by its relevance alone. One that rules call good replies, and that none of them calls good,
/// is not taught unasked: the owner has said what a good reply is.
///
/// # Errors
/// The judge model's.
pub(super) async fn choose<'a>(
    judge: &Judge,
    turn: &Turn,
    answers: &'a Answers,
    least: f64,
) -> Result<Result<&'a Candidate, NoChoice>, AskFailed> {
    let mut ranked: Vec<&Candidate> = answers.candidates.iter().collect();
    ranked.sort_by(|one, other| other.relevance.total_cmp(&one.relevance));
    for candidate in ranked.into_iter().filter(|it| it.is_whole()) {
        let evidence = candidate.evidence(turn);
        let by_rules = by_rules(judge, &evidence);
        if by_rules == Some(false) {
            continue;
        }
        if candidate.relevance < least {
            // So are those behind it.
            return Ok(Err(NoChoice::NotRelevant));
        }
        let passes = match (by_rules, judge.model()) {
            (Some(passes), _) => passes,
            (None, Some(model)) => by_model(model, &evidence, &answers.asked).await?,
            (None, None) => true,
        };
        if passes {
            return Ok(Ok(candidate));
        }
    }
    Ok(Err(NoChoice::NotObeyed))
}

fn by_rules(judge: &Judge, evidence: &Evidence) -> Option<bool> {
    let rules = judge.rules();
    match rules.judge(evidence) {
        Some(verdict) => Some(verdict.score == Score::Good),
        None if judge.model().is_none() && rules.praise_replies() => Some(false),
        None => None,
    }
}

/// One vote: it is about what can be seen.
async fn by_model(model: &dyn Ask, evidence: &Evidence, asked: &str) -> Result<bool, AskFailed> {
    let answer = model.ask(&prompt::wish_messages(evidence, asked)).await?;
    let vote = vote::read(&answer);
    Ok(vote.is_some_and(|vote| vote.score == Score::Good))
}

// === impl Candidate ===

impl Candidate {
    /// Whether it ended by itself and says something.
    fn is_whole(&self) -> bool {
        self.ended && count_words(&self.text) >= MIN_TARGET_WORDS
    }

    /// The reply as if nothing had followed it yet.
    fn evidence(&self, turn: &Turn) -> Evidence {
        let reply = Message::assistant(self.text.clone());
        Evidence::new(&turn.request.messages, reply, &[])
    }
}

#[cfg(test)]
mod tests;
