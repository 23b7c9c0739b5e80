//! Hears in each turn what its owner wishes, and writes it down: in force from the next session on.

use std::{collections::VecDeque, sync::Arc};

use metaclaw_chat::{AgentId, SenderId, TurnId};
use metaclaw_skills::{
    Heard, LearnError, Lesson, LessonState, Library, Origin, Question, Suspicion, hear,
};
use metaclaw_turns::{LogError, Turn, TurnKind};
use tokio::sync::{
    broadcast::{self, error::RecvError},
    mpsc,
};

use crate::{judge::Ask, shared::Shared};

/// The targets of log lines about lessons: with the owner's words, and without.
pub const WITH_WORDS: &str = "metaclaw::lesson::words";
/// See [`WITH_WORDS`].
pub const WITHOUT_WORDS: &str = "metaclaw::lesson";

/// Turns whose ids are remembered: one that is tried again comes into the log again, under its id.
const REMEMBERED: usize = 64;
/// Turns that wait to be heard while a model is asked; of more, what they say is said again.
const WAITING: usize = 1_024;

/// Hears each turn as it comes into the log, until that closes or the learner ends. What was there before is never
/// heard again: a wish that was undone since would come back.
pub(crate) async fn run(
    shared: Arc<Shared>,
    library: Library,
    appended: broadcast::Receiver<TurnId>,
) {
    let (came, waiting) = mpsc::channel(WAITING);
    let work = async {
        tokio::join!(
            listen(appended, came),
            hear_each(&shared, &library, waiting)
        )
    };
    shared.cancel.run_until_cancelled(work).await;
}

/// Passes on each turn once.
pub(crate) async fn listen(mut appended: broadcast::Receiver<TurnId>, came: mpsc::Sender<TurnId>) {
    let mut known = VecDeque::with_capacity(REMEMBERED);
    loop {
        match appended.recv().await {
            Ok(id) if known.contains(&id) => {}
            Ok(id) => {
                known.truncate(REMEMBERED - 1);
                known.push_front(id);
                came.try_send(id).ok();
            }
            // Too many at once: what was missed is said again.
            Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => return,
        }
    }
}

/// One after the other: what is taken back was said before.
async fn hear_each(shared: &Shared, library: &Library, mut waiting: mpsc::Receiver<TurnId>) {
    while let Some(id) = waiting.recv().await {
        match shared.persist(|| shared.log.get(id)).await {
            Ok(Some(turn)) if !(shared.is_off)(&turn.agent) => {
                hear_turn(shared, library, &turn).await;
            }
            Ok(Some(_) | None) => {}
            Err(LogError::Closed) => return,
            Err(error) => tracing::warn!(%error, "a turn could not be heard"),
        }
    }
}

/// Learns from what the owner says in a turn, and from what another person says whom the host names.
async fn hear_turn(shared: &Shared, library: &Library, turn: &Turn) {
    if turn.meta.kind != TurnKind::Main {
        return;
    }
    let said = turn.new_utterance();
    let holder = said.as_ref().and_then(|it| library.holder(&turn.agent, it));
    let (Some(said), Some(holder)) = (&said, holder) else {
        return;
    };
    let is_answer = turn.parent.is_some();
    let heard = heard_in(shared, &said.text, is_answer).await;
    let origin = origin(turn, turn.meta.ended_ms, holder.sender.cloned());
    learn_from(shared, library, heard, origin).await;
}

/// Returns where something comes from that was said in a turn, or of one.
fn origin(turn: &Turn, at_ms: u64, sender: Option<SenderId>) -> Origin {
    Origin {
        agent: turn.agent.clone(),
        session: Some(turn.session.clone()),
        turn: Some(turn.id),
        sender,
        at_ms,
    }
}

/// Learns from what the owner says of a turn's reply, beside the chat.
pub(crate) async fn hear_feedback(shared: &Shared, said: &str, turn: &Turn, at_ms: u64) {
    if let Some(library) = &shared.library {
        let heard = heard_in(shared, said, true).await;
        learn_from(shared, library, heard, origin(turn, at_ms, None)).await;
    }
}

