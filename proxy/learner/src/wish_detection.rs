//! Hears in each turn what its owner wishes, and writes it down: in force from the next session on.

use metaclaw_chat::{AgentId, Message, SenderId};
use metaclaw_skills::{Heard, Lesson, LessonState, Library, Origin, Question, Suspicion, hear};
use metaclaw_turns::{Turn, TurnKind};
use tokio::task::spawn_blocking;

use crate::shared::Shared;

/// The targets of log lines about lessons: with the owner's words, and without.
pub const WITH_WORDS: &str = "metaclaw::lesson::words";
/// See [`WITH_WORDS`].
pub const WITHOUT_WORDS: &str = "metaclaw::lesson";

/// Logs a line about a lesson twice: with the words, for a person who looks on, and without, for a file that may be kept when
/// the words are to be forgotten. Whoever logs shows one of them.
macro_rules! log_lesson {
    ($level:ident, $words:literal; $agent:ident, $($without:tt)+) => {
        tracing::$level!(target: $crate::wish_detection::WITH_WORDS, $words);
        tracing::$level!(target: $crate::wish_detection::WITHOUT_WORDS, %$agent, $($without)+);
    };
}
pub(crate) use log_lesson;

/// Learns from what the owner says in a turn, and from what another person says whom the host names. Returns whether
/// something was heard, or a model was asked.
pub(crate) async fn hear_turn(shared: &Shared, library: &Library, turn: &Turn) -> bool {
    if turn.meta.kind != TurnKind::Main {
        return false;
    }
    let said = turn.new_utterance();
    let holder = said.as_ref().and_then(|s| library.holder(&turn.agent, s));
    let (Some(said), Some(holder)) = (&said, holder) else {
        return false;
    };
    let is_answer = turn.parent.is_some();
    let Some(heard) = heard_in(shared, &said.text, is_answer).await else {
        return false;
    };
    let origin = origin(turn, turn.meta.ended_ms, holder.sender.cloned());
    learn_from(shared, library, heard, origin).await;
    true
}

fn origin(turn: &Turn, at_ms: u64, sender: Option<SenderId>) -> Origin {
    Origin {
        agent: turn.agent.clone(),
        session: Some(turn.session.clone()),
        turn: Some(turn.id),
        sender,
        at_ms,
    }
}

pub(crate) async fn hear_feedback(shared: &Shared, said: &str, turn: &Turn, at_ms: u64) {
    if let Some(library) = &shared.library
        && let Some(heard) = heard_in(shared, said, true).await
    {
        learn_from(shared, library, heard, origin(turn, at_ms, None)).await;
    }
}

/// Learns from what was said. A lesson that comes from it goes with its session.
async fn learn_from(shared: &Shared, library: &Library, heard: Vec<Heard>, origin: Origin) {
    if heard.is_empty() {
        return;
    }
    let (agent, at_ms) = (origin.agent.clone(), origin.at_ms);
    let (learning, from) = (library.clone(), origin.clone());
    // The journal is a file.
    let learned = spawn_blocking(move || learning.learn_new(&heard, &from)).await;
    // If the turn was deleted while it was heard, the deletion did not find its lessons.
    if let Some(turn) = origin.turn
        && shared.is_deleted(turn).await
    {
        let library = library.clone();
        let forget = move || library.forget_lessons(|of| *of == origin);
        match spawn_blocking(forget).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::warn!(%error, "cannot delete what a deleted turn taught"),
            Err(error) => tracing::error!(%error, "deleting what a deleted turn taught panicked"),
        }
        return;
    }
    match learned {
        Ok(Ok(lessons)) => {
            for lesson in &lessons {
                tell(&agent, lesson);
            }
            let in_force = lessons.iter().filter(|le| le.state == LessonState::InForce);
            let n = in_force.count() as u64;
            shared.count_lessons(&agent, at_ms, n).await;
        }
        Ok(Err(error)) => tracing::warn!(%error, "what was said could not be learned from"),
        Err(error) => tracing::error!(%error, "learning from what was said panicked"),
    }
}

/// Returns what is heard in the owner's words, by a model if one answers, else by rules. Returns `None` if the rules
/// find nothing.
async fn heard_in(shared: &Shared, said: &str, is_answer: bool) -> Option<Vec<Heard>> {
    let by_model = match Question::new(said) {
        Some(question) => {
            let read = |answer: &str| question.read(answer);
            read_by_model(shared, &question.messages(), read).await
        }
        None => None,
    };
    by_model.or_else(|| Some(hear(said, is_answer)).filter(|heard| !heard.is_empty()))
}

/// Asks a model to read the owner's words: the judge's model, else the one for this purpose. Returns `None` if no model
/// answers in the required form.
pub(crate) async fn read_by_model<T>(
    shared: &Shared,
    messages: &[Message],
    read: impl FnOnce(&str) -> Option<T>,
) -> Option<T> {
    let model = match (shared.judge.listener(), &shared.listener) {
        (Some(model), _) => model,
        (None, Some(listener)) => listener.able().await?,
        (None, None) => return None,
    };
    match model.ask(messages).await {
        Ok(answer) => {
            let read = read(&answer);
            if read.is_none() {
                tracing::debug!(
                    "the model's answer does not have the required form; rules are used"
                );
            }
            read
        }
        Err(error) => {
            tracing::debug!(%error, "no model could read the owner's words; rules are used");
            None
        }
    }
}

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
            log_lesson!(info, "{hint}wish{whose}, from the next session on: {wish}  (metaclaw undo {n})";
                agent, lesson = n, "a wish was heard: it stands from the next session on");
        }
        LessonState::Noted => {
            log_lesson!(info, "heard {heard:?}: said once more, it becomes the wish {wish:?}";
                agent, lesson = n, "a complaint was heard: said once more, it becomes a wish");
        }
        LessonState::Review { why } if why[..] == [Suspicion::Unsure] => {
            log_lesson!(info, "is this a wish? {wish}  (metaclaw wishes review --accept {n}, or --dismiss {n})";
                agent, lesson = n, "a wish was proposed: it waits for review");
        }
        LessonState::Review { why } => {
            let why: Vec<String> = why.iter().map(ToString::to_string).collect();
            let why = why.join(", ");
            log_lesson!(warn, "heard {heard:?}: it waits for your review, because {why}  (metaclaw wishes review)";
                agent, lesson = n, why, "a wish was heard that waits for review");
        }
        LessonState::Undone => {
            log_lesson!(info, "taken back: {wish}";
                agent, lesson = n, "a wish was taken back");
        }
        LessonState::Replaced { .. } | LessonState::Forgotten => {}
    }
}
