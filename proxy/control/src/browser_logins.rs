//! Signs browsers in to the page: codes that work once, and cookies.
//!
//! `metaclaw ui` asks for a code and opens a link that contains it. A browser that shows the code gets a cookie. The
//! cookie is its own end and a keyed hash of it, so nothing is stored for each browser, and a restart signs nobody out.

use std::{fs, io, path::PathBuf, sync::Mutex, time::Duration};

use metaclaw_chat::{if_there, lock, whole_ms};
use subtle::ConstantTimeEq;

use crate::home::{Home, write_private};

/// How long a code may be used.
pub const CODE_LIFETIME: Duration = Duration::from_secs(120);
/// How long a browser stays signed in.
pub const COOKIE_LIFETIME: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// Codes that may be open at once; a new one takes the place of the oldest.
const MAX_CODES: usize = 8;
const KEY_BYTES: usize = 32;

/// The codes and the key by which browsers are signed in.
#[derive(derive_more::Debug)]
#[debug("BrowserLogins({file:?})")]
pub struct BrowserLogins {
    file: PathBuf,
    key: Mutex<[u8; KEY_BYTES]>,
    codes: Mutex<Vec<OpenLoginCode>>,
}

struct OpenLoginCode {
    code: String,
    ends_ms: u64,
}

// === impl BrowserLogins ===

impl BrowserLogins {
    /// Reads the key of a home. A home without a key gets one.
    ///
    /// # Errors
    /// If the key file cannot be read or written.
    pub fn open(home: &Home) -> io::Result<Self> {
        let file = home.page_key();
        let read =
            if_there(fs::read(&file))?.and_then(|bytes| <[u8; KEY_BYTES]>::try_from(bytes).ok());
        let key = match read {
            Some(key) => key,
            None => written_key(&file)?,
        };
        Ok(Self {
            file,
            key: Mutex::new(key),
            codes: Mutex::default(),
        })
    }

    /// Returns a code that signs one browser in, once.
    pub fn new_code(&self, now_ms: u64) -> String {
        let code = format!("{:032x}", rand::random::<u128>());
        let mut codes = lock(&self.codes);
        codes.retain(|code| is_open(code.ends_ms, now_ms, CODE_LIFETIME));
        if codes.len() >= MAX_CODES {
            codes.remove(0);
        }
        codes.push(OpenLoginCode {
            code: code.clone(),
            ends_ms: now_ms.saturating_add(whole_ms(CODE_LIFETIME)),
        });
        code
    }

    /// Uses a code up. Returns the cookie's value, or `None` if the code is unknown, used or too old.
    pub fn redeem(&self, code: &str, now_ms: u64) -> Option<String> {
        let mut codes = lock(&self.codes);
        codes.retain(|code| is_open(code.ends_ms, now_ms, CODE_LIFETIME));
        let is_it = |one: &OpenLoginCode| bool::from(one.code.as_bytes().ct_eq(code.as_bytes()));
        let at = codes.iter().position(is_it)?;
        codes.remove(at);
        let ends_ms = now_ms.saturating_add(whole_ms(COOKIE_LIFETIME));
        Some(format!("{ends_ms}.{}", self.signature(ends_ms).to_hex()))
    }

    /// Returns whether a cookie's value is one of ours and has not ended.
    pub fn is_valid(&self, cookie: &str, now_ms: u64) -> bool {
        let parts = cookie.split_once('.');
        let read = parts.and_then(|(ends_ms, signature)| {
            let ends_ms: u64 = ends_ms.parse().ok()?;
            let signature = blake3::Hash::from_hex(signature).ok()?;
            // The comparison of hashes takes the same time for all.
            let is_open = is_open(ends_ms, now_ms, COOKIE_LIFETIME);
            Some(is_open && signature == self.signature(ends_ms))
        });
        read.unwrap_or(false)
    }

