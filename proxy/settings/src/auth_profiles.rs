//! `auth-profiles.json`: keys and tokens that `metaclaw auth` keeps, in the form of the Python original.
//!
//! The file is the original's as well: what it has beside our fields (refresh tokens, error counts) stays.

use std::{io, path::Path};

use metaclaw_chat::{Secret, if_there};
use metaclaw_skills::read_text;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use metaclaw_skills::write_private;

const MAX_FILE: u64 = 1 << 20;
/// A later time in seconds is none that anybody writes: it is in milliseconds.
const LAST_SECOND: f64 = 1e11;

/// What a profile holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    Token,
    ApiKey,
}

/// One profile, as far as it matters here.
#[derive(Debug, Clone)]
pub struct Profile {
    /// The name of the profile, as in `anthropic:manual`.
    pub id: String,
    pub provider: String,
    pub method: Method,
    pub secret: Secret,
    /// When a token ends, in Unix milliseconds.
    pub expires_ms: Option<u64>,
}

#[derive(Debug)]
pub struct Profiles {
    root: Map<String, Value>,
}

// === impl Method ===

impl Method {
    fn field(self) -> &'static str {
        match self {
            Self::Token => "access_token",
            Self::ApiKey => "api_key",
        }
    }

    /// What stands behind the colon of a profile's name.
    fn ending(self) -> &'static str {
        match self {
            Self::Token => "manual",
            Self::ApiKey => "default",
        }
    }
}

// === impl Profile ===

impl Profile {
    /// A profile that a person pasted.
    pub fn new(provider: &str, method: Method, secret: Secret) -> Self {
        Self {
            id: format!("{provider}:{}", method.ending()),
            provider: provider.to_owned(),
            method,
            secret,
            expires_ms: None,
        }
    }

    pub fn is_expired(&self, now_ms: u64) -> bool {
        self.expires_ms.is_some_and(|end| end <= now_ms)
    }

    /// None where the entry holds no secret, or lacks what every profile has.
    fn read(entry: &Value) -> Option<Self> {
        let text = |field: &str| entry[field].as_str().filter(|text| !text.is_empty());
        let method = Method::deserialize(&entry["method"]).ok()?;
        Some(Self {
            id: text("profile_id")?.to_owned(),
            provider: text("provider")?.to_owned(),
            method,
            secret: text(method.field())?.into(),
            expires_ms: entry["expires_at"].as_f64().and_then(milliseconds),
        })
    }
}

/// A time that is written in seconds or in milliseconds; 0 and less is none.
fn milliseconds(given: f64) -> Option<u64> {
    let ms = if given > LAST_SECOND {
        given
    } else {
        given * 1_000.0
    };
    // Whole milliseconds of this century fit a double exactly.
    format!("{:.0}", ms.max(0.0))
        .parse()
        .ok()
        .filter(|ms| *ms > 0)
}

// === impl Profiles ===

impl Profiles {
    /// Reads the file; one that is not there is empty.
    ///
    /// # Errors
    ///
    /// When it cannot be read, or is none of the original's form: nothing of it may be lost by writing it anew.
    pub fn load(path: &Path) -> io::Result<Self> {
        let text = if_there(read_text(path, MAX_FILE))?;
        let text = text.unwrap_or_else(|| "{}".to_owned());
        let root: Map<String, Value> = serde_json::from_str(&text)?;
        let profiles = root.get("profiles");
        if profiles.is_some_and(|list| !list.is_array()) {
            return Err(io::Error::other("\"profiles\" is no list"));
        }
        Ok(Self { root })
    }

    /// Writes it, for its owner alone.
    ///
    /// # Errors
    ///
    /// As [`write_private`].
    pub fn save(&self, path: &Path) -> io::Result<()> {
        write_private(path, &serde_json::to_vec_pretty(&self.root)?)
    }

    /// Those that hold a secret, in the order of the file.
    pub fn list(&self) -> Vec<Profile> {
        self.entries().iter().filter_map(Profile::read).collect()
    }

    /// The one to use: a token before a key, and none that has ended.
    pub fn of(&self, provider: &str, now_ms: u64) -> Option<Profile> {
        let is_usable =
            |profile: &Profile| profile.provider == provider && !profile.is_expired(now_ms);
        let usable = self.list().into_iter().filter(is_usable);
        usable.min_by_key(|profile| profile.method != Method::Token)
    }

