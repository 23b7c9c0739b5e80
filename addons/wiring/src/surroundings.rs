//! Where agents' configurations are.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

/// Where agents' configurations are searched: the caller's environment and home folder, or a test's own.
#[derive(Debug, Clone)]
pub struct Surroundings {
    /// Variables of the environment.
    pub variables: Vec<(String, String)>,
    /// The user's home folder.
    pub home: PathBuf,
}

// === impl Surroundings ===

impl Surroundings {
    /// Returns a variable that is set to more than white space.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let mut set = self.variables.iter().filter(|(given, _)| given == name);
        let value = set.next()?.1.trim();
        Some(value).filter(|value| !value.is_empty())
    }

    /// Returns the first of these paths whose variable (`$NAME/..`) is set, else the first that exists, else the last.
    /// A path without a variable or `~` is appended to the text of `folder`.
    pub(crate) fn place(&self, folder: &Path, names: &[String]) -> PathBuf {
        let named = names.iter().find_map(|name| {
            let name = name.strip_prefix('$')?;
            let is_part = |c: char| c.is_ascii_uppercase() || c == '_';
            let (variable, rest) =
                name.split_at(name.find(|c: char| !is_part(c)).unwrap_or(name.len()));
            Some(self.path(&format!("{}{rest}", self.get(variable)?)))
        });
        let usual = names.iter().filter(|name| !name.starts_with('$'));
        let mut usual = usual.map(|name| match name.strip_prefix('~') {
            Some(_) => self.path(name),
            None => [folder.as_os_str(), name.as_ref()]
                .into_iter()
                .collect::<OsString>()
                .into(),
        });
        let place = named.or_else(|| usual.clone().find(|path| path.exists()));
        let place = place.or_else(|| usual.next_back()).unwrap_or_default();
        // This removes a double slash.
        place.components().collect()
    }

    pub(crate) fn has_program(&self, name: &str) -> bool {
        let path = self.get("PATH").unwrap_or_default();
        let folders = path.split(':').filter(|it| !it.is_empty());
        folders
            .map(|it| Path::new(it).join(name))
            .any(|it| it.is_file())
    }

    pub(crate) fn path(&self, given: &str) -> PathBuf {
        match given.strip_prefix('~') {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => {
                self.home.join(rest.trim_start_matches('/'))
            }
            _ => Path::new(given).to_owned(),
        }
    }
}
