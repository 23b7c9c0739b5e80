//! Keeps the records of wired agents consistent with the agents' files.
//!
//! A change writes in this order: the copies, the record, the files. A restoration writes in this order: the files, the
//! record, the copies. Each is on the disk before the next, and the record has each file's hash before and after. So
//! after a crash, the files themselves show how far the change came.

use std::{
    fs,
    path::{Path, PathBuf},
};

use metaclaw_chat::if_there;

use crate::{
    diff,
    files::{self, io_error},
    found::Found,
    keys::{self, SetKey},
    outcome::WiringError,
    profile::{AgentProfile, OPENCLAW},
    rebase,
    settings::{FileSettings, Settings},
    surroundings::Surroundings,
    target::Target,
    tree,
    wire_record::{FileRecord, WireRecord},
};

/// The end of a record's file name.
const RECORD: &str = ".wired.json";

/// The wired agents of one home.
#[derive(Debug, Clone)]
pub struct Wires {
    folder: PathBuf,
}

/// Whether an agent's files agree with the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WireStanding {
    /// There is no record: nobody wired the agent.
    Unknown,
    /// The owner wired the agent, and its files are restored because the proxy does not run.
    Waits,
    /// The files make the agent use the proxy.
    Wired,
    /// The agent was wired, and somebody else changed its files in the meantime.
    Changed,
}

/// The result of restoring an agent's files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WayBack {
    /// Files that have their former bytes again.
    pub restored: Vec<PathBuf>,
    /// Files that others wrote in the meantime: only our keys were removed.
    pub taken_back: Vec<PathBuf>,
    /// Files that no longer exist.
    pub gone: Vec<PathBuf>,
    /// Keys of ours that somebody else changed. They were not touched.
    pub left: Vec<String>,
}

/// The changes that [`Wires::wire`] would make.
#[derive(Debug, Clone)]
pub struct WirePlan {
    pub notes: Vec<String>,
    asks: Option<String>,
    changes: Vec<FileChange>,
    /// The proxy's key, which [`Self::diff`] masks.
    key: Option<String>,
}

#[derive(Debug, Clone)]
struct FileChange {
    settings: FileSettings,
    before: Option<String>,
    after: String,
    done: Vec<SetKey>,
}

// === impl WireStanding ===

impl WireStanding {
    /// Returns whether the agent's files name a proxy, or did until somebody else changed them.
    pub fn is_pointed(self) -> bool {
        matches!(self, Self::Wired | Self::Changed)
    }
}

// === impl Wires ===

impl Wires {
    /// Uses the records in `folder`, a folder of the home. It does not have to exist yet.
    pub fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Returns the ids of the agents that have a record, including those that this release no longer wires.
    ///
    /// # Errors
    ///
    /// Returns [`WiringError::Io`] if the folder cannot be read.
    pub fn agents(&self) -> Result<Vec<String>, WiringError> {
        let entries = if_there(fs::read_dir(&self.folder)).map_err(io_error(&self.folder))?;
        let mut agents = Vec::new();
        for entry in entries.into_iter().flatten() {
            let name = entry.map_err(io_error(&self.folder))?.file_name();
            let agent = name.to_str().and_then(|name| name.strip_suffix(RECORD));
            agents.extend(agent.map(str::to_owned));
        }
        agents.sort();
        Ok(agents)
    }

    /// Returns the record of an agent, or none if nobody wired it.
    ///
    /// # Errors
    ///
    /// Returns [`WiringError::Io`] if the record cannot be read.
    pub fn record(&self, agent: &str) -> Result<Option<WireRecord>, WiringError> {
        let path = self.record_path(agent);
        WireRecord::load(&path).map_err(io_error(&path))
    }

