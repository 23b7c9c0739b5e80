//! Judges a turn when the next turn of its session shows the reaction, or when the session has ended.
//!
//! The turn whose outcome another turn shows is the owner's turn before it, with any agent-started turns (errands) between.
//! A heartbeat stays in the conversation, and the owner's next message comes after it. A compaction ends the
//! conversation: the next request begins with a summary, and continues no reply in the log. In both cases, the owner's
//! next own words are about the owner's last turn, never about the errand.
//!
//! A judge that is down comes back within minutes; one that refuses this turn (a content filter) never accepts it. So
//! each failure of a turn doubles its pause, and a refused turn costs a few requests each day.

mod followed;
mod patience;
mod silence;

#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt as _, future, stream};
use metaclaw_chat::{AgentId, JudgedBy, Score, TurnId, Verdict, now_ms};
use metaclaw_reward::{hint, may_complain, plain_verdict};
use metaclaw_skills::{Remark, remark};
use metaclaw_turns::{LogError, Turn, TurnKind, TurnState};
use tokio::{task::JoinSet, time::Instant};
use tracing::Instrument as _;

use self::{
    followed::{Followed, MOST_ERRANDS, followed},
    patience::Patience,
    silence::{FoundTurns, SessionSilence, of_agent, of_all},
};
use crate::{
    config::JudgeKind,
    feed::{Feed, FeedNext},
    judge::{AskFailed, Case, NoVerdict, Price},
    owner_text::owner_says,
    sample::ExcludeReason,
    shared::Shared,
};

/// Judges an agent's waiting turns for a step that its owner asked for. If the judge fails, judging ends, and the step
/// uses what has a verdict.
pub(crate) async fn judge_now(shared: &Shared, agent: &AgentId) -> Result<(), LogError> {
    let FoundTurns { followers, last } = of_agent(shared, agent).await?;
    let followed = followers.into_iter().map(Subject::Follower);
    let ended = last.into_iter().map(Subject::Session);
    let looks = followed
        .chain(ended)
        .map(|subject| look(shared, subject, LookReason::StepAskedFor));
    let mut looks = stream::iter(looks).buffer_unordered(shared.judge.at_once());
    while let Some(looked) = looks.next().await {
        if let LookResult::Waits(failed) = looked? {
            shared.status.judge_failed(&failed);
            break;
        }
    }
    Ok(())
}

#[derive(Debug, Clone, Copy)]
enum Subject {
    /// A turn that may show the reaction to another.
    Follower(TurnId),
    /// The session of a turn, which may have ended.
    Session(TurnId),
}

struct Judging {
    shared: Arc<Shared>,
    feed: Feed,
    running: JoinSet<(Subject, Result<LookResult, LogError>)>,
    silence: SessionSilence,
    followers: Patience,
    sessions: Patience,
}

pub(crate) async fn run(shared: Arc<Shared>) {
    let cancel = shared.cancel.clone();
    let judge = &shared.config.judge;
    let idle = judge.session_end.then_some(judge.session_idle.0);
    let mut task = Judging {
        feed: Feed::new(&shared.log),
        running: JoinSet::new(),
        silence: SessionSilence::new(idle),
        followers: Patience::default(),
        sessions: Patience::default(),
        shared,
    };
    cancel.run_until_cancelled(task.run()).await;
}

// === impl Judging ===

impl Judging {
    async fn run(&mut self) {
        loop {
            self.tell();
            let is_free = self.running.len() < self.shared.judge.at_once();
            let due = [self.followers.next(), self.sessions.next()];
            let due = due.into_iter().flatten().min();
            tokio::select! {
                next = self.feed.next(), if is_free => match next {
                    FeedNext::End => return,
                    FeedNext::Rescan => self.rescan().await,
                    FeedNext::Turn(id) => {
                        self.silence.spoke(id);
                        self.spawn(Subject::Follower(id));
                    }
                },
                id = self.silence.ended(), if is_free => self.spawn(Subject::Session(id)),
                Some(looked) = self.running.join_next() => match looked {
                    Ok((_, Err(LogError::Closed))) => return,
                    Ok((subject, looked)) => self.looked(subject, looked),
                    Err(error) => tracing::error!(%error, "judging a turn panicked"),
                },
                () = until(due) => {
                    self.followers.due().into_iter().for_each(|id| self.feed.again(id));
                    self.sessions.due().into_iter().for_each(|id| self.silence.again(id));
                }
            }
        }
    }

