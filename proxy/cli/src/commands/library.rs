//! The library itself, where nothing runs.

use metaclaw_skills::Library;

use super::context::Context;
use crate::{assemble, out};

/// The library of the home; what is wrong in it is told.
pub(super) fn files(context: &Context) -> anyhow::Result<Library> {
    let loaded = context.settings(None, Vec::new())?;
    let (library, warnings) = assemble::library(&loaded, &context.home);
    for warning in warnings {
        out::aside(format!("warning: {warning}"));
    }
    Ok(library)
}
