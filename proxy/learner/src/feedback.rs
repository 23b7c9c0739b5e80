//! The owner's own verdict on a reply, given beside the chat: it overrules every other.

use metaclaw_chat::{AgentId, JudgedBy, Score, SessionId, TurnId, Verdict, Vote, excerpt, now_ms};
use metaclaw_reward::hint;
use metaclaw_turns::{LogError, StreamEnd, Turn, TurnFilter, TurnKind};

use crate::{sample::ExcludeReason, shared::Shared, wish_detection::hear_feedback};

/// Turns at a session's end among which is its last reply to the owner.
const ERRANDS: usize = 16;

/// What the owner says about a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Feedback {
    pub about: About,
    /// Whether it did its job.
    pub score: Score,
    /// Why, in the owner's own words: a hint for the weights, and heard as what is said in the chat.
    pub text: Option<String>,
}

/// Which reply is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum About {
    /// The last whole reply of a session.
    Session(SessionId),
    /// That of a turn.
    Turn(TurnId),
    /// Those with an id that the upstream gave; of each session the latest.
    Reply(String),
}

/// What became of feedback.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rated {
    /// The turns that have this verdict now, at least one.
    pub turns: Vec<TurnId>,
    /// How many of them had another before.
    pub n_overruled: usize,
}

/// Why feedback was not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FeedbackError {
    /// The agent is only relayed.
    #[error("agent {agent} is only relayed for now: `metaclaw on` first")]
    Off { agent: AgentId },
    /// There is no such reply.
    #[error("no turn of agent {agent} {which}")]
    Unknown {
        agent: AgentId,
        /// What no turn is, or has.
        which: String,
    },
    /// The turn is of a kind of which nothing is ever learned.
    #[error("turn {id} cannot be judged: {why}")]
    NoReply { id: TurnId, why: &'static str },
    #[error(transparent)]
    Log(#[from] LogError),
}

/// Gives an agent's replies the owner's verdict, in force at once, and hears what was said with it.
///
/// A turn that was set aside for want of a verdict, or because of the one it had, is free again; one that was trained
/// on stays so.
pub(crate) async fn rate(
    shared: &Shared,
    agent: &AgentId,
    feedback: &Feedback,
) -> Result<Rated, FeedbackError> {
    if (shared.is_off)(agent) {
        let agent = agent.clone();
        return Err(FeedbackError::Off { agent });
    }
    let turns = found(shared, agent, &feedback.about).await?;
    let Some(latest) = turns.last() else {
        let which = feedback.about.which();
        let agent = agent.clone();
        return Err(FeedbackError::Unknown { agent, which });
    };
    let mut n_overruled = 0;
    for turn in &turns {
        let verdict = verdict(feedback, turn.verdict.as_ref());
        // Not asked again while the log is reopened: done twice, it would overrule itself.
        n_overruled += usize::from(shared.log.overrule(turn.id, verdict).await?);
        let reasons = &ExcludeReason::OF_VERDICTS.map(ExcludeReason::as_str);
        shared
            .persist(|| shared.log.reopen(turn.id, reasons))
            .await?;
        tracing::info!(turn = %turn.id, score = i8::from(feedback.score), "judged by the owner");
    }
    shared.verdict_changed();
    shared.wake.notify_one();
    if let Some(said) = &feedback.text {
        hear_feedback(shared, said, latest, now_ms()).await;
    }
    Ok(Rated {
        turns: turns.iter().map(|turn| turn.id).collect(),
        n_overruled,
    })
}

/// The agent's turns that are meant, the latest last.
async fn found(
    shared: &Shared,
    agent: &AgentId,
    about: &About,
) -> Result<Vec<Turn>, FeedbackError> {
    let ids = match about {
        About::Session(session) => last_reply(shared, agent, session).await?,
        About::Turn(id) => vec![*id],
        About::Reply(reply_id) => shared.persist(|| shared.log.by_reply(reply_id)).await?,
    };
    let mut turns = Vec::new();
    for id in ids {
        let turn = shared.persist(|| shared.log.get(id)).await?;
        let Some(turn) = turn.filter(|turn| turn.agent == *agent) else {
            continue;
        };
        if let Some(why) = why_not(&turn) {
            return Err(FeedbackError::NoReply { id, why });
        }
        turns.push(turn);
    }
    Ok(turns)
}

fn why_not(turn: &Turn) -> Option<&'static str> {
    match (turn.meta.kind, turn.meta.end) {
        (TurnKind::Side, _) => Some("it is the client's own errand and no reply to its owner"),
        (TurnKind::Main, StreamEnd::Complete) => None,
        (TurnKind::Main, _) => Some("its reply did not come whole"),
    }
}

async fn last_reply(
    shared: &Shared,
    agent: &AgentId,
    session: &SessionId,
) -> Result<Vec<TurnId>, LogError> {
    let filter = TurnFilter {
        agent: Some(agent.clone()),
        session: Some(session.clone()),
        limit: ERRANDS,
        ..TurnFilter::default()
    };
    let listed = shared.persist(|| shared.log.list(filter.clone())).await?;
    let mut replies = listed.iter();
    let last = replies.find(|it| it.kind == TurnKind::Main && it.end == StreamEnd::Complete);
    Ok(last.map(|it| it.id).into_iter().collect())
}

/// The owner's verdict in place of another. What the judge would have hinted at stays of use where both say no.
fn verdict(feedback: &Feedback, before: Option<&Verdict>) -> Verdict {
    let Feedback { score, text, .. } = feedback;
    let own = text.as_deref().and_then(hint::of_owner);
    let before = before.filter(|it| it.score == Score::Bad && *score == Score::Bad);
    Verdict {
        votes: vec![Vote {
            score: *score,
            hint: own.clone(),
        }],
        hint: own.or_else(|| before?.hint.clone()),
        judge_hints: before.map_or_else(Vec::new, |it| it.judge_hints.clone()),
        ..Verdict::new(*score, JudgedBy::Owner)
    }
}

// === impl About ===

impl About {
    /// What a turn of no agent's would have, or be.
    fn which(&self) -> String {
        match self {
            Self::Session(session) => format!("is a whole reply in a session {session}"),
            Self::Turn(id) => format!("has the id {id}"),
            Self::Reply(reply_id) => format!("has the reply {:?}", excerpt(reply_id)),
        }
    }
}

#[cfg(test)]
mod tests;
