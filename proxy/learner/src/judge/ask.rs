//! What is put to a judge.
//!
//! The interface to a judge model, and how one or several of them vote.

use std::{borrow::Cow, fmt, sync::Arc};

use futures_util::future::{BoxFuture, join, join_all, ready};
use metaclaw_chat::{AgentId, Message, Verdict, Vote};
use metaclaw_reward::{Evidence, Questions, verdict};
use metaclaw_turns::{StreamEnd, Turn};
use serde_json::{Value, json};

/// What a question of ours has for a turn's id, and for a session's.
const PROBE: &str = "gate";

#[derive(Debug, Clone)]
pub(crate) struct Case<'a> {
    id: Cow<'a, str>,
    agent: &'a AgentId,
    session: &'a str,
    messages: Cow<'a, [Message]>,
    pub(super) evidence: Evidence,
    pub(super) wishes: Vec<String>,
}

// === impl Case ===

impl<'a> Case<'a> {
    pub(crate) fn followed(turn: &'a Turn, following: &[Message]) -> Option<Self> {
        let reply = whole_reply(turn)?;
        Some(Self::new(turn, reply, following, &[]))
    }

    pub(crate) fn ended(turn: &'a Turn, wishes: &[String]) -> Option<Self> {
        Some(Self::new(turn, whole_reply(turn)?, &[], wishes))
    }

    pub(super) fn of_reply(turn: &'a Turn, reply: &Message, wishes: &[String]) -> Self {
        Self::new(turn, reply, &[], wishes)
    }

    pub(super) fn of_probe(
        agent: &'a AgentId,
        question: &str,
        reply: &str,
        wishes: &[String],
    ) -> Self {
        let messages = vec![Message::user(question)];
        Self {
            evidence: Evidence::new(&messages, Message::assistant(reply), &[]),
            id: Cow::Borrowed(PROBE),
            agent,
            session: PROBE,
            messages: Cow::Owned(messages),
            wishes: wishes.to_vec(),
        }
    }

    fn new(turn: &'a Turn, reply: &Message, following: &[Message], wishes: &[String]) -> Self {
        Self {
            evidence: Evidence::new(&turn.request.messages, reply.clone(), following),
            id: Cow::Owned(turn.id.to_string()),
            agent: &turn.agent,
            session: turn.session.as_str(),
            messages: Cow::Borrowed(&turn.request.messages),
            wishes: wishes.to_vec(),
        }
    }

    /// As a reward function is shown it: docs/extending/reward-functions.md.
    pub(super) fn to_json(&self) -> Value {
        let Evidence { reply, next, .. } = &self.evidence;
        json!({
            "id": self.id,
            "agent": self.agent,
            "session": self.session,
            "request": {"messages": self.messages},
            "reply": reply,
            "next": next,
            "wishes": self.wishes,
        })
    }
}

fn whole_reply(turn: &Turn) -> Option<&Message> {
    let reply = turn.reply.as_ref();
    reply.filter(|_| turn.meta.end == StreamEnd::Complete)
}

/// A model that can be asked for one answer.
pub trait Ask: fmt::Debug + Send + Sync {
    /// Returns the model's answer to a conversation.
    fn ask<'a>(&'a self, messages: &'a [Message]) -> BoxFuture<'a, Result<String, AskFailed>>;

    /// Returns the model's name, which its votes carry if several models vote.
    fn name(&self) -> Option<&str> {
        None
    }

    /// Returns whether it may be asked now. If not, today's token budget is spent.
    fn may_ask(&self) -> BoxFuture<'_, bool> {
        Box::pin(ready(true))
    }
}

