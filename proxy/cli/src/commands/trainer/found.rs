//! Which training server there is.

use crate::{commands::context::Context, installed, supervise::TrainerProgram};

/// The training server that `metaclaw start` would use.
pub(super) fn found(context: &Context) -> anyhow::Result<Option<TrainerProgram>> {
    let own = std::env::current_exe()?;
    let path = context.environment.get("PATH");
    Ok(TrainerProgram::find(&own, &installed::programs(&context.home), path).ok())
}
