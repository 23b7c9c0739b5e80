//! The record of a home and the agent's file, kept in step.
//!
//! Order of a change: the copy, the record, the file. Order of the way back: the file, the record,
//! the copy. Each is on the disk before the next, and the record has the file's hash before and
//! after, so that whatever a crash leaves is told by looking at the file.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{
    by_hand, files,
    found::Found,
    openclaw::{change, entry::Entry},
    outcome::{Outcome, WiringError},
    record::{Change, Record},
    target::Target,
};

const RECORD: &str = "openclaw.json";
const COPY: &str = "openclaw.json.before";

/// The wiring of one home.
#[derive(Debug, Clone)]
pub struct Wiring {
    folder: PathBuf,
}

/// How the agent's file stands to the record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// It is not pointed at us.
    Unwired,
    /// It asks us first, at this address.
    Wired {
        /// What the agent has as base URL.
        base_url: String,
        /// Whether the former model is asked when we do not answer.
        has_fallback: bool,
    },
    /// The record says that it asks us, and somebody has changed it since.
    Changed,
}

// === impl Wiring ===

impl Wiring {
    /// In a folder of the home, which need not exist yet.
    pub fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// The files that it may have, for whoever clears the home.
    pub fn files(&self) -> [PathBuf; 2] {
        [self.folder.join(RECORD), self.folder.join(COPY)]
    }

    /// The agent whose owner said yes; `None` where nobody was asked.
    ///
    /// # Errors
    ///
    /// [`WiringError::Io`] when the record cannot be read.
    pub fn record(&self) -> Result<Option<Record>, WiringError> {
        let path = self.folder.join(RECORD);
        Record::load(&path).map_err(io_error(&path))
    }

    /// Remembers that the owner of this agent said yes. Its file is not touched.
    ///
    /// # Errors
    ///
    /// [`WiringError::Io`] when it cannot be written.
    pub fn accept(&self, found: &Found) -> Result<(), WiringError> {
        fs::create_dir_all(&self.folder).map_err(io_error(&self.folder))?;
        self.write(&Record::new(found))
    }

    /// How the agent's file stands to the record.
    ///
    /// # Errors
    ///
    /// [`WiringError::Io`] when one of the two cannot be read.
    pub fn standing(&self) -> Result<Standing, WiringError> {
        let Some(record) = self.record()? else {
            return Ok(Standing::Unwired);
        };
        let Some(change) = &record.change else {
            return Ok(Standing::Unwired);
        };
        let now = files::read(&record.file).map_err(io_error(&record.file))?;
        let now = now.unwrap_or_default();
        if files::hash(&now) == change.before {
            return Ok(Standing::Unwired);
        }
        let text = String::from_utf8_lossy(&now);
        let entry = &change.edit.entry;
        Ok(if change::stands(&text, entry) {
            Standing::Wired {
                base_url: entry.base_url().to_owned(),
                has_fallback: change::has_fallback(&text, entry),
            }
        } else {
            Standing::Changed
        })
    }

    /// Whether the agent asks `target` already, as [`Self::wire`] would leave it.
    ///
    /// # Errors
    ///
    /// As for [`Self::standing`].
    pub fn is_wired_to(&self, target: &Target) -> Result<bool, WiringError> {
        let Standing::Wired { base_url, .. } = self.standing()? else {
            return Ok(false);
        };
        let record = self.record()?;
        let change = record.and_then(|it| it.change);
        let shown = change.map(|it| it.edit.entry.value["apiKey"].clone());
        let is_shown = (target.key.as_ref())
            .is_none_or(|key| shown.is_some_and(|it| it.as_str() == Some(key.expose())));
        Ok(is_shown && base_url.strip_suffix("/v1").unwrap_or(&base_url) == target.origin)
    }

    /// Points the agent at `target`. What stands there from an earlier time has to be taken back first
    /// ([`Self::unwire`]): what was there before us is read from the file.
    ///
    /// # Errors
    ///
    /// [`WiringError`]; the agent's file is then as it was.
    pub fn wire(&self, found: &Found, target: &Target) -> Result<Outcome, WiringError> {
        let path = &found.file;
        let before = fs::read(path).map_err(io_error(path))?;
        let text = String::from_utf8_lossy(&before);
        let entry = Entry::new(found, target);
        entry.check(target)?;
        let (after, edit) =
            change::wire(&text, entry.clone()).map_err(|error| WiringError::Layout {
                path: path.clone(),
                reason: error.to_string(),
                by_hand: by_hand::text(&entry),
            })?;
        let mut record = Record::new(found);
        let copy = self.folder.join(COPY);
        record.change = Some(Change {
            before: files::hash(&before),
            after: files::hash(after.as_bytes()),
            copy: copy.clone(),
            edit,
        });
        fs::create_dir_all(&self.folder).map_err(io_error(&self.folder))?;
        files::write_private(&copy, &before).map_err(io_error(&copy))?;
        self.write(&record)?;
        self.replace(path, &before, after.as_bytes())?;
        Ok(Outcome::Wired)
    }

    /// Puts back what was there. The yes is remembered.
    ///
    /// # Errors
    ///
    /// [`WiringError`]; the record stays, and this can be tried again.
    pub fn unwire(&self) -> Result<Outcome, WiringError> {
        let Some(mut record) = self.record()? else {
            return Ok(Outcome::Nothing);
        };
        let Some(change) = record.change.take() else {
            return Ok(Outcome::Nothing);
        };
        let outcome = self.put_back(&record.file, &change)?;
        self.write(&record)?;
        // What it was for is done.
        fs::remove_file(&change.copy).ok();
        Ok(outcome)
    }

    fn put_back(&self, path: &Path, change: &Change) -> Result<Outcome, WiringError> {
        let Some(now) = files::read(path).map_err(io_error(path))? else {
            return Ok(Outcome::Gone);
        };
        let hash = files::hash(&now);
        if hash == change.before {
            return Ok(Outcome::Nothing);
        }
        let copy = files::read(&change.copy).map_err(io_error(&change.copy))?;
        let copy = copy.filter(|copy| files::hash(copy) == change.before);
        if let Some(copy) = copy.filter(|_| hash == change.after) {
            self.replace(path, &now, &copy)?;
            return Ok(Outcome::Restored);
        }
        let text = String::from_utf8_lossy(&now);
        let back = change::take_back(&text, &change.edit).map_err(|error| WiringError::Layout {
            path: path.to_owned(),
            reason: error.to_string(),
            by_hand: format!(
                "take models.providers.{} out and set agents.defaults.model to {}",
                change.edit.entry.provider(),
                change.edit.model_before
            ),
        })?;
        if back.as_bytes() != now {
            self.replace(path, &now, back.as_bytes())?;
        }
        Ok(Outcome::TakenBack)
    }

    /// Replaces the file, if it still is what was read.
    #[expect(clippy::unused_self, reason = "reads as the other steps do")]
    fn replace(&self, path: &Path, read: &[u8], new: &[u8]) -> Result<(), WiringError> {
        let now = fs::read(path).map_err(io_error(path))?;
        if now != read {
            let path = path.to_owned();
            return Err(WiringError::Busy { path });
        }
        files::replace(path, new).map_err(io_error(path))
    }

    fn write(&self, record: &Record) -> Result<(), WiringError> {
        let path = self.folder.join(RECORD);
        record.write(&path).map_err(io_error(&path))
    }
}

fn io_error(path: &Path) -> impl FnOnce(std::io::Error) -> WiringError {
    let path = path.to_owned();
    move |source| WiringError::Io { path, source }
}