    /// Reports the number of turns that wait for a verdict. Turns of sessions that may continue are not counted.
    fn tell(&self) {
        let failed = self.followers.len() + self.sessions.len();
        let waiting = self.feed.len() + self.running.len() + failed;
        self.shared.status.judging(waiting);
    }

    fn spawn(&mut self, subject: Subject) {
        let shared = Arc::clone(&self.shared);
        self.running.spawn(async move {
            let (Subject::Follower(turn) | Subject::Session(turn)) = subject;
            let span = tracing::info_span!("judge", %turn);
            let looked = look(&shared, subject, LookReason::Came)
                .instrument(span)
                .await;
            (subject, looked)
        });
    }

    fn looked(&mut self, subject: Subject, looked: Result<LookResult, LogError>) {
        let (id, patience) = match subject {
            Subject::Follower(id) => (id, &mut self.followers),
            Subject::Session(id) => (id, &mut self.sessions),
        };
        match looked {
            Ok(LookResult::Done) => patience.settled(id),
            Ok(LookResult::Ended) => {
                patience.settled(id);
                self.silence.again(id);
            }
            Ok(LookResult::NotSilent(rest)) => self.silence.goes_on(id, rest),
            Ok(LookResult::Waits(failed)) => {
                self.shared.status.judge_failed(&failed);
                patience.failed(id);
            }
            Ok(LookResult::Later) => patience.failed(id),
            Err(error) => tracing::warn!(%error, "a turn could not be judged"),
        }
    }

    async fn rescan(&mut self) {
        match of_all(&self.shared).await {
            Ok(found) => {
                self.feed.refill(&found.followers);
                found.last.into_iter().for_each(|id| self.silence.again(id));
            }
            Err(error) => {
                tracing::warn!(%error, "the log could not be looked through for turns to judge");
            }
        }
    }
}

async fn look(shared: &Shared, subject: Subject, why: LookReason) -> Result<LookResult, LogError> {
    match subject {
        Subject::Follower(id) => look_at_follower(shared, id, why).await,
        Subject::Session(id) => look_at_end(shared, id, why).await,
    }
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => future::pending().await,
    }
}

/// The weight of a verdict that was given at a session's end, because satisfied owners leave, and so do those who gave
/// up.
const AT_SESSION_END: f32 = 0.3;

