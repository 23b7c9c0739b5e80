//! Judging a turn when the next one of its session shows what came of it.

mod patience;

use std::{collections::BTreeMap, sync::Arc};

use futures_util::{StreamExt as _, stream};
use metaclaw_chat::{AgentId, TurnId};
use metaclaw_reward::{Evidence, may_complain};
use metaclaw_turns::{LogError, StateKind, StreamEnd, Turn, TurnKind, TurnState};
use tokio::{task::JoinSet, time::Instant};

use self::patience::Patience;
use crate::{
    feed::{Feed, Next},
    judge::{AskFailed, NoVerdict, Price},
    said::owner_says,
    samples::reason,
    shared::Shared,
};

/// Turns that are judged at once: a judge model takes seconds.
const AT_ONCE: usize = 4;
/// Turns of a session that a look through the log reads: a turn and what followed it stand close together.
const LOOK_BACK: usize = 256;

/// What came of looking at a turn.
enum Looked {
    Done,
    /// The judge is down, or will not judge this one.
    Waits(AskFailed),
    /// The agent is only relayed for now, or its owner is about.
    Later,
}

/// Why a turn is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    /// It came into the log.
    Came,
    /// The owner asked for a step of training: what waits is judged for it, whoever is about.
    StepAskedFor,
}

/// Judges what waits of an agent, for a step that its owner asked for. A judge that fails ends it: what has a
/// verdict is enough.
pub(crate) async fn judge_now(shared: &Shared, agent: &AgentId) -> Result<(), LogError> {
    let ids = followers_of(shared, agent).await?;
    let looks = ids
        .into_iter()
        .map(|id| look(shared, id, Why::StepAskedFor));
    let mut looks = stream::iter(looks).buffer_unordered(AT_ONCE);
    while let Some(looked) = looks.next().await {
        if let Looked::Waits(failed) = looked? {
            shared.status.judge_failed(&failed);
            break;
        }
    }
    Ok(())
}

/// Runs until the log closes or the learner ends.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut feed = Feed::new(&shared.log);
    let mut running = JoinSet::new();
    let mut patience = Patience::default();
    loop {
        shared
            .status
            .judging(feed.len() + running.len() + patience.len());
        let due = patience.next();
        tokio::select! {
            () = shared.cancel.cancelled() => return,
            next = feed.next(), if running.len() < AT_ONCE => match next {
                Next::End => return,
                Next::Rescan => rescan(&shared, &mut feed).await,
                Next::Turn(id) => {
                    let shared = Arc::clone(&shared);
                    running.spawn(async move { (id, look(&shared, id, Why::Came).await) });
                }
            },
            Some(looked) = running.join_next() => match looked {
                Ok((id, Ok(Looked::Done))) => patience.settled(id),
                Ok((id, Ok(Looked::Waits(failed)))) => {
                    shared.status.judge_failed(&failed);
                    patience.failed(id);
                }
                Ok((id, Ok(Looked::Later))) => patience.failed(id),
                Ok((_, Err(LogError::Closed))) => return,
                Ok((_, Err(error))) => tracing::warn!(%error, "a turn could not be judged"),
                Err(error) => tracing::error!(%error, "judging a turn panicked"),
            },
            () = until(due) => patience.due().into_iter().for_each(|id| feed.again(id)),
        }
    }
}

/// Until a time; for ever without one.
async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

/// Finds what followed each turn that has no verdict yet.
async fn rescan(shared: &Shared, feed: &mut Feed) {
    match followers(shared).await {
        Ok(ids) => feed.refill(&ids),
        Err(error) => {
            tracing::warn!(%error, "the log could not be looked through for turns to judge");
        }
    }
}

async fn followers(shared: &Shared) -> Result<Vec<TurnId>, LogError> {
    let mut found = Vec::new();
    for agent in shared.persist(|| shared.log.agents()).await? {
        found.extend(followers_of(shared, &agent).await?);
    }
    Ok(found)
}

