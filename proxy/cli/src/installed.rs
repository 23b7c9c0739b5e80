//! Programs that were installed into a home: the training server, with its libtorch.
//!
//! Each installation has a folder of its own, and the link `trainer` leads to the one that is used. The link is replaced by
//! one rename, so there is never half a training server, and never none where there was one.

use std::{
    fs::{self, File, TryLockError},
    io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use metaclaw_chat::if_there;
use metaclaw_control::home::Home;
use metaclaw_fetch::writing;

pub(crate) const TRAINER: &str = "metaclaw-trainer";
const LINK: &str = "trainer";
const FOLDER: &str = "metaclaw-trainer-";
/// Beside the program, where a libtorch with CUDA is looked for before any other.
const CUDA: &str = "lib-cuda";

pub(crate) fn programs(home: &Home) -> InstalledPrograms {
    InstalledPrograms::at(home.programs())
}

/// The folder of installed programs. It may not exist yet.
#[derive(Debug, Clone)]
pub(crate) struct InstalledPrograms {
    folder: PathBuf,
}

/// The right to change what is installed, held until it is dropped.
#[derive(Debug)]
pub(crate) struct InstallationChange<'a> {
    programs: &'a InstalledPrograms,
    _lock: File,
}

/// An installation that is being made. Dropped before it is used, it is gone.
#[derive(Debug)]
pub(crate) struct StagedInstallation {
    pub(crate) folder: PathBuf,
    is_used: bool,
}

// === impl InstalledPrograms ===

impl InstalledPrograms {
    pub(crate) fn at(folder: PathBuf) -> Self {
        Self { folder }
    }

    pub(crate) fn trainer(&self) -> PathBuf {
        self.folder.join(LINK)
    }

    pub(crate) fn trainer_program(&self) -> PathBuf {
        self.trainer().join(TRAINER)
    }

    /// Takes the right to change it, and removes what changes that were killed have left.
    ///
    /// # Errors
    /// Another process has it; the folder cannot be written.
    pub(crate) fn change(&self) -> anyhow::Result<InstallationChange<'_>> {
        writing(fs::create_dir_all(&self.folder), &self.folder)?;
        let path = self.folder.join("lock");
        let lock = writing(File::create(&path), &path)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => bail!(
                "another `metaclaw trainer` is at work in {}: wait until it has ended",
                self.folder.display()
            ),
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("cannot lock {}", path.display()));
            }
        }
        let change = InstallationChange {
            programs: self,
            _lock: lock,
        };
        change.tidy()?;
        Ok(change)
    }
}

// === impl InstallationChange ===

impl InstallationChange<'_> {
    pub(crate) fn stage(&self) -> StagedInstallation {
        // Nobody else makes one: we have the lock.
        let free = (0_u32..).map(|n| self.programs.folder.join(format!("{FOLDER}{n}")));
        let mut free = free.filter(|folder| !folder.exists());
        StagedInstallation {
            folder: free.next().unwrap_or_default(),
            is_used: false,
        }
    }

    /// Uses an installation from now on; the one before is removed. What runs from that goes on.
    ///
    /// # Errors
    /// The link cannot be written.
    pub(crate) fn put(&self, mut staged: StagedInstallation) -> anyhow::Result<()> {
        let name = staged.folder.file_name().unwrap_or_default();
        replace_link(Path::new(name), &self.programs.trainer())?;
        staged.is_used = true;
        self.tidy()
    }

    /// Has the installed training server compute with a libtorch with CUDA, in the folder `lib`.
    ///
    /// # Errors
    /// The link cannot be written.
    pub(crate) fn use_cuda(&self, lib: &Path) -> anyhow::Result<()> {
        replace_link(lib, &self.programs.trainer().join(CUDA))
    }

    pub(crate) fn use_no_cuda(&self) -> io::Result<()> {
        remove_if_there(&self.programs.trainer().join(CUDA))
    }

    /// Removes what is installed; whether anything was.
    ///
    /// # Errors
    /// It cannot be removed.
    pub(crate) fn remove(self) -> anyhow::Result<bool> {
        let link = self.programs.trainer();
        let was_there = link.symlink_metadata().is_ok();
        writing(remove_if_there(&link), &link)?;
        self.tidy()?;
        let folder = &self.programs.folder;
        writing(fs::remove_dir_all(folder), folder)?;
        Ok(was_there)
    }

    fn tidy(&self) -> anyhow::Result<()> {
        let used = fs::read_link(self.programs.trainer()).ok();
        let folder = &self.programs.folder;
        let entries = fs::read_dir(folder);
        for entry in entries.with_context(|| format!("cannot list {}", folder.display()))? {
            let entry = entry.with_context(|| format!("cannot list {}", folder.display()))?;
            let name = PathBuf::from(entry.file_name());
            let is_ours = name.to_string_lossy().starts_with(FOLDER);
            if is_ours && used.as_ref() != Some(&name) {
                let path = entry.path();
                writing(fs::remove_dir_all(&path), &path)?;
            }
        }
        Ok(())
    }
}

