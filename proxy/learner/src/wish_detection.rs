//! Hears in each turn what its owner wishes, and writes it down: in force from the next session on.

use metaclaw_chat::{AgentId, Message, SenderId};
use metaclaw_skills::{
    Heard, Lesson, LessonState, Library, Origin, Question, Suspicion, hear, is_doubtful,
};
use metaclaw_turns::{Turn, TurnKind};
use tokio::{task::spawn_blocking, time::Instant};

use crate::{judge::Ask, shared::Shared};

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

/// So many messages are read in one request.
const AT_ONCE: usize = 12;
/// So many messages wait while today's token budget is spent. Then rules read them.
const MOST_WAITING: usize = 64;

/// What a person said in one message.
#[derive(Debug)]
struct Said {
    text: String,
    is_answer: bool,
    origin: Origin,
}

/// Messages that a model should read for wishes, because the rules are not sure about them. They wait for each other, so
/// that one request is about several.
///
/// A message in which rules find something waits for nothing: it is read with those before it, because their order counts.
#[derive(Debug, Default)]
pub(crate) struct WaitingMessages {
    said: Vec<Said>,
    due: Option<Instant>,
}

// === impl WaitingMessages ===

impl WaitingMessages {
    /// Learns from what the owner says in a turn, and from what another person says whom the host names, or lets it wait.
    /// Returns `None` if it says nothing, else whether all is read that waited.
    pub(crate) async fn hear(
        &mut self,
        shared: &Shared,
        library: &Library,
        turn: &Turn,
    ) -> Option<bool> {
        let said = turn
            .new_utterance()
            .filter(|_| turn.meta.kind == TurnKind::Main)?;
        let holder = library.holder(&turn.agent, &said)?;
        let is_answer = turn.parent.is_some();
        let is_pressing = !hear(&said.text, is_answer).is_empty();
        if !is_pressing && !is_doubtful(&said.text) {
            return None;
        }
        self.due
            .get_or_insert_with(|| Instant::now() + library.wait());
        self.said.push(Said {
            text: said.text.to_string(),
            is_answer,
            origin: origin(turn, turn.meta.ended_ms, holder.sender.cloned()),
        });
        Some(self.read(shared, library, is_pressing).await)
    }

    /// Reads the messages if one is pressing, or they are due and today's budget is not spent. Returns whether it has read
    /// them.
    pub(crate) async fn read(
        &mut self,
        shared: &Shared,
        library: &Library,
        is_pressing: bool,
    ) -> bool {
        let n = self.said.len();
        let Some(due) = self.due else {
            return false;
        };
        if !is_pressing
            && n < MOST_WAITING
            && let Some(model) = listener(shared).await
        {
            let is_due = n >= AT_ONCE || due <= Instant::now();
            if !is_due || !model.may_ask().await {
                shared.status.hearing(n, is_due);
                return false;
            }
        }
        let mut waiting = std::mem::take(self).said;
        // What one person says must not lead a model to read something into another person's words. Two agents may have two
        // owners (`proxy.keys`).
        let person = |said: &Said| (said.origin.agent.clone(), said.origin.sender.clone());
        while let Some(first) = waiting.first().map(person) {
            let theirs = waiting.extract_if(.., |said| person(said) == first);
            read_messages(shared, library, theirs.collect()).await;
        }
        shared.status.hearing(0, false);
        true
    }
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
    if let Some(library) = &shared.library {
        let said = Said {
            text: said.to_owned(),
            is_answer: true,
            origin: origin(turn, at_ms, None),
        };
        read_messages(shared, library, vec![said]).await;
    }
}

/// Learns from messages of one person: by a model where the rules are not sure, if one answers, else by rules. Messages that
/// were deleted since, or whose agent was switched off, are left out.
async fn read_messages(shared: &Shared, library: &Library, said: Vec<Said>) {
    let mut kept = Vec::new();
    for one in said {
        let is_deleted = match one.origin.turn {
            Some(turn) => shared.is_deleted(turn).await,
            None => false,
        };
        if !is_deleted && !(shared.is_off)(&one.origin.agent) {
            kept.push(one);
        }
    }
    let mut by_model = Vec::new();
    if let Some(question) = Question::new(kept.iter().map(|said| &*said.text)) {
        let read = |answer: &str| question.read(answer);
        let answer = read_by_model(shared, &question.messages(), read).await;
        by_model = answer.unwrap_or_default();
    }
    by_model.resize(kept.len(), None);
    for (said, heard) in kept.iter().zip(by_model) {
        let heard = heard.unwrap_or_else(|| hear(&said.text, said.is_answer));
        learn_from(shared, library, heard, said.origin.clone()).await;
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

/// Asks a model to read the owner's words: the judge's model, else the one for this purpose. Returns `None` if no model
/// answers in the required form.
pub(crate) async fn read_by_model<T>(
    shared: &Shared,
    messages: &[Message],
    read: impl FnOnce(&str) -> Option<T>,
) -> Option<T> {
    match listener(shared).await?.ask(messages).await {
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

/// Returns the model that reads the owner's words.
async fn listener(shared: &Shared) -> Option<&dyn Ask> {
    match (shared.judge.listener(), &shared.listener) {
        (Some(model), _) => Some(model),
        (None, Some(listener)) => listener.able().await,
        (None, None) => None,
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
        LessonState::Replaced { .. } | LessonState::Repeated | LessonState::Forgotten => {}
    }
}

#[cfg(test)]
mod tests;
