//! `rl.teacher: session`: what the session itself came to is taught, as it is.
//!
//! So the product first did, and it is kept to be compared with: a reply that was accepted after a complaint may say
//! nothing, and nobody looks at what it says here. A model that is taught such replies soon says nothing else.

use std::sync::Arc;

use metaclaw_turns::{LogError, Turn};

use super::{
    after::{After, after},
    memory::TeacherMemory,
};
use crate::{
    sample::{ExcludeReason, Form, Target, TargetReply, Taught},
    shared::Shared,
};

/// Takes over what came of failed turns, of those whose sessions tell by now; whether any did.
///
/// # Errors
/// The log's.
pub(crate) async fn from_sessions(
    shared: &Shared,
    memory: &mut TeacherMemory,
    failed: &[Arc<Turn>],
) -> Result<bool, LogError> {
    let mut is_any = false;
    for turn in failed {
        if let Some(came_to) = came_to(shared, turn).await? {
            memory.settled(turn, came_to);
            is_any = true;
        }
    }
    Ok(is_any)
}

/// What a failed turn's session came to; none while it may come to something.
pub(super) async fn came_to(shared: &Shared, turn: &Turn) -> Result<Option<Taught>, LogError> {
    let After {
        accepted, is_open, ..
    } = after(shared, turn).await?;
    let prompt = turn.tokens.as_ref().map(|it| it.prompt_ids.clone());
    let reply = accepted.and_then(|turn| turn.tokens).map(|it| it.ids);
    Ok(match prompt.zip(reply) {
        Some((prompt, reply)) => {
            let form = Form::OneHot;
            let target = Target {
                prompt,
                replies: vec![TargetReply { ids: reply, form }],
            };
            Some(Taught::Target(target.into()))
        }
        None => (!is_open).then_some(Taught::Declined(ExcludeReason::NotCorrected)),
    })
}
