//! Keeps the record in the home folder consistent with the agent's file.
//!
//! A change writes in this order: the copy, the record, the file. A restoration writes in this order: the file, the
//! record, the copy. Each is on the disk before the next, and the record has the file's hash before and after. So after
//! a crash, the file itself shows how far the change came.

use std::{
    fs,
    path::{Path, PathBuf},
};

use metaclaw_chat::if_there;

use crate::{
    by_hand, diff,
    files::{self, io_error},
    format::Format,
    found::Found,
    openclaw::{
        change::{self, Edit},
        entry::Entry,
    },
    outcome::{Outcome, WiringError},
    record::{Change, Record},
    target::Target,
};

const RECORD: &str = "openclaw.json";
const COPY: &str = "openclaw.json.before";

/// The wiring of one home folder.
#[derive(Debug, Clone)]
pub struct Wiring {
    folder: PathBuf,
}

/// How the agent's file relates to the record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// The agent is not pointed at the proxy.
    Unwired,
    /// The agent uses the proxy first, at this address.
    Wired {
        /// The agent's base URL.
        base_url: String,
        /// Whether the agent uses the former model if the proxy does not answer.
        has_fallback: bool,
    },
    /// The record says that the agent uses the proxy, but somebody has changed the file since.
    Changed,
}

// === impl Wiring ===

impl Wiring {
    /// Makes a wiring in a folder of the home, which need not exist yet.
    pub fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Returns the files that it may have, for a caller who deletes the home folder.
    pub fn files(&self) -> [PathBuf; 2] {
        [self.folder.join(RECORD), self.folder.join(COPY)]
    }

    /// Returns the agent whose owner said yes, or `None` if nobody was asked.
    ///
    /// # Errors
    ///
    /// Returns [`WiringError::Io`] if the record cannot be read.
    pub fn record(&self) -> Result<Option<Record>, WiringError> {
        let path = self.folder.join(RECORD);
        Record::load(&path).map_err(io_error(&path))
    }

    /// Records that the owner of this agent said yes. The agent's file is not changed.
    ///
    /// # Errors
    ///
    /// Returns [`WiringError::Io`] if the record cannot be written.
    pub fn accept(&self, found: &Found) -> Result<(), WiringError> {
        fs::create_dir_all(&self.folder).map_err(io_error(&self.folder))?;
        self.write(&Record::new(found))
    }

    /// Returns how the agent's file relates to the record.
    ///
    /// # Errors
    ///
    /// Returns [`WiringError::Io`] if one of the two cannot be read.
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

    /// Returns whether the agent already uses `target`, as [`Self::wire`] would set it.
    ///
    /// # Errors
    ///
    /// Fails like [`Self::standing`].
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

    /// Points the agent at `target`. An earlier change has to be reversed first ([`Self::unwire`]), because the former
    /// model is read from the file.
    ///
    /// # Errors
    ///
    /// Returns [`WiringError`]. In that case the agent's file is unchanged.
    pub fn wire(&self, found: &Found, target: &Target) -> Result<Outcome, WiringError> {
        let path = &found.file;
        let before = fs::read(path).map_err(io_error(path))?;
        let text = String::from_utf8_lossy(&before);
        let (after, edit) = Self::changed(found, target, &text)?;
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
        files::exchange(path, Some(&before), after.as_bytes())?;
        Ok(Outcome::Wired)
    }

    /// What [`Self::wire`] would change, as a diff in which no key is shown.
    ///
    /// # Errors
    ///
    /// [`WiringError`] where it would be refused.
    pub fn diff(&self, found: &Found, target: &Target) -> Result<String, WiringError> {
        let path = &found.file;
        let before = fs::read(path).map_err(io_error(path))?;
        let text = String::from_utf8_lossy(&before);
        let (after, _) = Self::changed(found, target, &text)?;
        let mut secrets = diff::secrets(Format::Json, &text);
        secrets.extend(target.key.as_ref().map(|it| it.expose().to_owned()));
        Ok(diff::masked(path, &text, &after, &secrets))
    }

    /// Forgets that the owner said yes. The file has to be as it was.
    ///
    /// # Errors
    ///
    /// [`WiringError::Io`] when the record cannot be removed.
    pub fn forget(&self) -> Result<(), WiringError> {
        let path = self.folder.join(RECORD);
        let removed = if_there(fs::remove_file(&path));
        removed.map(drop).map_err(io_error(&path))
    }

    /// Restores the former state. The owner's yes is kept.
    ///
    /// # Errors
    ///
    /// Returns [`WiringError`]. In that case the record stays, and the call can be repeated.
    pub fn unwire(&self) -> Result<Outcome, WiringError> {
        let Some(mut record) = self.record()? else {
            return Ok(Outcome::Nothing);
        };
        let Some(change) = record.change.take() else {
            return Ok(Outcome::Nothing);
        };
        let outcome = Self::put_back(&record.file, &change)?;
        self.write(&record)?;
        // The copy is no longer needed.
        fs::remove_file(&change.copy).ok();
        Ok(outcome)
    }

    fn changed(found: &Found, target: &Target, text: &str) -> Result<(String, Edit), WiringError> {
        let entry = Entry::new(found, target);
        entry.check(target)?;
        change::wire(text, entry.clone()).map_err(|error| WiringError::Layout {
            path: found.file.clone(),
            reason: error.to_string(),
            by_hand: by_hand::text(&entry),
        })
    }

    fn put_back(path: &Path, change: &Change) -> Result<Outcome, WiringError> {
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
            files::exchange(path, Some(&now), &copy)?;
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
            files::exchange(path, Some(&now), back.as_bytes())?;
        }
        Ok(Outcome::TakenBack)
    }

    fn write(&self, record: &Record) -> Result<(), WiringError> {
        let path = self.folder.join(RECORD);
        record.write(&path).map_err(io_error(&path))
    }
}