    /// Compares the agent's files with the record.
    ///
    /// # Errors
    ///
    /// Returns [`WiringError::Io`] if one of them cannot be read.
    pub fn standing(&self, agent: &str) -> Result<WireStanding, WiringError> {
        let Some(record) = self.record(agent)? else {
            return Ok(WireStanding::Unknown);
        };
        let mut states = Vec::new();
        for file in &record.files {
            let now = files::read(&file.path).map_err(io_error(&file.path))?;
            let text = String::from_utf8_lossy(now.as_deref().unwrap_or_default()).into_owned();
            let keys_to_set: Vec<_> = file.done.iter().map(|it| it.key.clone()).collect();
            states.push(if now.as_deref().map(files::hash) == file.before {
                WireStanding::Waits
            } else if keys::stands(file.format, &text, &keys_to_set) {
                WireStanding::Wired
            } else {
                WireStanding::Changed
            });
        }
        let all = |state| states.iter().all(|it| *it == state);
        Ok(if all(WireStanding::Waits) {
            WireStanding::Waits
        } else if all(WireStanding::Wired) {
            WireStanding::Wired
        } else {
            WireStanding::Changed
        })
    }

    /// Returns what [`Self::wire`] would do, and changes nothing.
    ///
    /// # Errors
    ///
    /// Returns [`WiringError`] if [`Self::wire`] would fail.
    pub fn plan(
        &self,
        agent: &AgentProfile,
        surroundings: &Surroundings,
        target: &Target,
    ) -> Result<WirePlan, WiringError> {
        let settings = agent.settings(surroundings, target)?;
        let by_hand = settings.by_hand(target);
        let Settings {
            files, asks, notes, ..
        } = settings;
        let changes: Result<Vec<_>, _> = files.into_iter().map(|it| change(it, &by_hand)).collect();
        Ok(WirePlan {
            notes,
            asks,
            changes: changes?,
            key: target.key.as_ref().map(|it| it.expose().to_owned()),
        })
    }

    /// Records that the owner wants the agent to use `target`. The agent's files are not changed. Returns the notes of
    /// [`Settings`].
    ///
    /// # Errors
    ///
    /// Returns [`WiringError`] if the files could not be changed, or if the record cannot be written.
    pub fn accept(
        &self,
        agent: &AgentProfile,
        surroundings: &Surroundings,
        target: &Target,
    ) -> Result<Vec<String>, WiringError> {
        let plan = self.plan(agent, surroundings, target)?;
        self.write(&WireRecord::new(&agent.id, &target.origin, plan.asks))?;
        Ok(plan.notes)
    }

    /// Records that the owner wants OpenClaw to use the proxy from its next start on.
    ///
    /// # Errors
    ///
    /// Returns [`WiringError::Io`] if the record cannot be written.
    pub fn accept_found(&self, found: &Found) -> Result<(), WiringError> {
        self.write(&WireRecord::new(OPENCLAW, "", Some(found.asks())))
    }

    /// Points the agent at `target`, and records that its owner wants it. Earlier changes are reverted first. Returns the
    /// notes of [`Settings`].
    ///
    /// # Errors
    ///
    /// Returns [`WiringError`]. In that case the files are unchanged, or partly changed as after a crash.
    /// [`Self::unwire`] restores them.
    pub fn wire(
        &self,
        agent: &AgentProfile,
        surroundings: &Surroundings,
        target: &Target,
    ) -> Result<Vec<String>, WiringError> {
        self.unwire(&agent.id)?;
        let plan = self.plan(agent, surroundings, target)?;
        fs::create_dir_all(&self.folder).map_err(io_error(&self.folder))?;
        let mut record = WireRecord::new(&agent.id, &target.origin, plan.asks);
        for (index, change) in plan.changes.iter().enumerate() {
            let copy = self.folder.join(format!("{}.{index}.before", agent.id));
            if let Some(before) = &change.before {
                files::write_private(&copy, before.as_bytes()).map_err(io_error(&copy))?;
            }
            record.files.push(FileRecord {
                path: change.settings.path.clone(),
                format: change.settings.format,
                before: change.before.as_ref().map(|it| files::hash(it.as_bytes())),
                after: files::hash(change.after.as_bytes()),
                copy,
                folders: files::missing_folders(&change.settings.path),
                done: change.done.clone(),
            });
        }
        self.write(&record)?;
        for change in &plan.changes {
            let path = &change.settings.path;
            let before = change.before.as_deref().map(str::as_bytes);
            files::exchange(path, before, change.after.as_bytes())?;
        }
        Ok(plan.notes)
    }

