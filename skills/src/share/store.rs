//! Where shared skills are: a folder.
//!
//! Every home writes only below its own name, so that two homes never change the same file. Anybody may have written
//! what is read: paths are made of parsed names, links are not followed, and each file has a limit.

use std::{
    fmt,
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use metaclaw_chat::{AgentId, if_there};

use crate::{
    file::{SKILL_FILE, read_text},
    skill::SkillName,
    writer::WriterId,
};

/// The file with a home's list of skills.
pub(super) const INDEX_FILE: &str = "index.json";

/// One file of a home in a share.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ShareFile {
    /// `index.json`: which skills the home shares, and where they come from.
    Index,
    /// `<agent>/<name>/SKILL.md`.
    Skill { agent: AgentId, name: SkillName },
}

/// A place that several homes read and write.
pub trait ShareStore: fmt::Debug + Send + Sync {
    /// Returns the homes that have files there.
    ///
    /// # Errors
    /// Returns an error if the place cannot be read now.
    fn writers(&self) -> io::Result<Vec<WriterId>>;

    /// Returns a file of at most `max` bytes, or `None` if there is none.
    ///
    /// # Errors
    /// Returns an error if it cannot be read, is longer, or is not UTF-8.
    fn read(&self, writer: &WriterId, file: &ShareFile, max: u64) -> io::Result<Option<String>>;

    /// Replaces a file in one step.
    ///
    /// # Errors
    /// Returns an error if it cannot be written.
    fn write(&self, writer: &WriterId, file: &ShareFile, text: &str) -> io::Result<()>;

    /// Removes a file. A missing one is no error.
    ///
    /// # Errors
    /// Returns an error if it cannot be removed.
    fn remove(&self, writer: &WriterId, file: &ShareFile) -> io::Result<()>;
}

/// A folder that something else synchronises.
#[derive(Debug, Clone)]
pub struct FolderStore {
    folder: PathBuf,
    /// The folder of the library, which must not contain the shared folder, or be in it.
    library: PathBuf,
}

// === impl ShareFile ===

impl ShareFile {
    /// Returns the parts of its path below the home's folder. No part contains a separator.
    pub fn parts(&self) -> Vec<&str> {
        match self {
            Self::Index => vec![INDEX_FILE],
            Self::Skill { agent, name } => vec![agent.as_str(), name.as_str(), SKILL_FILE],
        }
    }
}

impl fmt::Display for ShareFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.parts().join("/"))
    }
}

// === impl FolderStore ===

impl FolderStore {
    /// Uses `folder`. `library` is the folder of the library that shares its skills.
    pub fn new(folder: impl Into<PathBuf>, library: impl Into<PathBuf>) -> Self {
        let (folder, library) = (folder.into(), library.into());
        Self { folder, library }
    }

    /// Checks that nothing in the shared folder is read as a lesson by itself.
    fn check(&self) -> io::Result<()> {
        let folder = fs::canonicalize(&self.folder)?;
        let library = fs::canonicalize(&self.library).unwrap_or_else(|_| self.library.clone());
        if folder.starts_with(&library) || library.starts_with(&folder) {
            return Err(refused(format!(
                "{} and the folder of skills {} contain one another: share a folder outside",
                folder.display(),
                library.display()
            )));
        }
        Ok(())
    }

    /// Returns the path of a file if no part of it is a link.
    fn path(&self, writer: &WriterId, file: &ShareFile) -> io::Result<PathBuf> {
        let mut path = self.folder.clone();
        for part in [writer.as_str()].into_iter().chain(file.parts()) {
            path.push(part);
            if if_there(fs::symlink_metadata(&path))?.is_some_and(|found| found.is_symlink()) {
                let why = format!("{} is a link: links are not followed", path.display());
                return Err(refused(why));
            }
        }
        Ok(path)
    }
}

impl ShareStore for FolderStore {
    fn writers(&self) -> io::Result<Vec<WriterId>> {
        self.check()?;
        let mut writers = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            let name = entry.file_name();
            let writer = name.to_str().and_then(|name| name.parse().ok());
            // The type is the entry's own, so a link is no folder.
            if entry.file_type()?.is_dir() {
                writers.extend(writer);
            }
        }
        writers.sort();
        Ok(writers)
    }

    fn read(&self, writer: &WriterId, file: &ShareFile, max: u64) -> io::Result<Option<String>> {
        if_there(read_text(&self.path(writer, file)?, max))
    }

    fn write(&self, writer: &WriterId, file: &ShareFile, text: &str) -> io::Result<()> {
        self.check()?;
        let path = self.path(writer, file)?;
        let folder = path.parent().unwrap_or(&self.folder);
        fs::create_dir_all(folder)?;
        let draft = draft_of(&path);
        fs::remove_file(&draft).ok();
        // `create_new` follows no link that somebody put there meanwhile.
        let mut new = File::create_new(&draft)?;
        new.write_all(text.as_bytes())?;
        new.sync_all()?;
        fs::rename(&draft, &path)
    }

    fn remove(&self, writer: &WriterId, file: &ShareFile) -> io::Result<()> {
        let path = self.path(writer, file)?;
        if_there(fs::remove_file(&path))?;
        let above = path.ancestors().skip(1).take(file.parts().len() - 1);
        for folder in above {
            // A folder with other files stays.
            fs::remove_dir(folder).ok();
        }
        Ok(())
    }
}

/// Returns the path of an incomplete file. Other homes do not read names that begin with a dot.
fn draft_of(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.new"))
}

fn refused(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}
