//! Judges a turn when the next turn of its session shows the reaction, or when the session has ended.

mod find;
mod followed;
mod look;
mod patience;
mod silence;

use std::sync::Arc;

use futures_util::{StreamExt as _, future, stream};
use metaclaw_chat::{AgentId, TurnId};
use metaclaw_turns::LogError;
use tokio::{task::JoinSet, time::Instant};

use self::{
    find::{FoundTurns, of_agent, of_all},
    look::{LookReason, LookResult, look_at_end, look_at_follower},
    patience::Patience,
    silence::SessionSilence,
};
use tracing::Instrument as _;

use crate::{
    feed::{Feed, FeedNext},
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

/// What is looked at.
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
    /// Followers whose turns the judge failed to judge, and sessions.
    followers: Patience,
    sessions: Patience,
}

/// Runs until the log closes or the learner ends.
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

    /// Finds the follower of each turn that has no verdict yet, and the ends of their sessions.
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

/// Waits until a time, or for ever without one.
async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => future::pending().await,
    }
}

#[cfg(test)]
mod tests;
