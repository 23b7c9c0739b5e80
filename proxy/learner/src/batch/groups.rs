//! What the training server is given of a batch.

use crate::{
    config::{RlConfig, RlConfigError},
    methods::{ANCHOR, Group, NotAnExample},
    sample::Batch,
};

/// Why a batch is nothing to train on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoGroups {
    #[error(transparent)]
    Example(#[from] NotAnExample),
    #[error(transparent)]
    Config(#[from] RlConfigError),
}

/// A group for each method; the gradients of all add up.
///
/// # Errors
/// [`NoGroups`] for the first sample that is no sequence, and settings that do not go together.
pub(crate) fn groups(batch: &Batch, config: &RlConfig) -> Result<Vec<Group>, NoGroups> {
    let objective = config.objective()?;
    let methods = config.method.iter().chain([ANCHOR]);
    let groups = methods.map(|method| method.group(batch, &objective));
    let groups: Vec<Group> = groups.collect::<Result<_, _>>()?;
    let is_there = |group: &Group| !group.examples.is_empty();
    Ok(groups.into_iter().filter(is_there).collect())
}
