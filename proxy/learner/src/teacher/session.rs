//! `rl.teacher: session`: the target is the reply that the session itself arrived at, unchanged.
//!
//! MetaClaw did so first, and keeps it for comparison: a reply that was accepted after a complaint may say nothing, and
//! nothing here checks what it says. A model that is trained on such replies soon says nothing else.

use std::sync::Arc;

use metaclaw_turns::{LogError, Turn};

use super::{
    after::{After, after},
    memory::TeacherMemory,
};
use crate::{
    sample::{ExcludeReason, Form, Target, TargetReply, Taught, is_tool_turn},
    shared::Shared,
};

/// Takes the results of failed turns whose sessions have one by now; returns whether there were any.
///
/// # Errors
/// Returns the log's errors.
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

/// Returns the result of a failed turn's session, or `None` while there may still be one.
pub(super) async fn came_to(shared: &Shared, turn: &Turn) -> Result<Option<Taught>, LogError> {
    if is_tool_turn(turn) {
        // The reply that was accepted answers the tool's result as well.
        return Ok(Some(Taught::Declined(ExcludeReason::ToolFailed)));
    }
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
