//! Chooses which of the replies become targets.

use metaclaw_chat::Score;
use metaclaw_turns::Turn;

use super::draws::{TeacherAnswers, TeacherReply};
use crate::{
    calls::reply_message,
    judge::{AskFailed, Judge},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoChoice {
    /// The teacher said nothing that could be taught, whatever is wished: too few words, a reply that was cut, a broken call.
    Unusable,
    /// No reply does what is wished.
    Disobeyed,
    /// The replies that may do so would answer other questions as well.
    Irrelevant,
}

/// Returns the replies that are relevant enough and do what is wished, as rules on replies decide first, then a reward
/// function or a model; if nobody can decide, relevance alone decides. If some rule calls replies good, a reply that no
/// rule calls good is not used without asking the judge, because the owner has said what a good reply is.
///
/// All of them are used, because the target is the way in which the teacher answers, and the weight of a single reply's
/// words is small. Of the first alone 3 of 160 replies came to have under 3 words, of all none
/// (tests/bench/learn/README.md). The most relevant reply alone is not used either: it is dense, and repeats the
/// question ("You can freeze fresh berries by..."), and training on it made replies shorter from step to step.
///
/// # Errors
/// Returns the error of the judge, which cannot be reached.
pub(super) async fn choose<'a>(
    judge: &Judge,
    turn: &Turn,
    answers: &'a TeacherAnswers,
    least: f64,
) -> Result<Result<Vec<&'a TeacherReply>, NoChoice>, AskFailed> {
    let wished = std::slice::from_ref(&answers.asked);
    // A call repeats little of the question, however well it answers it.
    let is_relevant = |reply: &&TeacherReply| {
        let least = if reply.is_call { least.min(0.0) } else { least };
        reply.relevance >= least
    };
    let mut chosen: Vec<&TeacherReply> = Vec::new();
    for candidate in answers.candidates.iter().filter(is_relevant) {
        if chosen.iter().any(|other| other.ids == candidate.ids) {
            continue;
        }
        let reply = reply_message(&candidate.text);
        let passes = match judge.of_reply(turn, &reply, wished).await? {
            Some(score) => score == Score::Good,
            // What rules praise is what is said, of which a call may have nothing.
            None => candidate.is_call || !judge.praises_replies(),
        };
        if passes {
            chosen.push(candidate);
        }
    }
    if !chosen.is_empty() {
        return Ok(Ok(chosen));
    }
    let all_relevant = answers.candidates.iter().all(|c| is_relevant(&c));
    Ok(Err(if !answers.candidates.iter().any(|c| c.is_teachers) {
        NoChoice::Unusable
    } else if all_relevant {
        NoChoice::Disobeyed
    } else {
        NoChoice::Irrelevant
    }))
}

#[cfg(test)]
mod tests;