    /// Puts a profile in, in place of one of its name, whose errors and pauses are over then.
    pub fn put(&mut self, profile: &Profile) {
        self.remove(&profile.id);
        let mut entry = json!({
            "provider": profile.provider,
            "profile_id": profile.id,
            "method": profile.method,
        });
        entry[profile.method.field()] = profile.secret.expose().into();
        self.push(entry);
    }

    fn push(&mut self, entry: Value) {
        let list = self.root.entry("profiles").or_insert_with(|| json!([]));
        if let Some(list) = list.as_array_mut() {
            list.push(entry);
        }
    }

    /// Adds a profile of another file with everything that stands there about it; one that is here already stays.
    pub fn adopt(&mut self, other: &Self, id: &str) {
        let is_it = |entry: &&Value| entry["profile_id"] == id;
        let found = other.entries().iter().find(is_it);
        let is_new = self.entries().iter().find(is_it).is_none();
        if let Some(entry) = found.filter(|_| is_new) {
            self.push(entry.clone());
        }
    }

    /// Takes a profile out; whether it was there.
    pub fn remove(&mut self, id: &str) -> bool {
        let list = self.root.get_mut("profiles").and_then(Value::as_array_mut);
        list.is_some_and(|list| {
            let n_before = list.len();
            list.retain(|entry| entry["profile_id"] != id);
            list.len() < n_before
        })
    }

    fn entries(&self) -> &[Value] {
        let list = self.root.get("profiles").and_then(Value::as_array);
        list.map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// As the original writes it.
    const FILE: &str = r#"{"version": 2, "profiles": [
        {"provider": "anthropic", "profile_id": "anthropic:default", "method": "api_key", "api_key": "sk-ant-1", "error_count": 3},
        {"provider": "anthropic", "profile_id": "anthropic:manual", "method": "token", "access_token": "sk-ant-oat01-2",
         "refresh_token": "r", "expires_at": 1700000000, "cooldown_until": 0},
        {"provider": "gemini", "profile_id": "gemini:manual", "method": "token", "access_token": ""}
    ]}"#;

    fn profiles() -> (tempfile::TempDir, std::path::PathBuf, Profiles) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("auth-profiles.json");
        std::fs::write(&path, FILE).unwrap();
        let read = Profiles::load(&path).unwrap();
        (folder, path, read)
    }

    #[test]
    fn a_token_comes_before_a_key_until_it_ends() {
        let (_folder, _, profiles) = profiles();
        let of = |now_ms| profiles.of("anthropic", now_ms).unwrap().id;
        assert_eq!(of(1_600_000_000_000), "anthropic:manual");
        assert_eq!(of(1_700_000_000_000), "anthropic:default");
        assert!(profiles.of("gemini", 0).is_none(), "it holds nothing");
        assert_eq!(milliseconds(1_700_000_000_123.0), Some(1_700_000_000_123));
        assert_eq!(milliseconds(0.0), None);
    }

    #[test]
    fn what_is_not_ours_stays_and_nobody_else_reads_it() {
        let (_folder, path, mut profiles) = profiles();
        profiles.put(&Profile::new("qwen", Method::ApiKey, "sk-q".into()));
        assert!(profiles.remove("anthropic:default"));
        assert!(!profiles.remove("anthropic:default"));
        profiles.save(&path).unwrap();
        let written: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!(written["version"], 2);
        assert_eq!(written["profiles"][0]["refresh_token"], "r");
        assert_eq!(written["profiles"][2]["api_key"], "sk-q");
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let ids: Vec<String> = Profiles::load(&path)
            .unwrap()
            .list()
            .into_iter()
            .map(|it| it.id)
            .collect();
        assert_eq!(ids, ["anthropic:manual", "qwen:default"]);
    }

    #[test]
    fn what_is_of_no_form_is_not_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("auth-profiles.json");
        assert!(Profiles::load(&path).unwrap().list().is_empty());
        for text in ["[]", "{\"profiles\": {}}", "{"] {
            std::fs::write(&path, text).unwrap();
            assert!(Profiles::load(&path).is_err(), "{text}");
        }
    }
}
