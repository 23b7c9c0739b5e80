//! Which of the replies is taught.

use metaclaw_chat::{Message, Score};
use metaclaw_reward::count_words;
use metaclaw_turns::Turn;

use super::draws::{Answers, Candidate};
use crate::{
    judge::{AskFailed, Judge},
    samples::MIN_TARGET_WORDS,
};

/// Why none is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoChoice {
    /// None is whole and does what is wished.
    NotObeyed,
    /// Those that may would answer other questions as well.
    NotRelevant,
}

/// The most relevant reply that is whole and does what is wished, as the judge finds: rules on replies first, then a
/// reward function or a model; where nobody can say, by its relevance alone. One that no rule calls good where some rule
/// calls replies good is not taught unasked: the owner has said what a good reply is.
///
/// # Errors
/// The judge's, which is away.
pub(super) async fn choose<'a>(
    judge: &Judge,
    turn: &Turn,
    answers: &'a Answers,
    least: f64,
) -> Result<Result<&'a Candidate, NoChoice>, AskFailed> {
    let mut ranked: Vec<&Candidate> = answers.candidates.iter().collect();
    ranked.sort_by(|one, other| other.relevance.total_cmp(&one.relevance));
    let wished = std::slice::from_ref(&answers.asked);
    for candidate in ranked.into_iter().filter(|it| it.is_whole()) {
        if candidate.relevance < least {
            // So are those behind it.
            return Ok(Err(NoChoice::NotRelevant));
        }
        let reply = Message::assistant(candidate.text.clone());
        let passes = match judge.of_reply(turn, &reply, wished).await? {
            Some(score) => score == Score::Good,
            None => !judge.praises_replies(),
        };
        if passes {
            return Ok(Ok(candidate));
        }
    }
    Ok(Err(NoChoice::NotObeyed))
}

// === impl Candidate ===

impl Candidate {
    /// Whether it ended by itself and says something.
    fn is_whole(&self) -> bool {
        self.ended && count_words(&self.text) >= MIN_TARGET_WORDS
    }
}

#[cfg(test)]
mod tests;
