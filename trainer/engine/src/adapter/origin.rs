//! `metaclaw.json`: where an adapter comes from, and whether it is of the base that is served.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::base::BaseId;
use super::error::AdapterError;
use super::json::from_json;

pub(super) const FILE: &str = "metaclaw.json";
/// The format that is written. Format 1 hashed the base in another way, so its fingerprints cannot be compared.
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

    /// Whether the adapter was trained on this base. A record of format 1 is compared by the base's name only.
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

/// Compares the last part of a base's name. Owner and case do not count.
fn is_name_of(theirs: &str, ours: &BaseId) -> bool {
    let last = |name: &str| {
        let name = name.trim_end_matches('/').rsplit('/').next();
        name.map(str::to_lowercase)
    };
    last(theirs) == last(&ours.name)
}

/// Refuses an adapter of another base: by our own record, or without one by PEFT's `base_model_name_or_path`.
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
