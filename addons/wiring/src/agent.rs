//! The known agents, and where their configurations are.

use std::path::{Path, PathBuf};

/// An agent whose configuration can be read and changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Agent {
    /// OpenClaw, by its `openclaw.json`.
    OpenClaw,
}

/// Where agents' configurations are searched: the caller's environment and home folder, or a test's own.
#[derive(Debug, Clone)]
pub struct Surroundings {
    /// Variables of the environment.
    pub variables: Vec<(String, String)>,
    /// The user's home folder.
    pub home: PathBuf,
}

// === impl Agent ===

impl Agent {
    pub const ALL: [Self; 1] = [Self::OpenClaw];

    /// Returns the name as people write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::OpenClaw => "OpenClaw",
        }
    }

    /// Returns the value of `claw_type`.
    pub fn id(self) -> &'static str {
        match self {
            Self::OpenClaw => "openclaw",
        }
    }
}

// === impl Surroundings ===

impl Surroundings {
    /// Returns a variable that is set to more than white space.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let mut set = self.variables.iter().filter(|(given, _)| given == name);
        let value = set.next()?.1.trim();
        Some(value).filter(|value| !value.is_empty())
    }

    /// A folder that a variable names, else one below the user's own.
    pub(crate) fn folder(&self, variable: &str, below_home: &str) -> PathBuf {
        match self.get(variable) {
            Some(named) => self.path(named),
            None => self.home.join(below_home),
        }
    }

    /// The first of these folders and files that is there, else the first.
    pub(crate) fn first_of(folder: &Path, names: &[&str]) -> PathBuf {
        let mut paths = names.iter().map(|name| folder.join(name));
        let is_there = paths.clone().find(|path| path.exists());
        is_there.or_else(|| paths.next()).unwrap_or_default()
    }

    /// Whether a program of this name is where programs are looked for.
    pub(crate) fn has_program(&self, name: &str) -> bool {
        let path = self.get("PATH").unwrap_or_default();
        let folders = path.split(':').filter(|it| !it.is_empty());
        folders
            .map(|it| Path::new(it).join(name))
            .any(|it| it.is_file())
    }

    /// Expands a path as people write it: `~` is the home folder.
    pub(crate) fn path(&self, given: &str) -> PathBuf {
        match given.strip_prefix('~') {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => {
                self.home.join(rest.trim_start_matches('/'))
            }
            _ => Path::new(given).to_owned(),
        }
    }
}
