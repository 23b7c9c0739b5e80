//! The owner's rating of a reply, given outside the chat; it overrules every other verdict.

use metaclaw_chat::{AgentId, JudgedBy, Score, SessionId, TurnId, Verdict, Vote, excerpt, now_ms};
use metaclaw_reward::hint;
use metaclaw_turns::{LogError, StreamEnd, Turn, TurnFilter, TurnKind};

use crate::{sample::ExcludeReason, shared::Shared, wish_detection::hear_feedback};

/// The last reply to the owner is searched among this many turns at a session's end.
const ERRANDS: usize = 16;

/// The owner's rating of a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Feedback {
    pub about: About,
    /// Whether the reply was good.
    pub score: Score,
    /// The reason in the owner's own words: a hint for training, and searched for wishes like a message in the chat.
    pub text: Option<String>,
}

/// The reply that the owner rates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum About {
    /// The last complete reply of a session.
    Session(SessionId),
    /// The reply of a turn.
    Turn(TurnId),
    /// The replies with an id from the upstream; the latest of each session.
    Reply(String),
}

/// The result of a rating.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rated {
    /// The turns that now have this verdict, at least one.
    pub turns: Vec<TurnId>,
    /// How many of these turns had another verdict before.
    pub n_overruled: usize,
}

/// Why a rating was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FeedbackError {
    /// The proxy only relays this agent's requests.
    #[error("agent {agent} is only relayed for now: `metaclaw on` first")]
    Off { agent: AgentId },
    /// There is no such reply.
    #[error("no turn of agent {agent} {which}")]
    Unknown { agent: AgentId, which: String },
    /// The turn is of a kind that is never trained on.
    #[error("turn {id} cannot be judged: {why}")]
    NoReply { id: TurnId, why: &'static str },
    #[error(transparent)]
    Log(#[from] LogError),
}

/// Gives an agent's replies the owner's verdict, effective at once, and searches the owner's words for wishes.
///
/// A turn that was set aside because of its verdict, or for lack of one, is free again; a turn that was trained on
/// stays in that state.
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
        // The call is not repeated while the log is reopened, because a second call would overrule the first.
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
        let turn = shared.turn(id).await?;
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
        (TurnKind::Rollout, _) => {
            Some("it is of a rollout, which is closed as a whole: give \"rollout\"")
        }
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
    let last = replies.find(|r| r.kind == TurnKind::Main && r.end == StreamEnd::Complete);
    Ok(last.map(|turn| turn.id).into_iter().collect())
}

/// Returns the owner's verdict that replaces another. The judge's hints stay if both verdicts are -1.
fn verdict(feedback: &Feedback, before: Option<&Verdict>) -> Verdict {
    let Feedback { score, text, .. } = feedback;
    let own = text.as_deref().and_then(hint::of_owner);
    let before = before.filter(|before| before.score == Score::Bad && *score == Score::Bad);
    Verdict {
        votes: vec![Vote::new(*score, own.clone())],
        hint: own.or_else(|| before?.hint.clone()),
        judge_hints: before.map_or_else(Vec::new, |verdict| verdict.judge_hints.clone()),
        ..Verdict::new(*score, JudgedBy::Owner)
    }
}

// === impl About ===

impl About {
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
