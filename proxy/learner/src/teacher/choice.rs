//! Which of the replies is taught.

use metaclaw_chat::{Message, Score};
use metaclaw_turns::Turn;

use super::draws::{Answers, Candidate};
use crate::judge::{AskFailed, Judge};

/// Why none is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoChoice {
    /// None does what is wished.
    NotObeyed,
    /// Those that may would answer other questions as well.
    NotRelevant,
}

/// The first reply that is relevant enough and does what is wished, as the judge finds: rules on replies first, then a
/// reward function or a model; where nobody can say, it is taught for its relevance. One that no rule calls good where some rule
/// calls replies good is not taught unasked: the owner has said what a good reply is.
///
/// Not the most relevant: that is dense, a question said again ("You can freeze fresh berries by..."), and what is taught so grows
/// shorter from step to step (9 words at the median after 30 sessions, of the reference's 18).
///
/// # Errors
/// The judge's, which is away.
pub(super) async fn choose<'a>(
    judge: &Judge,
    turn: &Turn,
    answers: &'a Answers,
    least: f64,
) -> Result<Result<&'a Candidate, NoChoice>, AskFailed> {
    let wished = std::slice::from_ref(&answers.asked);
    let is_relevant = |it: &&Candidate| it.relevance >= least;
    for candidate in answers.candidates.iter().filter(is_relevant) {
        let reply = Message::assistant(candidate.text.clone());
        let passes = match judge.of_reply(turn, &reply, wished).await? {
            Some(score) => score == Score::Good,
            None => !judge.praises_replies(),
        };
        if passes {
            return Ok(Ok(candidate));
        }
    }
    let all_relevant = answers.candidates.iter().all(|it| is_relevant(&it));
    Ok(Err(if all_relevant {
        NoChoice::NotObeyed
    } else {
        NoChoice::NotRelevant
    }))
}

#[cfg(test)]
mod tests;
