//! What a sandbox may use, and which program makes it.

use std::{path::PathBuf, str::FromStr};

use serde::{
    Deserialize,
    de::{self, value::StrDeserializer},
};
use smart_default::SmartDefault;

use super::error::SandboxError;

pub(super) const MB: u64 = 1 << 20;

/// The program that separates commands from this machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SandboxChoice {
    /// Bubblewrap, else podman, else docker. If the limits name an image: podman, else docker.
    #[default]
    Auto,
    Bubblewrap,
    Podman,
    Docker,
    /// No separation: commands run as this user, in a temporary folder.
    None,
}

/// What one sandbox may use.
#[derive(Debug, Clone, SmartDefault, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SandboxLimits {
    /// The size of the work folder in MB. `/tmp` and `/dev/shm` have the same size. All are in memory.
    #[default = 256]
    pub disk_mb: u32,
    /// The memory in MB: in a container and in a control group of all processes together, else of each process.
    #[default = 1024]
    pub memory_mb: u32,
    /// The number of processes and threads at once.
    #[default = 128]
    pub processes: u32,
    /// Folders of this machine that can be read in the sandbox, under the same path.
    pub folders: Vec<PathBuf>,
    /// The container image. It needs `bash` and `tar`.
    pub image: Option<String>,
    /// Files and folders that can be read in places of their own. `none` does not show them.
    #[serde(skip)]
    pub mounts: Vec<SandboxMount>,
}

/// A file or folder of this machine that commands in a sandbox can read at `target`, an absolute path, and not change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxMount {
    pub source: PathBuf,
    pub target: PathBuf,
}

/// A text that names no program for a sandbox.
#[derive(Debug, thiserror::Error)]
#[error("sandbox {given:?} is not known: use auto, bubblewrap, podman, docker or none")]
pub struct UnknownSandbox {
    given: String,
}

// === impl SandboxChoice ===

impl FromStr for SandboxChoice {
    type Err = UnknownSandbox;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let read = Self::deserialize(StrDeserializer::<de::value::Error>::new(text));
        read.map_err(|_| UnknownSandbox {
            given: text.to_owned(),
        })
    }
}

// === impl SandboxLimits ===

impl SandboxLimits {
    pub(super) fn total_memory(&self) -> u64 {
        MB * (u64::from(self.memory_mb) + 3 * u64::from(self.disk_mb))
    }

    /// Checks that nothing is limited to nothing, which a file system in memory would take for no limit.
    ///
    /// # Errors
    /// Names the field.
    pub(super) fn validate(&self) -> Result<(), SandboxError> {
        let sizes = [self.disk_mb, self.memory_mb, self.processes];
        let names = ["disk_mb", "memory_mb", "processes"];
        match sizes.iter().position(|size| *size == 0) {
            Some(index) => Err(SandboxError::Limit {
                field: names[index],
            }),
            None => Ok(()),
        }
    }
}