/// Learns from what was said. A lesson that comes from it goes with its session.
async fn learn_from(shared: &Shared, library: &Library, heard: Vec<Heard>, origin: Origin) {
    if heard.is_empty() {
        return;
    }
    let (agent, at_ms) = (origin.agent.clone(), origin.at_ms);
    let library = library.clone();
    // The journal is a file.
    let learned = tokio::task::spawn_blocking(move || learn(&library, &heard, &origin)).await;
    match learned {
        Ok(Ok(lessons)) => {
            for lesson in &lessons {
                tell(&agent, lesson);
            }
            let in_force = lessons.iter().filter(|it| it.state == LessonState::InForce);
            let n = in_force.count() as u64;
            shared.count_lessons(&agent, at_ms, n).await;
        }
        Ok(Err(error)) => tracing::warn!(%error, "what was said could not be learned from"),
        Err(error) => tracing::error!(%error, "learning from what was said panicked"),
    }
}

/// What is heard in the owner's words: by a model where one answers, else by rules.
async fn heard_in(shared: &Shared, said: &str, is_answer: bool) -> Vec<Heard> {
    let may_ask = shared.judge.listener().is_some() || shared.listener.is_some();
    if may_ask
        && let Some(question) = Question::of(said)
        && let Some(model) = listener(shared).await
    {
        match model.ask(&question.messages()).await {
            Ok(answer) => {
                if let Some(heard) = question.read(&answer) {
                    return heard;
                }
                tracing::debug!("the model did not say what it heard; rules do");
            }
            Err(error) => tracing::debug!(%error, "no model hears; rules do"),
        }
    }
    hear(said, is_answer)
}

/// The model that hears: the judge's, else the one that is there for this alone.
pub(crate) async fn listener(shared: &Shared) -> Option<&dyn Ask> {
    match (shared.judge.listener(), &shared.listener) {
        (Some(model), _) => Some(model),
        (None, Some(listener)) => listener.able().await,
        (None, None) => None,
    }
}

fn learn(library: &Library, heard: &[Heard], origin: &Origin) -> Result<Vec<Lesson>, LearnError> {
    let mut lessons = Vec::new();
    for heard in heard {
        lessons.extend(library.learn(heard, origin.clone())?);
    }
    Ok(lessons)
}

/// One line for each lesson, twice: with the words, for a person who looks on, and without, for a file that may be
/// kept when the words are to be forgotten. Whoever logs shows one of them.
fn tell(agent: &AgentId, lesson: &Lesson) {
    let Lesson { n, heard, wish, .. } = lesson;
    match &lesson.state {
        LessonState::InForce => {
            // Mostly a wish is what was said, word for word.
            let hint = if heard == wish {
                String::new()
            } else {
                format!("heard {heard:?} -> ")
            };
            let whose = match &lesson.origin.sender {
                Some(sender) => format!(" of {sender}"),
                None => String::new(),
            };
            tracing::info!(
                target: WITH_WORDS,
                "{hint}wish{whose}, from the next session on: {wish}  (metaclaw undo {n})"
            );
            tracing::info!(target: WITHOUT_WORDS, %agent, lesson = n, "a wish was heard: it stands from the next session on");
        }
        LessonState::Noted => {
            tracing::info!(
                target: WITH_WORDS,
                "heard {heard:?}: said once more, it becomes the wish {wish:?}"
            );
            tracing::info!(target: WITHOUT_WORDS, %agent, lesson = n, "a complaint was heard: said once more, it becomes a wish");
        }
        LessonState::Review { why } if why[..] == [Suspicion::Unsure] => {
            tracing::info!(
                target: WITH_WORDS,
                "is this a wish? {wish}  (metaclaw wishes review --accept {n}, or --dismiss {n})"
            );
            tracing::info!(target: WITHOUT_WORDS, %agent, lesson = n, "a wish was proposed: it waits for review");
        }
        LessonState::Review { why } => {
            let why: Vec<String> = why.iter().map(ToString::to_string).collect();
            let why = why.join(", ");
            tracing::warn!(
                target: WITH_WORDS,
                "heard {heard:?}: it waits for your review, because {why}  (metaclaw wishes review)"
            );
            tracing::warn!(target: WITHOUT_WORDS, %agent, lesson = n, why, "a wish was heard that waits for review");
        }
        LessonState::Undone => {
            tracing::info!(target: WITH_WORDS, "taken back: {wish}");
            tracing::info!(target: WITHOUT_WORDS, %agent, lesson = n, "a wish was taken back");
        }
        LessonState::Replaced { .. } | LessonState::Forgotten => {}
    }
}
