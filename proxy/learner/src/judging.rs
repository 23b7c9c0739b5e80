//! Judges a turn when the next turn of its session shows the reaction, or when the session has ended.
//!
//! The turn whose outcome another turn shows is the owner's turn before it, with any agent-started turns (errands) between.
//! A heartbeat stays in the conversation, and the owner's next message comes after it. A compaction ends the
//! conversation: the next request begins with a summary, and continues no reply in the log. In both cases, the owner's
//! next own words are about the owner's last turn, never about the errand.
//!
//! A judge that is down comes back within minutes; one that refuses this turn (a content filter) never accepts it. So
//! each failure of a turn doubles its pause, and a refused turn costs a few requests each day.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};
use futures_util::{StreamExt as _, future, stream};
use metaclaw_chat::{AgentId, Message, Role, Score, TurnId, Verdict, now_ms, owners_words};
use metaclaw_reward::{hint, may_complain};
use metaclaw_skills::{Remark, remark};
use metaclaw_turns::{LogError, StateKind, Turn, TurnKind, TurnState};
use tokio::{task::JoinSet, time::Instant};
use tracing::Instrument as _;

use crate::{
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

/// The number of a session's turns that one scan of the log reads, because a turn and its follower are close together.
const LOOK_BACK: usize = 256;

/// Only ids: what each turn needs is decided when it is looked at.
#[derive(Debug, Default)]
pub(super) struct FoundTurns {
    pub(super) followers: Vec<TurnId>,
    pub(super) last: Vec<TurnId>,
}

pub(super) async fn of_all(shared: &Shared) -> Result<FoundTurns, LogError> {
    let mut all = FoundTurns::default();
    for agent in shared.agents().await? {
        let found = of_agent(shared, &agent).await?;
        all.followers.extend(found.followers);
        all.last.extend(found.last);
    }
    Ok(all)
}

/// Searches the turns of one agent. In most sessions, only the last turn is found, which nothing follows yet.
pub(super) async fn of_agent(shared: &Shared, agent: &AgentId) -> Result<FoundTurns, LogError> {
    let captured = shared.in_state(agent, StateKind::Captured).await?;
    let mut first = BTreeMap::<u64, TurnId>::new();
    for id in captured {
        first.entry(id.session).or_insert(id);
    }
    let mut found = FoundTurns::default();
    for (number, first) in first {
        let last = shared.persist(|| shared.log.last_turns(number, LOOK_BACK));
        let mut ids = last.await?;
        ids.retain(|id| *id >= first);
        found.last.extend(ids.first());
        found.followers.extend(ids.into_iter().rev());
    }
    Ok(found)
}

/// The largest number of sessions in this list. Any other session is left to the next scan of the log.
const MOST: usize = 10_000;

#[derive(Debug)]
pub(super) struct SessionSilence {
    idle: Option<Duration>,
    due: BTreeSet<(Instant, TurnId)>,
    of_session: HashMap<u64, (Instant, TurnId)>,
}

// === impl SessionSilence ===

impl SessionSilence {
    pub(super) fn new(idle: Option<Duration>) -> Self {
        Self {
            idle,
            due: BTreeSet::new(),
            of_session: HashMap::new(),
        }
    }

    pub(super) fn spoke(&mut self, id: TurnId) {
        if let Some(idle) = self.idle {
            self.put(id, idle);
        }
    }

    pub(super) fn goes_on(&mut self, id: TurnId, rest: Duration) {
        if !self.of_session.contains_key(&id.session) {
            self.put(id, rest);
        }
    }

    pub(super) fn again(&mut self, id: TurnId) {
        if self.idle.is_some() {
            self.put(id, Duration::ZERO);
        }
    }

    /// Returns a turn of the next session to look at; waits until there is one.
    ///
    /// # Cancel safety
    /// Nothing is lost if the future is dropped.
    pub(super) async fn ended(&mut self) -> TurnId {
        let Some((at, id)) = self.due.first().copied() else {
            return std::future::pending().await;
        };
        tokio::time::sleep_until(at).await;
        self.due.remove(&(at, id));
        self.of_session.remove(&id.session);
        id
    }

    fn put(&mut self, id: TurnId, wait: Duration) {
        if let Some(before) = self.of_session.remove(&id.session) {
            self.due.remove(&before);
        }
        if self.of_session.len() < MOST {
            let entry = (Instant::now() + wait, id);
            self.of_session.insert(id.session, entry);
            self.due.insert(entry);
        }
    }
}

/// The owner's turn is searched before at most this many errands in a row, because a sub-agent may send many.
pub(super) const MOST_ERRANDS: usize = 200;

#[derive(Debug)]
pub(super) struct Followed {
    pub before: Turn,
    /// The index in the other's request where the reaction begins.
    pub new_from: usize,
}

/// Returns the owner's turn whose outcome a turn shows, or `None` if the turn begins a conversation.
pub(super) async fn followed(shared: &Shared, turn: &Turn) -> Result<Option<Followed>, LogError> {
    let mut parent = turn.parent;
    for _ in 0..MOST_ERRANDS {
        let Some(id) = parent else { break };
        let before = shared.persist(|| shared.log.meta(id)).await?;
        let Some((meta, earlier)) = before else { break };
        if meta.kind == TurnKind::Main {
            let before = shared.turn(id).await?;
            let new_from = turn.new_from;
            return Ok(before.map(|before| Followed { before, new_from }));
        }
        parent = earlier;
    }
    summed_up(shared, turn).await
}

/// Does the same if the conversation was compacted between the two turns.
async fn summed_up(shared: &Shared, turn: &Turn) -> Result<Option<Followed>, LogError> {
    let Some(new_from) = new_words_behind_more(&turn.request.messages) else {
        return Ok(None);
    };
    let earlier = shared.persist(|| shared.log.turns_before(turn.id, MOST_ERRANDS));
    let mut has_errand = false;
    for id in earlier.await? {
        let meta = shared.persist(|| shared.log.meta(id)).await?;
        let Some((meta, _)) = meta else { continue };
        if meta.kind != TurnKind::Main {
            has_errand |= meta.kind == TurnKind::Side;
            continue;
        }
        // Without an errand between them, it is another conversation of the same name.
        if !has_errand {
            break;
        }
        let before = shared.turn(id).await?;
        let before = before.filter(|before| !said_before(before, &turn.request.messages));
        return Ok(before.map(|before| Followed { before, new_from }));
    }
    Ok(None)
}

/// Returns the index of the owner's last words, if nothing answers them yet and something comes before them: a summary,
/// or the kept part of the conversation.
fn new_words_behind_more(messages: &[Message]) -> Option<usize> {
    let (at, words) = owners_words(messages).next()?;
    let is_answered = messages[at + 1..]
        .iter()
        .any(|message| matches!(message.role(), Role::Assistant | Role::Tool));
    let is_behind = messages[..at].iter().any(|m| m.role() != Role::System);
    let has_more = || words.text.len() < messages[at].text().trim().len();
    (!is_answered && (is_behind || has_more())).then_some(at)
}

fn said_before(before: &Turn, messages: &[Message]) -> bool {
    let last = |messages: &[Message]| {
        let said = owners_words(messages).next();
        said.map(|(_, words)| words.text.into_owned())
    };
    last(&before.request.messages) == last(messages)
}

const FIRST: Duration = Duration::from_secs(15);
const LONGEST: Duration = Duration::from_secs(30 * 60);
const PAUSES: ExponentialBuilder = ExponentialBuilder::new()
    .with_min_delay(FIRST)
    .with_max_delay(LONGEST)
    .without_max_times();

#[derive(Debug, Default)]
pub(super) struct Patience {
    waiting: BTreeSet<(Instant, TurnId)>,
    further: BTreeMap<TurnId, ExponentialBackoff>,
}

// === impl Patience ===

impl Patience {
    pub(super) fn failed(&mut self, id: TurnId) {
        let further = self.further.entry(id).or_insert_with(|| PAUSES.build());
        let pause = further.next().unwrap_or(LONGEST);
        self.waiting.insert((Instant::now() + pause, id));
    }

    pub(super) fn settled(&mut self, id: TurnId) {
        self.further.remove(&id);
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.waiting.first().map(|(until, _)| *until)
    }

    pub(super) fn due(&mut self) -> Vec<TurnId> {
        let now = Instant::now();
        let mut due = Vec::new();
        while self.next().is_some_and(|until| until <= now) {
            due.extend(self.waiting.pop_first().map(|(_, id)| id));
        }
        due
    }
}

#[cfg(test)]
mod silence_tests {
    use super::*;

    const IDLE: Duration = Duration::from_secs(1_800);

    fn id(session: u64, seq: u32) -> TurnId {
        TurnId { session, seq }
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_has_ended_when_nobody_spoke_for_the_whole_time() {
        let mut silence = SessionSilence::new(Some(IDLE));
        let began = Instant::now();
        silence.spoke(id(1, 0));
        tokio::time::advance(IDLE / 2).await;
        silence.spoke(id(2, 0));
        silence.spoke(id(1, 1));
        silence.goes_on(id(1, 0), Duration::ZERO);
        assert_eq!(silence.ended().await, id(1, 1));
        assert_eq!(silence.ended().await, id(2, 0));
        assert!(began.elapsed() >= IDLE * 3 / 2);
        silence.again(id(3, 0));
        assert_eq!(silence.ended().await, id(3, 0));
        assert!(silence.due.is_empty() && silence.of_session.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn where_nobody_wants_to_know_nothing_is_waited_for() {
        let mut silence = SessionSilence::new(None);
        silence.spoke(id(1, 0));
        silence.again(id(1, 0));
        assert!(silence.due.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_waited_for_is_bounded() {
        let mut silence = SessionSilence::new(Some(IDLE));
        for session in 0..MOST as u64 + 10 {
            silence.spoke(id(session, 0));
        }
        silence.spoke(id(0, 1));
        assert_eq!((silence.due.len(), silence.of_session.len()), (MOST, MOST));
    }

    const TURN: TurnId = TurnId { session: 1, seq: 0 };

    async fn pause(patience: &mut Patience) -> Duration {
        let began = Instant::now();
        patience.failed(TURN);
        assert!(patience.due().is_empty());
        tokio::time::sleep_until(patience.next().unwrap()).await;
        assert_eq!(patience.due(), [TURN]);
        began.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn each_failure_of_a_turn_doubles_its_pause() {
        let mut patience = Patience::default();
        let first = pause(&mut patience).await;
        let second = pause(&mut patience).await;
        assert!(first >= FIRST && second >= 2 * FIRST && second < 3 * FIRST);
        for _ in 0..40 {
            patience.failed(TURN);
            patience.waiting.clear();
        }
        assert!(pause(&mut patience).await < LONGEST + FIRST);
        patience.settled(TURN);
        assert!(pause(&mut patience).await < 2 * FIRST);
    }
}
