//! Hears in each turn what its owner wishes, and writes it down: in force from the next session on.

use metaclaw_chat::{AgentId, Speaker, Utterance};
use metaclaw_skills::{Heard, LearnError, Lesson, LessonState, Library, Origin, hear};
use metaclaw_turns::{Turn, TurnKind};

use crate::shared::Shared;

/// Learns from what the owner says in a turn. Nothing is heard twice: a lesson knows its turn.
pub(crate) async fn hear_turn(shared: &Shared, turn: &Turn) {
    let Some(library) = shared.library.clone() else {
        return;
    };
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
    let journal = library.journal()?;
    if journal
        .iter()
        .any(|lesson| lesson.origin.turn == origin.turn)
    {
        return Ok(Vec::new());
    }
    let mut lessons = Vec::new();
    for heard in heard {
        lessons.extend(library.learn(heard, origin.clone())?);
    }
    Ok(lessons)
}

/// One line for each lesson: what was heard, what was understood, how to undo it.
fn tell(agent: &AgentId, lesson: &Lesson) {
    let Lesson { n, heard, wish, .. } = lesson;
    match &lesson.state {
        LessonState::InForce => tracing::info!(
            %agent,
            "heard {heard:?} -> wish, from the next session on: {wish}  (metaclaw undo {n})"
        ),
        LessonState::Noted => {
            tracing::info!(%agent, "heard {heard:?}: said once more, it becomes the wish {wish:?}");
        }
        LessonState::Review { why } => {
            let why: Vec<String> = why.iter().map(ToString::to_string).collect();
            tracing::warn!(
                %agent,
                "heard {heard:?}: it waits for your review, because {}  (metaclaw wishes review)",
                why.join(", ")
            );
        }
        LessonState::Undone => tracing::info!(%agent, "taken back: {wish}"),
        LessonState::Forgotten => {}
    }
}