#[derive(Debug)]
pub(super) enum LookResult {
    Done,
    /// It is done, and the client said that the session ends here.
    Ended,
    /// The session is not silent yet: the time for which it must still be silent.
    NotSilent(Duration),
    /// The judge cannot be reached, or refuses to judge this turn.
    Waits(AskFailed),
    /// The proxy only relays this agent's requests now, or the owner is present.
    Later,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LookReason {
    Came,
    /// The owner asked for a training step: waiting turns are judged for it, even if the owner is present.
    StepAskedFor,
}

/// Looks at a turn of the log, and judges the turn before it.
pub(super) async fn look_at_follower(
    shared: &Shared,
    id: TurnId,
    why: LookReason,
) -> Result<LookResult, LogError> {
    let Some(turn) = shared.turn(id).await? else {
        return Ok(LookResult::Done);
    };
    let done = if turn.meta.is_last {
        LookResult::Ended
    } else {
        LookResult::Done
    };
    if turn.meta.kind == TurnKind::Side {
        shared.spend(id, ExcludeReason::Side).await?;
        return Ok(done);
    }
    if turn.meta.kind == TurnKind::Rollout {
        // Its rollout's outcome judges it.
        return Ok(LookResult::Done);
    }
    let worth = price(shared, &turn, why);
    let plain = plain(shared, &turn, worth);
    if plain.is_none() && !shared.judge.judges(worth) {
        return Ok(done);
    }
    let Some(Followed { before, new_from }) = followed(shared, &turn).await? else {
        return Ok(done);
    };
    if !is_to_be_judged(&before) {
        return Ok(done);
    }
    if (shared.is_off)(&turn.agent) {
        return Ok(LookResult::Later);
    }
    let new = turn.request.messages.get(new_from..).unwrap_or_default();
    let Some(case) = Case::followed(&before, new) else {
        shared.spend(before.id, ExcludeReason::Incomplete).await?;
        return Ok(done);
    };
    let price = if plain.is_some() {
        Price::Nothing
    } else {
        affordable(shared, &turn, worth, why).await?
    };
    let verdict = shared.judge.verdict(&case, price).await;
    match (verdict, plain) {
        (Ok(Ok(verdict)), _) | (Ok(Err(NoVerdict::NotAsked)), Some(verdict)) => {
            note(shared, &before, with_owners_hint(verdict, &turn)).await?;
        }
        (Ok(Err(NoVerdict::NotAsked)), None) if price != worth => return Ok(LookResult::Later),
        (Ok(Err(no_verdict)), _) => {
            shared.status.judge_answered();
            // Elsewhere, the turn waits, because verdicts may be needed later, and a better judge may be configured.
            let is_final = no_verdict == NoVerdict::NoVote || shared.trains(&turn.agent);
            if let Some(why) = why_spent(no_verdict, price).filter(|_| is_final) {
                shared.spend(before.id, why).await?;
            }
        }
        (Err(failed), _) => return Ok(LookResult::Waits(failed)),
    }
    Ok(done)
}

/// Looks at the session of a turn: if it has ended, judges its last main turn by request and reply alone. If that gives
/// no verdict, the turn is not spent, because the session may continue and its next turn may bring one.
pub(super) async fn look_at_end(
    shared: &Shared,
    id: TurnId,
    why: LookReason,
) -> Result<LookResult, LogError> {
    let config = &shared.config;
    if !config.judge.session_end {
        return Ok(LookResult::Done);
    }
    let Some((turn, is_last)) = last_main(shared, id).await? else {
        return Ok(LookResult::Done);
    };
    let now = now_ms();
    let age = Duration::from_millis(now.saturating_sub(turn.meta.ended_ms));
    // A turn of the future ended with a clock that was ahead.
    let silent = Duration::from_millis(now.abs_diff(turn.meta.ended_ms));
    let idle = config.judge.session_idle.0;
    if !is_last && silent < idle {
        return Ok(LookResult::NotSilent(idle.saturating_sub(silent)));
    }
    let worth = if shared.trains(&turn.agent) || why == LookReason::StepAskedFor {
        Price::Majority
    } else {
        Price::Nothing
    };
    let is_due = turn.state == TurnState::Captured && age <= config.rl.max_age.0;
    if !is_due || !shared.judge.judges(worth) {
        return Ok(LookResult::Done);
    }
    if (shared.is_off)(&turn.agent) {
        return Ok(LookResult::Later);
    }
    let Some(case) = Case::ended(&turn, &shared.wishes(&turn.agent)) else {
        return Ok(LookResult::Done);
    };
    let price = affordable(shared, &turn, worth, why).await?;
    match shared.judge.verdict(&case, price).await {
        Ok(Ok(verdict)) => {
            let verdict = Verdict {
                weight: verdict.weight * AT_SESSION_END,
                at_session_end: true,
                ..verdict
            };
            note(shared, &turn, verdict).await?;
        }
        Ok(Err(NoVerdict::NotAsked)) if price != worth => return Ok(LookResult::Later),
        Ok(Err(_)) => shared.status.judge_answered(),
        Err(failed) => return Ok(LookResult::Waits(failed)),
    }
    Ok(LookResult::Done)
}

/// Returns the last main turn of a turn's session, and whether the client said that the session ends with it or after
/// it.
async fn last_main(shared: &Shared, id: TurnId) -> Result<Option<(Turn, bool)>, LogError> {
    let last = shared.persist(|| shared.log.last_turns(id.session, MOST_ERRANDS));
    let mut is_last = false;
    for id in last.await? {
        let meta = shared.persist(|| shared.log.meta(id)).await?;
        let Some((meta, _)) = meta else { continue };
        is_last |= meta.is_last;
        if meta.kind == TurnKind::Main {
            let turn = shared.turn(id).await?;
            return Ok(turn.map(|turn| (turn, is_last)));
        }
    }
    Ok(None)
}

/// Returns whether a turn has no verdict, or only one from a session end that turned out to be none.
fn is_to_be_judged(turn: &Turn) -> bool {
    match turn.state {
        TurnState::Captured => true,
        TurnState::Judged => turn.verdict.as_ref().is_some_and(|v| v.at_session_end),
        TurnState::Taken { .. }
        | TurnState::Trained { .. }
        | TurnState::Spent { .. }
        | TurnState::HeldOut => false,
    }
}

/// Returns what may be spent on a verdict now. A verdict that costs nothing does not wait for the owner's absence.
async fn affordable(
    shared: &Shared,
    turn: &Turn,
    worth: Price,
    why: LookReason,
) -> Result<Price, LogError> {
    if why == LookReason::StepAskedFor || shared.may_cost(&turn.agent).await? {
        Ok(worth)
    } else {
        Ok(Price::Nothing)
    }
}

/// Returns why a turn without a verdict is never trained on, or `None` if another answer may bring one.
fn why_spent(no_verdict: NoVerdict, price: Price) -> Option<ExcludeReason> {
    match no_verdict {
        NoVerdict::NotAsked => Some(ExcludeReason::NoRule),
        NoVerdict::NoVote => (price == Price::Majority).then_some(ExcludeReason::NoVote),
        NoVerdict::NoScore => Some(ExcludeReason::NoScore),
    }
}

/// Puts the owner's own complaint first among the hints, because the owner knows best what was wrong. Text that the owner
/// passes on is no complaint.
fn with_owners_hint(verdict: Verdict, following: &Turn) -> Verdict {
    let complaint = owner_says(following).filter(|_| verdict.score == Score::Bad);
    let own = complaint.and_then(|said| match remark(&said) {
        Remark::Whole => hint::of_owner(&said),
        Remark::Part(own) => hint::of_owner(&own),
        Remark::Unknown => None,
    });
    Verdict {
        hint: own.or_else(|| verdict.hint.clone()),
        ..verdict
    }
}

/// Records a verdict, unless there is one.
async fn note(shared: &Shared, turn: &Turn, verdict: Verdict) -> Result<(), LogError> {
    shared.status.judge_answered();
    let had_one = turn.verdict.is_some();
    let is_noted = shared
        .persist(|| shared.log.judge(turn.id, verdict.clone()))
        .await?;
    if is_noted {
        if had_one {
            shared.verdict_changed();
        }
        shared.status.judged(verdict.score);
        let (score, at_session_end) = (i8::from(verdict.score), verdict.at_session_end);
        tracing::info!(turn = %turn.id, score, at_session_end, "judged");
    }
    shared.wake.notify_one();
    Ok(())
}

/// Returns the allowed price of the verdict about the turn before, which depends on its use. Weights learn from every
/// turn if training runs by itself or was asked for; skills learn from failures, which show in the owner's words and
/// never in the next step of a tool.
fn price(shared: &Shared, following: &Turn, why: LookReason) -> Price {
    if shared.trains(&following.agent) || why == LookReason::StepAskedFor {
        return Price::Majority;
    }
    let complains = || owner_says(following).is_some_and(|said| may_complain(&said));
    if shared.evolver.is_some() && complains() {
        Price::OneVote
    } else {
        Price::Nothing
    }
}

/// Returns the verdict of plain thanks and of a plain complaint, which costs nothing. Where weights learn, a judge looks
/// at every turn.
fn plain(shared: &Shared, following: &Turn, worth: Price) -> Option<Verdict> {
    let is_off = shared.config.judge.kind == Some(JudgeKind::Off);
    if is_off || worth == Price::Majority || shared.trains_when_asked(&following.agent) {
        return None;
    }
    let score = plain_verdict(&owner_says(following)?)?;
    Some(Verdict::new(score, JudgedBy::Rules))
}