    /// Signs every browser out, and makes every code useless.
    ///
    /// # Errors
    /// Returns the error of writing the new key. In that case every browser stays signed in.
    pub fn end_all(&self) -> io::Result<()> {
        let key = written_key(&self.file)?;
        *lock(&self.key) = key;
        lock(&self.codes).clear();
        Ok(())
    }

    fn signature(&self, ends_ms: u64) -> blake3::Hash {
        blake3::keyed_hash(&lock(&self.key), &ends_ms.to_be_bytes())
    }
}

/// Whether something that lives for `lifetime` still does. An end that is further away was given by a clock that was ahead.
fn is_open(ends_ms: u64, now_ms: u64, lifetime: Duration) -> bool {
    (1..=whole_ms(lifetime)).contains(&ends_ms.saturating_sub(now_ms))
}

fn written_key(file: &std::path::Path) -> io::Result<[u8; KEY_BYTES]> {
    let key = rand::random::<[u8; KEY_BYTES]>();
    write_private(file, &key)?;
    Ok(key)
}

#[cfg(test)]
mod tests {
    use metaclaw_chat::now_ms;

    use super::*;

    fn logins(dir: &tempfile::TempDir) -> BrowserLogins {
        BrowserLogins::open(&Home::at(dir.path().to_owned())).unwrap()
    }

    #[test]
    fn a_code_signs_one_browser_in_and_ends() {
        let dir = tempfile::tempdir().unwrap();
        let logins = logins(&dir);
        let code = logins.new_code(1_000);
        assert_eq!(logins.redeem("another", 1_000), None);
        let cookie = logins.redeem(&code, 2_000).unwrap();
        assert_eq!(logins.redeem(&code, 2_000), None);
        assert!(logins.is_valid(&cookie, 2_000));
        let late = logins.new_code(1_000);
        assert_eq!(logins.redeem(&late, 1_000 + 120_000), None);
    }

    #[test]
    fn what_a_clock_that_was_ahead_gave_out_ends_when_it_is_set_back() {
        let dir = tempfile::tempdir().unwrap();
        let logins = logins(&dir);
        let now = now_ms();
        for ahead in [
            2 * 3_600_000,
            whole_ms(COOKIE_LIFETIME),
            40 * 365 * 86_400_000,
        ] {
            let code = logins.new_code(now + ahead);
            assert_eq!(logins.redeem(&code, now), None, "{ahead}");
            let wrong = now + ahead;
            let cookie = logins.redeem(&logins.new_code(wrong), wrong).unwrap();
            assert!(logins.is_valid(&cookie, wrong), "{ahead}");
            assert!(!logins.is_valid(&cookie, now), "{ahead}");
        }
    }

    #[test]
    fn only_the_newest_codes_are_open() {
        let dir = tempfile::tempdir().unwrap();
        let logins = logins(&dir);
        let codes: Vec<String> = (0..=MAX_CODES).map(|_| logins.new_code(1)).collect();
        assert_eq!(logins.redeem(&codes[0], 1), None);
        assert!(logins.redeem(&codes[MAX_CODES], 1).is_some());
    }

    #[test]
    fn a_cookie_survives_a_restart_and_ends_with_its_time_or_with_all_others() {
        let dir = tempfile::tempdir().unwrap();
        let before = logins(&dir);
        let now = now_ms();
        let cookie = before.redeem(&before.new_code(now), now).unwrap();
        let after = logins(&dir);
        assert!(after.is_valid(&cookie, now));
        assert!(!after.is_valid(&cookie, now + whole_ms(COOKIE_LIFETIME)));
        let (_, signature) = cookie.split_once('.').unwrap();
        let longer = format!("{}.{signature}", u64::MAX);
        for forged in [longer.as_str(), "", ".", "7", "9999999999999.77"] {
            assert!(!after.is_valid(forged, now), "{forged}");
        }
        after.end_all().unwrap();
        assert!(!after.is_valid(&cookie, now));
        assert!(!logins(&dir).is_valid(&cookie, now));
    }
}