    /// Returns whether the agent already uses `target`, as [`Self::wire`] would set it.
    ///
    /// # Errors
    ///
    /// Fails like [`Self::standing`].
    pub fn is_wired_to(&self, agent: &str, target: &Target) -> Result<bool, WiringError> {
        let record = self.record(agent)?;
        let is_there = record.is_some_and(|it| it.origin == target.origin && it.shows(target));
        Ok(is_there && self.standing(agent)? == WireStanding::Wired)
    }

    /// Restores the agent's files. The record that its owner wants it wired stays until [`Self::forget`].
    ///
    /// # Errors
    ///
    /// Returns [`WiringError`]. In that case the record stays, and the call can be repeated.
    pub fn unwire(&self, agent: &str) -> Result<WayBack, WiringError> {
        let mut back = WayBack::default();
        let Some(mut record) = self.record(agent)? else {
            return Ok(back);
        };
        for file in record.files.iter().rev() {
            file.put_back(&mut back)?;
        }
        // This must happen before the record forgets the files.
        self.remove_unfinished(agent)?;
        let files = std::mem::take(&mut record.files);
        if !files.is_empty() {
            self.write(&record)?;
        }
        for file in files {
            // The copy is no longer needed.
            fs::remove_file(&file.copy).ok();
        }
        Ok(back)
    }

    /// Removes what processes that were killed amid a change have left beside the agent's files and its record.
    ///
    /// # Errors
    ///
    /// Returns [`WiringError::Io`] if the record or a folder cannot be read, or such a file cannot be removed.
    pub fn remove_unfinished(&self, agent: &str) -> Result<(), WiringError> {
        let files = self.record(agent)?.map_or(Vec::new(), |it| it.files);
        let files = files.into_iter().flat_map(|file| [file.path, file.copy]);
        for path in files.chain([self.record_path(agent)]) {
            files::remove_unfinished(&path).map_err(io_error(&path))?;
        }
        Ok(())
    }

    /// Removes the record. The agent's files have to be restored before ([`Self::unwire`]).
    ///
    /// # Errors
    ///
    /// Returns [`WiringError::Io`] if the record cannot be removed.
    pub fn forget(&self, agent: &str) -> Result<(), WiringError> {
        let path = self.record_path(agent);
        let removed = if_there(fs::remove_file(&path));
        removed.map(drop).map_err(io_error(&path))
    }

    fn record_path(&self, agent: &str) -> PathBuf {
        self.folder.join(format!("{agent}{RECORD}"))
    }

    fn write(&self, record: &WireRecord) -> Result<(), WiringError> {
        fs::create_dir_all(&self.folder).map_err(io_error(&self.folder))?;
        let path = self.record_path(&record.agent);
        record.write(&path).map_err(io_error(&path))
    }
}

/// Sets the keys in the text of a file. Nothing is written.
fn change(settings: FileSettings, by_hand: &str) -> Result<FileChange, WiringError> {
    let path = &settings.path;
    let refuse = |reason: String| WiringError::Layout {
        path: path.clone(),
        reason,
        by_hand: by_hand.to_owned(),
    };
    let bytes = files::read(path).map_err(io_error(path))?;
    if bytes.is_none() && path.is_symlink() {
        // Nothing could restore the link.
        return Err(refuse(
            "it is a link to a file that is not there".to_owned(),
        ));
    }
    let before = (bytes.map(String::from_utf8).transpose())
        .map_err(|_| refuse("it is no text".to_owned()))?;
    let text = before.as_deref().unwrap_or_default();
    let applied = keys::apply(settings.format, text, &settings.keys_to_set);
    let (after, done) = applied.map_err(|error| refuse(error.to_string()))?;
    Ok(FileChange {
        settings,
        before,
        after,
        done,
    })
}

// === impl WireRecord ===

