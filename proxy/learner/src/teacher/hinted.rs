//! What the teacher reads of a turn that the student's own reply is held against: the conversation with one hint in it.

use metaclaw_chat::TurnId;
use metaclaw_turns::Turn;

use super::{
    after::after, asked::line, conversation::TeacherConversation, error::TeachError,
    fault::at_fault, memory::TeacherMemory,
};
use crate::{methods::TrainingSignal, policy::PolicyModel, sample::all_hints, shared::Shared};

/// Hints of which the best is taken: OpenClaw-RL's, which found no use for more.
const MOST_HINTS: usize = 3;

/// Has a turn's conversation rendered with each hint, and remembers it. A turn that nobody said anything about has none.
///
/// # Errors
/// [`TeachError`]: nothing came of it yet.
pub(crate) async fn hint(
    shared: &Shared,
    policy: &PolicyModel,
    memory: &mut TeacherMemory,
    id: TurnId,
) -> Result<(), TeachError> {
    let Some(turn) = shared.persist(|| shared.log.get(id)).await? else {
        // It was forgotten meanwhile.
        return Ok(());
    };
    let told = match told(shared, policy, memory.wishes(), &turn).await {
        Err(TeachError::Server(error)) => {
            at_fault(policy, &shared.config.rl, memory, id, error).await?;
            Vec::new()
        }
        other => other?,
    };
    memory.hints.put(&turn, told);
    Ok(())
}

async fn told(
    shared: &Shared,
    policy: &PolicyModel,
    wishes: Option<&str>,
    turn: &Turn,
) -> Result<Vec<Vec<u32>>, TeachError> {
    let Some(conversation) = TeacherConversation::of(turn) else {
        return Ok(Vec::new());
    };
    let of_owner = after(shared, turn).await?.hint;
    let mut told = Vec::new();
    for hint in first(all_hints(turn, of_owner)) {
        let method = shared.config.rl.method.of(TrainingSignal::Hint);
        let said = method.and_then(|it| it.words_of_hint(&hint));
        let said = said.or_else(|| line(wishes, Some(&hint)));
        let Some(said) = said else { continue };
        let messages = conversation.told(&said);
        told.push(policy.render_for(turn, messages).await?);
    }
    Ok(told)
}

/// The shortest ones, shortest first: of two that agree with the student equally the shorter one is taken.
fn first(mut hints: Vec<String>) -> Vec<String> {
    hints.sort_by_key(String::len);
    hints.dedup();
    hints.truncate(MOST_HINTS);
    hints
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_hints_the_shortest_are_asked_each_once() {
        let hints = [
            "Be brief.",
            "In one sentence.",
            "Be brief.",
            "x",
            "In French, please.",
        ];
        let found = first(hints.map(str::to_owned).to_vec());
        assert_eq!(found, ["x", "Be brief.", "In one sentence."]);
        assert!(first(Vec::new()).is_empty());
    }
}
