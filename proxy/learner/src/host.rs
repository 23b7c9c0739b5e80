//! Notes what an agent's host has learned by itself, beside the chat: from the turns that its owner's words began, as
//! the log has them. So nothing is noted of what is off the record, and secrets are masked.

use metaclaw_chat::{AgentId, SessionId};
use metaclaw_skills::{HostLessons, HostReading, JournalError, Library, host_part};
use metaclaw_turns::{LogError, Turn, TurnLog};
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;

use crate::{owner_text::owner_says, shared::IsOff};

/// Looks at each turn as it comes into the log, until that closes or `ending` says so. Of turns that came too fast the
/// next one says the same.
pub fn note_hosts(
    log: TurnLog,
    library: Library,
    is_off: IsOff,
    ending: CancellationToken,
) -> impl Future<Output = ()> {
    let mut appended = log.subscribe();
    async move {
        let notes = async {
            loop {
                let id = match appended.recv().await {
                    Ok(id) => id,
                    Err(RecvError::Lagged(_)) => continue,
                    Err(RecvError::Closed) => return,
                };
                match log.get(id).await {
                    Ok(Some(turn)) if !is_off(&turn.agent) => {
                        note_beside(&log, &library, turn).await;
                    }
                    Ok(_) => {}
                    Err(LogError::Closed) => return,
                    Err(error) => tracing::debug!(%error, "what the host says was not looked at"),
                }
            }
        };
        ending.run_until_cancelled(notes).await;
    }
}

/// The text is long and the library is a file: away from the threads that chat.
async fn note_beside(log: &TurnLog, library: &Library, turn: Turn) {
    let (id, agent, session) = (turn.id, turn.agent.clone(), turn.session.clone());
    let noting = library.clone();
    match tokio::task::spawn_blocking(move || note(&noting, &turn)).await {
        Ok(Ok(true)) => tracing::debug!(%agent, "what the host has learned itself is noted anew"),
        Ok(Ok(false)) => return,
        Ok(Err(error)) => {
            tracing::warn!(%error, "what the host has learned itself was not noted");
            return;
        }
        Err(error) => {
            tracing::error!(%error, "reading what the host says panicked");
            return;
        }
    }
    // It may have been forgotten while it was read.
    if matches!(log.has(id).await, Ok(false)) {
        let library = library.clone();
        let is_gone = move |of: &AgentId, it: &SessionId| *of == agent && *it == session;
        let forgotten = tokio::task::spawn_blocking(move || library.forget_hosts(is_gone)).await;
        if let Ok(Err(error)) = forgotten {
            tracing::warn!(%error, "what the host said in a forgotten session is still noted");
        }
    }
}

fn note(library: &Library, turn: &Turn) -> Result<bool, JournalError> {
    if owner_says(turn).is_none() {
        return Ok(false);
    }
    let messages = turn.request.messages.iter();
    let texts: Vec<_> = messages.map(|m| (m.role(), m.text())).collect();
    let parts = texts.iter().map(|(role, text)| host_part(*role, text));
    let reading = HostReading {
        session: turn.session.clone(),
        at_ms: turn.meta.ended_ms,
        lessons: HostLessons::read(parts),
    };
    library.note_host(&turn.agent, reading)
}

#[cfg(test)]
mod tests {
    use metaclaw_chat::Message;
    use metaclaw_skills::{SkillsConfig, WishesConfig};
    use metaclaw_turns::TurnKind;

    use super::*;
    use crate::testing::turn_with;

    const USER_MD: &str = "## /home/ann/workspace/USER.md\n\n- Answer in German.\n";

    fn shown(system: &str) -> Turn {
        let mut turn = turn_with("Hello, how are you?", "Well.");
        turn.request.messages.insert(0, Message::system(system));
        turn
    }

    #[test]
    fn what_the_host_shows_in_a_turn_of_the_owners_is_noted_and_goes_when_it_shows_it_no_more() {
        let dir = tempfile::tempdir().unwrap();
        let (skills, wishes) = (SkillsConfig::default(), WishesConfig::default());
        let (library, _) = Library::open(dir.path(), skills, wishes);
        let agent = AgentId::default_agent();
        let notes = || {
            let host = library.host(&agent);
            host.map_or(0, |host| host.lessons.notes.len())
        };
        let mut side = shown(USER_MD);
        side.meta.kind = TurnKind::Side;
        note(&library, &side).unwrap();
        let mut of_a_tool = shown("You are an assistant.");
        let tool = Message::new("tool", USER_MD);
        of_a_tool.request.messages.insert(1, tool);
        note(&library, &of_a_tool).unwrap();
        assert_eq!(notes(), 0);
        note(&library, &shown(USER_MD)).unwrap();
        assert_eq!(notes(), 1);
        note(&library, &side).unwrap();
        note(&library, &shown("You are an assistant.")).unwrap();
        assert_eq!(notes(), 0);
    }
}
