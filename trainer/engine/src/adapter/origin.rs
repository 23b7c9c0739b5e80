//! `metaclaw.json`: where an adapter comes from, and whether it is of the base that is served.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::base::BaseId;
use super::{AdapterError, from_json};

pub(super) const FILE: &str = "metaclaw.json";
/// What is written. 1 had another way to hash the base, so its fingerprint can be compared with none of today's.
const FORMAT: u32 = 2;

/// `metaclaw.json`.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Origin {
    format: u32,
    #[serde(flatten)]
    base: BaseId,
    pub(super) step: u64,
    /// Absent in format 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) sha256: Option<String>,
}

// === impl Origin ===

impl Origin {
    pub(super) fn new(base: &BaseId, step: u64, sha256: &str) -> Self {
        Self {
            format: FORMAT,
            base: base.clone(),
            step,
            sha256: Some(sha256.to_owned()),
        }
    }

    /// What stands in a folder, if anything does.
    pub(super) fn read(folder: &Path) -> Result<Option<Self>, AdapterError> {
        let file = folder.join(FILE);
        if !file.exists() {
            return Ok(None);
        }
        let origin: Self = from_json(&file)?;
        if (1..=FORMAT).contains(&origin.format) {
            return Ok(Some(origin));
        }
        let (field, value, allowed) = ("format", origin.format.to_string(), "1 or 2");
        Err(AdapterError::Field {
            file,
            field,
            value,
            allowed,
        })
    }

    /// Whether it is of this base; of format 1 where the name is the same, since no more is known.
    fn is_of(&self, folder: &Path, ours: &BaseId) -> bool {
        if self.base.fingerprint == ours.fingerprint {
            return true;
        }
        let is_taken_for_it = self.format < FORMAT && is_name_of(&self.base.name, ours);
        if is_taken_for_it {
            tracing::warn!(
                adapter = %folder.display(), base = ours.name,
                "an adapter of an older version: its base is known by its name alone"
            );
        }
        is_taken_for_it
    }
}

/// The last part of a base's name, whoever owns the model and in whatever case it is written.
fn is_name_of(theirs: &str, ours: &BaseId) -> bool {
    let last = |name: &str| {
        let name = name.trim_end_matches('/').rsplit('/').next();
        name.map(str::to_lowercase)
    };
    last(theirs) == last(&ours.name)
}

/// Refuses the adapter of another base: by what it says of it, else by PEFT's `base_model_name_or_path`.
pub(super) fn check_base(
    folder: &Path,
    ours: &BaseId,
    origin: Option<Origin>,
    peft_name: Option<&str>,
) -> Result<(), AdapterError> {
    let short = |id: &BaseId| {
        let digits: String = id.fingerprint.chars().take(12).collect();
        format!("{} ({digits})", id.name)
    };
    let (same, theirs) = match (origin, peft_name) {
        (Some(origin), _) => (origin.is_of(folder, ours), short(&origin.base)),
        (None, Some(name)) => (is_name_of(name, ours), name.to_owned()),
        (None, None) => (false, "an unnamed base".to_owned()),
    };
    if same {
        return Ok(());
    }
    Err(AdapterError::Base {
        folder: folder.into(),
        theirs,
        ours: short(ours),
    })
}
