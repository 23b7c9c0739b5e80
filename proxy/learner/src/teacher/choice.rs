//! Which of the replies are taught.

use metaclaw_chat::{Message, Score};
use metaclaw_turns::Turn;

use super::draws::{TeacherAnswers, TeacherReply};
use crate::judge::{AskFailed, Judge};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoChoice {
    /// None does what is wished.
    NotObeyed,
    /// Those that may would answer other questions as well.
    NotRelevant,
}

/// The replies that are relevant enough and do what is wished, as the judge finds: rules on replies first, then a reward
/// function or a model; where nobody can say, they are taught for their relevance. One that no rule calls good where some rule
/// calls replies good is not taught unasked: the owner has said what a good reply is.
///
/// All of them: what is taught is how the teacher answers, and one reply of several is a single word more or less.
/// Of the first alone 3 of 80 replies came to have under 3 words, of all none (tests/bench/learn/README.md). Nor the most relevant: that is
/// dense, a question said again ("You can freeze fresh berries by..."), and taught it made replies shorter from step to step.
///
/// # Errors
/// The judge's, which is away.
pub(super) async fn choose<'a>(
    judge: &Judge,
    turn: &Turn,
    answers: &'a TeacherAnswers,
    least: f64,
) -> Result<Result<Vec<&'a TeacherReply>, NoChoice>, AskFailed> {
    let wished = std::slice::from_ref(&answers.asked);
    let is_relevant = |it: &&TeacherReply| it.relevance >= least;
    let mut chosen: Vec<&TeacherReply> = Vec::new();
    for candidate in answers.candidates.iter().filter(is_relevant) {
        if chosen.iter().any(|it| it.ids == candidate.ids) {
            continue;
        }
        let reply = Message::assistant(candidate.text.clone());
        let passes = match judge.of_reply(turn, &reply, wished).await? {
            Some(score) => score == Score::Good,
            None => !judge.praises_replies(),
        };
        if passes {
            chosen.push(candidate);
        }
    }
    if !chosen.is_empty() {
        return Ok(Ok(chosen));
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