/// The model did not answer; the turn waits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the judge did not answer: {why}")]
pub struct AskFailed {
    pub why: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Price {
    /// Only rules, or the owner's own reward function.
    Nothing,
    /// One vote if no rule fits.
    OneVote,
    /// The configured number of votes if no rule fits.
    Majority,
}

// === impl Price ===

impl Price {
    pub(super) fn votes(self, configured: usize) -> Option<usize> {
        match self {
            Self::Nothing => None,
            Self::OneVote => Some(1),
            Self::Majority => Some(configured.max(1)),
        }
    }
}

/// The models that vote on one verdict, in turn.
///
/// If there is one, it has to answer each time, and otherwise the turn waits. If there are several, one that does not
/// answer has no vote, and is not asked again for this verdict.
#[derive(Debug, Clone, Copy)]
pub(super) struct Voters<'a> {
    pub first: &'a dyn Ask,
    pub others: &'a [Arc<dyn Ask>],
}

// === impl Voters ===

impl Voters<'_> {
    /// Returns the verdict of `m` votes (and of as many hints if these are asked for separately), or `None` if no vote
    /// could be read.
    pub(super) async fn verdict(
        self,
        questions: &Questions,
        m: usize,
    ) -> Result<Option<Verdict>, AskFailed> {
        let (votes, hints) = join(self.votes(questions, m), self.hints(questions, m)).await;
        Ok(questions.verdict(&votes?, &hints?))
    }

    /// Asks for votes until the majority is certain: first as many at once as are needed at least, then one by one. If
    /// nobody has answered by then, the rest of the models are asked.
    async fn votes(self, questions: &Questions, m: usize) -> Result<Vec<Option<Vote>>, AskFailed> {
        let messages = &questions.score;
        let first = (0..=m / 2).map(|turn| self.of_turn(turn).ask(messages));
        let mut answers = join_all(first).await;
        loop {
            if let Some(failed) = self.failure(&answers) {
                return Err(failed);
            }
            let vote = |(turn, answer): (usize, &Result<String, AskFailed>)| {
                let vote = (questions.read_score)(answer.as_ref().ok()?)?;
                Some(self.signed(vote, turn))
            };
            let votes: Vec<_> = answers.iter().enumerate().map(vote).collect();
            if verdict::decided(&votes, m, questions.consensus) && answers.iter().any(Result::is_ok)
            {
                return Ok(votes);
            }
            let turn = answers.len();
            let before = (0..turn).filter(|earlier| earlier % self.count() == turn % self.count());
            let failed = before
                .filter_map(|before| answers[before].as_ref().err())
                .next_back();
            let answer = match failed.cloned() {
                Some(failed) => Err(failed),
                None => self.of_turn(turn).ask(messages).await,
            };
            answers.push(answer);
        }
    }

    async fn hints(self, questions: &Questions, m: usize) -> Result<Vec<String>, AskFailed> {
        let Some(messages) = &questions.hint else {
            return Ok(Vec::new());
        };
        let asked = (0..m).map(|turn| self.of_turn(turn).ask(messages));
        let answers = join_all(asked).await;
        if let Some(failed) = self.failure(&answers) {
            return Err(failed);
        }
        let answers = answers.iter().filter_map(|answer| answer.as_ref().ok());
        let hints = answers.filter_map(|answer| Questions::read_hint(answer));
        Ok(hints.collect())
    }

    pub(super) fn count(self) -> usize {
        1 + self.others.len()
    }

    fn of_turn(&self, turn: usize) -> &dyn Ask {
        let other = (turn % self.count()).checked_sub(1);
        let other = other.and_then(|index| self.others.get(index));
        other.map_or(self.first, |other| &**other)
    }

    /// Returns why there can be no verdict: the only model did not answer, or none of several did.
    fn failure(self, answers: &[Result<String, AskFailed>]) -> Option<AskFailed> {
        let has_all = answers.len() >= self.count();
        let is_needed = self.others.is_empty() || has_all && answers.iter().all(Result::is_err);
        let failed = answers.iter().find_map(|answer| answer.as_ref().err());
        failed.filter(|_| is_needed).cloned()
    }

    fn signed(self, vote: Vote, turn: usize) -> Vote {
        let name = self.of_turn(turn).name().map(str::to_owned);
        Vote {
            model: name.filter(|_| !self.others.is_empty()),
            ..vote
        }
    }
}
