//! Builds what the training server gets of a batch.

use crate::{
    config::{RlConfig, RlConfigError},
    methods::{ANCHOR, Group, Method, NotAnExample, ROLLOUTS},
    sample::Batch,
};

/// Why a batch cannot be trained on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoGroups {
    #[error(transparent)]
    Example(#[from] NotAnExample),
    #[error(transparent)]
    Config(#[from] RlConfigError),
}

/// Returns one group for each method; the server adds up their gradients. Rollouts have a method of their own, whatever
/// `rl.method` is.
///
/// # Errors
/// Returns [`NoGroups`] for the first sample that is not a sequence, and for settings that contradict each other.
pub(crate) fn groups(batch: &Batch, config: &RlConfig) -> Result<Vec<Group>, NoGroups> {
    let objective = config.objective()?;
    let methods: Vec<&'static dyn Method> = if batch.is_of_rollouts() {
        vec![ROLLOUTS]
    } else {
        config.method.iter().collect()
    };
    let methods = methods.into_iter().chain([ANCHOR]);
    let groups = methods.map(|method| method.group(batch, &objective));
    let groups: Vec<Group> = groups.collect::<Result<_, _>>()?;
    let is_there = |group: &Group| !group.examples.is_empty();
    Ok(groups.into_iter().filter(is_there).collect())
}
