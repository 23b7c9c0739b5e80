//! Finds the trainer's program.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::installed::{InstalledPrograms, TRAINER};

/// The program was not found.
#[derive(Debug, thiserror::Error)]
#[error(
    "metaclaw-trainer is neither beside {} nor installed nor in PATH: `metaclaw trainer install` brings it (in a checkout, `cargo xtask start` builds it), or set mode: skills_only",
    beside.display()
)]
pub(crate) struct NoTrainer {
    pub beside: PathBuf,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TrainerProgram {
    pub program: PathBuf,
    pub origin: TrainerOrigin,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TrainerOrigin {
    /// In the folder of the proxy's program, so that a build stays together.
    Beside,
    /// In the home, installed by `metaclaw trainer install`.
    Installed,
    /// In a folder of `PATH`.
    Path,
}

// === impl TrainerProgram ===

impl TrainerProgram {
    /// Searches next to the proxy's program, then among what was installed, then in `path`.
    ///
    /// # Errors
    ///
    /// Returns [`NoTrainer`] with the places that were searched.
    pub(crate) fn find(
        own: &Path,
        programs: &InstalledPrograms,
        path: Option<&str>,
    ) -> Result<Self, NoTrainer> {
        let beside = own
            .parent()
            .map(|parent| (parent.join(TRAINER), TrainerOrigin::Beside));
        let installed = (programs.trainer_program(), TrainerOrigin::Installed);
        let in_path = path.into_iter().flat_map(std::env::split_paths);
        let in_path = in_path.map(|folder| (folder.join(TRAINER), TrainerOrigin::Path));
        let mut places = beside.into_iter().chain([installed]).chain(in_path);
        let found = places.find(|(program, _)| program.is_file());
        let found = found.ok_or_else(|| NoTrainer {
            beside: own.to_owned(),
        });
        found.map(|(program, origin)| Self { program, origin })
    }
}