impl WireRecord {
    fn shows(&self, target: &Target) -> bool {
        let Some(key) = &target.key else {
            return true;
        };
        let keys_to_set = self.files.iter().flat_map(|it| &it.done);
        let mut said = keys_to_set.map(|it| serde_json::to_string(&it.key).unwrap_or_default());
        said.any(|it| it.contains(key.expose()))
    }
}

// === impl FileRecord ===

impl FileRecord {
    fn put_back(&self, back: &mut WayBack) -> Result<(), WiringError> {
        let path = &self.path;
        let Some(now) = files::read(path).map_err(io_error(path))? else {
            if self.before.is_some() {
                back.gone.push(path.clone());
            }
            return Ok(());
        };
        let hash = files::hash(&now);
        if Some(&hash) == self.before.as_ref() {
            return Ok(());
        }
        if hash == self.after {
            match (&self.before, self.copy()?) {
                (None, _) => return self.vanish(path, &mut back.restored),
                (Some(_), Some(copy)) => {
                    files::exchange(path, Some(&now), copy.as_bytes())?;
                    back.restored.push(path.clone());
                    return Ok(());
                }
                // The copy is lost.
                (Some(_), None) => {}
            }
        }
        self.take_back(&now, back)
    }

    fn take_back(&self, now: &[u8], back: &mut WayBack) -> Result<(), WiringError> {
        let path = &self.path;
        let refuse = |reason: String| WiringError::Layout {
            path: path.clone(),
            reason,
            by_hand: format!("put it back by hand: {} is how it was", self.copy.display()),
        };
        let text = str::from_utf8(now).map_err(|_| refuse("it is no text".to_owned()))?;
        let undone =
            keys::undo(self.format, text, &self.done).map_err(|error| refuse(error.to_string()))?;
        let says = |text: &str| self.format.values(text).unwrap_or_default();
        let values = says(&undone.text);
        if self.before.is_none() && tree::is_same(&values, &serde_json::Value::Null) {
            return self.vanish(path, &mut back.taken_back);
        }
        // If nobody touched our lines, they are removed as lines, so that every other byte stays.
        let exact = self.copy()?.and_then(|before| {
            let keys_to_set: Vec<_> = self.done.iter().map(|it| it.key.clone()).collect();
            let (after, _) = keys::apply(self.format, &before, &keys_to_set).ok()?;
            rebase::without_ours(&before, &after, text)
        });
        let exact = exact.filter(|it| undone.left.is_empty() && says(it) == values);
        let new = exact.unwrap_or(undone.text);
        if new != text {
            files::exchange(path, Some(now), new.as_bytes())?;
        }
        back.taken_back.push(path.clone());
        back.left.extend(undone.left);
        Ok(())
    }

    /// Removes a file that did not exist before, and the folders that were made for it if they are empty.
    fn vanish(&self, path: &Path, told: &mut Vec<PathBuf>) -> Result<(), WiringError> {
        files::remove(path).map_err(io_error(path))?;
        for folder in self.folders.iter().rev() {
            // A folder that others use stays, because only an empty one can be removed.
            fs::remove_dir(folder).ok();
        }
        told.push(path.to_owned());
        Ok(())
    }

    /// Returns the former content of the file, if the copy has the hash of the record.
    fn copy(&self) -> Result<Option<String>, WiringError> {
        let copy = files::read(&self.copy).map_err(io_error(&self.copy))?;
        let copy = copy.filter(|it| Some(files::hash(it)) == self.before);
        Ok(copy.and_then(|it| String::from_utf8(it).ok()))
    }
}

// === impl WirePlan ===

impl WirePlan {
    /// Returns the changes as a diff in which keys are masked.
    pub fn diff(&self) -> String {
        let diffs = self.changes.iter().map(|it| {
            let before = it.before.as_deref().unwrap_or_default();
            let mut secrets = diff::secrets(it.settings.format, before);
            secrets.extend(self.key.clone());
            diff::masked(&it.settings.path, before, &it.after, &secrets)
        });
        diffs.collect()
    }
}

// === impl WayBack ===

impl WayBack {
    /// Returns whether there was nothing to restore.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

#[cfg(test)]
mod tests;
