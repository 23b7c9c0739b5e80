//! Hears in each turn what its owner wishes, and writes it down: in force from the next session on.

use std::{collections::VecDeque, sync::Arc};

use metaclaw_chat::{AgentId, Speaker, TurnId, Utterance};
use metaclaw_skills::{Heard, LearnError, Lesson, LessonState, Library, Origin, hear};
use metaclaw_turns::{LogError, Turn, TurnKind};
use tokio::sync::broadcast::{Receiver, error::RecvError};

use crate::shared::Shared;

/// The targets of log lines about lessons: with the owner's words, and without.
pub const WITH_WORDS: &str = "metaclaw::lesson::words";
/// See [`WITH_WORDS`].
pub const WITHOUT_WORDS: &str = "metaclaw::lesson";

/// Turns whose ids are remembered: one that is tried again comes into the log again, under its id.
const REMEMBERED: usize = 64;

/// Hears each turn as it comes into the log, until that closes or the learner ends. What was there before is never
/// heard again: a wish that was undone since would come back.
pub(crate) async fn run(shared: Arc<Shared>, library: Library, mut appended: Receiver<TurnId>) {
    let mut heard = VecDeque::with_capacity(REMEMBERED);
    loop {
        let next = tokio::select! {
            () = shared.cancel.cancelled() => return,
            next = appended.recv() => next,
        };
        let id = match next {
            Ok(id) if heard.contains(&id) => continue,
            Ok(id) => id,
            // Too many at once: what was missed is said again.
            Err(RecvError::Lagged(_)) => continue,
            Err(RecvError::Closed) => return,
        };
        heard.truncate(REMEMBERED - 1);
        heard.push_front(id);
        match shared.persist(|| shared.log.get(id)).await {
            Ok(Some(turn)) if !(shared.is_off)(&turn.agent) => hear_turn(&library, &turn).await,
            Ok(Some(_) | None) => {}
            Err(LogError::Closed) => return,
            Err(error) => tracing::warn!(%error, "a turn could not be heard"),
        }
    }
}

/// Learns from what the owner says in a turn.
async fn hear_turn(library: &Library, turn: &Turn) {
    let heard = heard_in(turn);
    if heard.is_empty() {
        return;
    }
    let origin = Origin {
        agent: turn.agent.clone(),
        session: Some(turn.session.clone()),
        turn: Some(turn.id),
        at_ms: turn.meta.ended_ms,
    };
    let library = library.clone();
    // The journal is a file.
    let learned = tokio::task::spawn_blocking(move || learn(&library, &heard, &origin)).await;
    match learned {
        Ok(Ok(lessons)) => lessons.iter().for_each(|it| tell(&turn.agent, it)),
        Ok(Err(error)) => tracing::warn!(%error, "what was said could not be learned from"),
        Err(error) => tracing::error!(%error, "learning from what was said panicked"),
    }
}

/// What the owner says in the messages that are new in a turn. Tools, other people and texts that were passed on
/// have no say.
fn heard_in(turn: &Turn) -> Vec<Heard> {
    if turn.meta.kind != TurnKind::Main {
        return Vec::new();
    }
    let said = turn.evidence().iter().rev().find(|it| it.is_owners());
    let Some(said) = said else { return Vec::new() };
    let text = said.text();
    let utterance = Utterance::parse(&text);
    match utterance.speaker {
        Speaker::Owner => hear(&utterance.text, turn.parent.is_some()),
        Speaker::Group | Speaker::Forwarded => Vec::new(),
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
            tracing::info!(
                target: WITH_WORDS,
                "heard {heard:?} -> wish, from the next session on: {wish}  (metaclaw undo {n})"
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
        LessonState::Forgotten => {}
    }
}