/// By ids alone: what there is to do about each is seen when it is looked at. In most sessions that is the
/// last turn, which nothing follows yet.
async fn followers_of(shared: &Shared, agent: &AgentId) -> Result<Vec<TurnId>, LogError> {
    let captured = shared
        .persist(|| shared.log.in_state(agent, StateKind::Captured))
        .await?;
    let mut first = BTreeMap::<u64, TurnId>::new();
    for id in captured {
        first.entry(id.session).or_insert(id);
    }
    let mut found = Vec::new();
    for (number, first) in first {
        let all = shared.persist(|| shared.log.in_session(agent, None, number));
        let mut ids = all.await?;
        ids.retain(|id| *id >= first);
        found.extend(ids.split_off(ids.len().saturating_sub(LOOK_BACK)));
    }
    Ok(found)
}

/// Looks at a turn of the log: judges the one before it.
async fn look(shared: &Shared, id: TurnId, why: Why) -> Result<Looked, LogError> {
    let Some(turn) = shared.persist(|| shared.log.get(id)).await? else {
        return Ok(Looked::Done);
    };
    if turn.meta.kind == TurnKind::Side {
        shared.spend(id, reason::SIDE).await?;
        return Ok(Looked::Done);
    }
    let Some(before) = turn.parent else {
        return Ok(Looked::Done);
    };
    let worth = price(shared, &turn, why);
    if !shared.judge.judges(worth) {
        return Ok(Looked::Done);
    }
    let before = shared.persist(|| shared.log.get(before)).await?;
    let Some(before) = before.filter(|turn| turn.state == TurnState::Captured) else {
        return Ok(Looked::Done);
    };
    if (shared.is_off)(&turn.agent) {
        return Ok(Looked::Later);
    }
    let Some(evidence) = evidence(&before, &turn) else {
        shared.spend(before.id, reason::INCOMPLETE).await?;
        return Ok(Looked::Done);
    };
    // What costs nothing waits for nobody.
    let price = if why == Why::StepAskedFor || shared.may_cost(&turn.agent).await? {
        worth
    } else {
        Price::Nothing
    };
    match shared.judge.verdict(&evidence, price).await {
        Ok(Ok(verdict)) => {
            shared.status.judge_answered();
            let is_first = shared
                .persist(|| shared.log.judge(before.id, verdict.clone()))
                .await?;
            if is_first {
                shared.status.judged(verdict.score);
                tracing::info!(turn = %before.id, score = i8::from(verdict.score), "judged");
            }
            shared.wake.notify_one();
        }
        Ok(Err(NoVerdict::NotAsked)) if price != worth => return Ok(Looked::Later),
        Ok(Err(NoVerdict::NotAsked)) if shared.trains(&turn.agent) => {
            shared.spend(before.id, reason::NO_RULE).await?;
        }
        Ok(Err(NoVerdict::NoVote)) if price == Price::Majority => {
            shared.spend(before.id, reason::NO_VOTE).await?;
        }
        // It waits: verdicts may be of use one day, and somebody better be asked.
        Ok(Err(NoVerdict::NotAsked | NoVerdict::NoVote)) => {}
        Err(failed) => return Ok(Looked::Waits(failed)),
    }
    Ok(Looked::Done)
}

/// What the verdict about the turn before may cost, by what it is for. Weights learn from every turn, where they learn
/// by themselves or were asked to; skills from what went wrong, which shows in what the owner says, and never in the
/// next step of a tool.
fn price(shared: &Shared, following: &Turn, why: Why) -> Price {
    if shared.trains(&following.agent) || why == Why::StepAskedFor {
        return Price::Majority;
    }
    let complains = || owner_says(following).is_some_and(|said| may_complain(&said));
    if shared.skills_learn && complains() {
        Price::OneVote
    } else {
        Price::Nothing
    }
}

/// What there is to judge a turn by; none if its reply is not whole.
fn evidence(turn: &Turn, following: &Turn) -> Option<Evidence> {
    let reply = turn
        .reply
        .clone()
        .filter(|_| turn.meta.end == StreamEnd::Complete)?;
    Some(Evidence::new(
        &turn.request.messages,
        reply,
        following.evidence(),
    ))
}

#[cfg(test)]
mod tests;
