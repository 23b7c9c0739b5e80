//! Looks at one turn: whether there is something to judge, at what price, and the result.

use std::time::Duration;

use metaclaw_chat::{Score, TurnId, Verdict, now_ms};
use metaclaw_reward::{hint, may_complain};
use metaclaw_skills::{Remark, remark};
use metaclaw_turns::{LogError, Turn, TurnKind, TurnState};

use super::followed::{Followed, MOST_ERRANDS, followed};
use crate::{
    judge::{AskFailed, Case, NoVerdict, Price},
    owner_text::owner_says,
    sample::ExcludeReason,
    shared::Shared,
};

/// The weight of a verdict that was given at a session's end, because satisfied owners leave, and so do those who gave
/// up.
const AT_SESSION_END: f32 = 0.3;

/// The result of a look.
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

/// Why a turn is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LookReason {
    /// The turn is new in the log.
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
    let Some(turn) = shared.persist(|| shared.log.get(id)).await? else {
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
    if !shared.judge.judges(worth) {
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
    let price = affordable(shared, &turn, worth, why).await?;
    match shared.judge.verdict(&case, price).await {
        Ok(Ok(verdict)) => note(shared, &before, with_owners_hint(verdict, &turn)).await?,
        Ok(Err(NoVerdict::NotAsked)) if price != worth => return Ok(LookResult::Later),
        Ok(Err(no_verdict)) => {
            shared.status.judge_answered();
            // Elsewhere, the turn waits, because verdicts may be needed later, and a better judge may be configured.
            let is_final = no_verdict == NoVerdict::NoVote || shared.trains(&turn.agent);
            if let Some(why) = why_spent(no_verdict, price).filter(|_| is_final) {
                shared.spend(before.id, why).await?;
            }
        }
        Err(failed) => return Ok(LookResult::Waits(failed)),
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
            let turn = shared.persist(|| shared.log.get(id)).await?;
            return Ok(turn.map(|turn| (turn, is_last)));
        }
    }
    Ok(None)
}

/// Returns whether a turn has no verdict, or only one from a session end that turned out to be none.
fn is_to_be_judged(turn: &Turn) -> bool {
    match turn.state {
        TurnState::Captured => true,
        TurnState::Judged => turn.verdict.as_ref().is_some_and(|it| it.at_session_end),
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
    if shared.skills_learn && complains() {
        Price::OneVote
    } else {
        Price::Nothing
    }
}