impl Drop for StagedInstallation {
    fn drop(&mut self) {
        if !self.is_used {
            // What cannot be removed now is removed by the next change.
            fs::remove_dir_all(&self.folder).ok();
        }
    }
}

/// Makes a link, or has it lead elsewhere, without a moment in which there is none.
fn replace_link(target: &Path, link: &Path) -> anyhow::Result<()> {
    let new = link.with_extension("new");
    writing(remove_if_there(&new), &new)?;
    writing(symlink(target, &new), &new)?;
    writing(fs::rename(&new, link), link)
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    if_there(fs::remove_file(path)).map(drop)
}

pub(crate) fn cuda(folder: &Path) -> Option<PathBuf> {
    fs::read_link(folder.join(CUDA)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn staged(change: &InstallationChange<'_>, text: &str) -> StagedInstallation {
        let staged = change.stage();
        fs::create_dir(&staged.folder).unwrap();
        fs::write(staged.folder.join(TRAINER), text).unwrap();
        staged
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name();
        let mut names: Vec<_> = entries.map(|it| name(it).into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn an_installation_takes_the_place_of_the_one_before_and_nothing_else_is_left() {
        let home = tempfile::tempdir().unwrap();
        let programs = InstalledPrograms::at(home.path().join("programs"));
        let change = programs.change().unwrap();
        change.put(staged(&change, "one")).unwrap();
        change.use_cuda(Path::new("/cuda/lib")).unwrap();
        assert_eq!(cuda(&programs.trainer()), Some(PathBuf::from("/cuda/lib")));
        drop(staged(&change, "broken"));
        assert_eq!(fs::read(programs.trainer_program()).unwrap(), b"one");
        change.put(staged(&change, "two")).unwrap();
        assert_eq!(fs::read(programs.trainer_program()).unwrap(), b"two");
        assert_eq!(cuda(&programs.trainer()), None);
        let left = names(&home.path().join("programs"));
        assert_eq!(left, ["lock", "metaclaw-trainer-1", "trainer"]);
        assert!(change.remove().unwrap());
        assert_eq!(names(home.path()), [""; 0]);
    }

    #[test]
    fn what_a_kill_left_is_removed_and_two_at_once_are_refused() {
        let home = tempfile::tempdir().unwrap();
        let programs = InstalledPrograms::at(home.path().to_owned());
        let change = programs.change().unwrap();
        let refused = programs.change().unwrap_err().to_string();
        assert!(refused.contains("another `metaclaw trainer`"), "{refused}");
        let mut killed = staged(&change, "half");
        killed.is_used = true;
        drop((killed, change));
        assert_eq!(names(home.path()), ["lock", "metaclaw-trainer-0"]);
        drop(programs.change().unwrap());
        assert_eq!(names(home.path()), ["lock"]);
    }
}
