//! Who is at fault where a turn could not be asked: the turn, or the server.
//!
//! A refusal that says that this prompt is too large is the turn's. Of everything else nothing is known before the server
//! has been asked something harmless in the same way: only one that answers that shows that it is the turn.

use metaclaw_chat::TurnId;
use metaclaw_trainer_api::{BackendError, ErrorCode};
use serde_json::json;

use super::{draws::TOP_K, error::TeachError, memory::TeacherMemory};
use crate::{
    config::{RlConfig, TargetForm},
    policy::{By, DrawRequest, PolicyModel, ScoredPair},
    sample::ExcludeReason,
};

/// Calls about one turn that fail while the server answers something else, before it is not redo's.
const MOST_FAILURES: usize = 3;
/// Any server can be asked this.
const HARMLESS: &str = "What is the capital of France?";
/// An answer to be scored: any id is one.
const REPLY: &[u32] = &[0];

/// Who is at fault.
#[derive(Debug)]
enum Fault {
    /// The turn is not redo's, and why.
    Turns(ExcludeReason),
    /// It may be the turn: it is tried again.
    Doubtful(BackendError),
    /// The server, which has no turn answered now.
    Servers(BackendError),
}

/// Why a turn is not the teacher's, where it is the turn's fault that a call about it failed.
///
/// # Errors
/// [`TeachError`]: it may be tried again.
pub(super) async fn at_fault(
    policy: &PolicyModel,
    rl: &RlConfig,
    memory: &mut TeacherMemory,
    id: TurnId,
    error: BackendError,
) -> Result<ExcludeReason, TeachError> {
    let said = error.to_string();
    match fault(policy, rl, memory, id, error).await {
        Fault::Turns(why) => {
            tracing::warn!(turn = %id, error = said, %why, "not answered by the teacher");
            Ok(why)
        }
        Fault::Doubtful(error) => Err(TeachError::Turn(error)),
        Fault::Servers(error) => Err(error.into()),
    }
}

/// Who is at fault that a call about a turn failed so.
async fn fault(
    policy: &PolicyModel,
    rl: &RlConfig,
    memory: &mut TeacherMemory,
    id: TurnId,
    error: BackendError,
) -> Fault {
    if error.is_unreachable() {
        return Fault::Servers(error);
    }
    if error.code().is_some_and(ErrorCode::is_prompt_too_large) || error.datum().is_some() {
        return Fault::Turns(ExcludeReason::TeacherRefused);
    }
    if error.is_busy() {
        return Fault::Servers(error);
    }
    if let Err(error) = ask_harmless(policy, rl).await {
        return Fault::Servers(error);
    }
    if matches!(error.status(), Some(400 | 413 | 422)) {
        // The same again would be refused as well.
        return Fault::Turns(ExcludeReason::TeacherRefused);
    }
    if memory.failed(id) >= MOST_FAILURES {
        return Fault::Turns(ExcludeReason::TeacherFails);
    }
    Fault::Doubtful(error)
}

/// The calls that a turn's teaching makes, with next to nothing to do.
async fn ask_harmless(policy: &PolicyModel, rl: &RlConfig) -> Result<(), BackendError> {
    let message = json!({"role": "user", "content": HARMLESS});
    let prompt = &policy.render(vec![message], None).await?;
    let draw = DrawRequest {
        adapter: None,
        prompt,
        // As many at once: there may be no room for so many.
        n: rl.draws,
        max_tokens: 1,
        temperature: 0.0,
        seed: 0,
    };
    policy.draw(draw).await?;
    let pair = ScoredPair {
        prompt,
        reply: REPLY,
    };
    policy.score(By::Base, &[pair], REPLY.len()).await?;
    if rl.target == TargetForm::TopK {
        policy.likeliest(pair, TOP_K).await?;
    }
    Ok(())
}
