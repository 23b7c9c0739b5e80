//! Where the trainer's program is.

use std::path::{Path, PathBuf};

const NAME: &str = "metaclaw-trainer";

/// The program is nowhere.
#[derive(Debug, thiserror::Error)]
#[error(
    "metaclaw-trainer is neither beside {} nor in PATH: `cargo xtask start` builds it, or set mode: skills_only",
    beside.display()
)]
pub(crate) struct NoTrainer {
    pub beside: PathBuf,
}

/// Finds the trainer: beside our own program, so that a build or an installation stays together,
/// else in `path`.
///
/// # Errors
///
/// [`NoTrainer`] says where it was looked for.
pub(crate) fn find_trainer(own: &Path, path: Option<&str>) -> Result<PathBuf, NoTrainer> {
    let beside = own.parent().map(Path::to_owned);
    let in_path = path.into_iter().flat_map(std::env::split_paths);
    let found = beside
        .into_iter()
        .chain(in_path)
        .map(|folder| folder.join(NAME))
        .find(|program| program.is_file());
    found.ok_or_else(|| NoTrainer {
        beside: own.to_owned(),
    })
}
