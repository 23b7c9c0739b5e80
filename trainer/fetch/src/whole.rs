//! Downloads complete files.

use std::{fs, io::Read as _, path::Path};

use anyhow::{Context, Result};

use crate::disk::{room_for, writing};
use crate::remote::{Answer, RemoteFile};
use crate::sparse::SparseCopy;

/// Downloads the file at `url` to `path`, and checks it. An interrupted download is continued. Progress is shown under
/// the name `what`.
///
/// # Errors
/// Fails if there is no room on the disk or no connection. If the SHA-256 (hexadecimal) differs from `sha256`, the file
/// is removed and the call fails.
pub fn whole(url: &str, sha256: &str, path: &Path, what: &str) -> Result<()> {
    if let Some(folder) = path.parent() {
        writing(fs::create_dir_all(folder), folder)?;
    }
    let mut copy = SparseCopy::open(url, sha256, path)?;
    let folder = path.parent().unwrap_or(path);
    room_for(what, copy.missing_bytes(), folder)?;
    let all = 0..copy.length();
    copy.fetch(std::slice::from_ref(&all), what)?;
    copy.check_if_whole()?;
    copy.finish();
    Ok(())
}

/// Downloads a short text. Returns `None` if it is longer than `max_bytes`.
///
/// # Errors
/// Fails if there is no connection, no such text, or if it is not UTF-8.
pub fn text(url: &str, max_bytes: u64) -> Result<Option<String>> {
    let answer = RemoteFile::new(url)?.get(0..max_bytes + 1);
    let body = match answer.map_err(|failed| failed.error)? {
        Answer::Part { body, .. } | Answer::Whole { body, .. } => body,
    };
    let mut bytes = Vec::new();
    let read = body.take(max_bytes + 1).read_to_end(&mut bytes);
    read.with_context(|| format!("cannot read {url}"))?;
    if bytes.len() as u64 > max_bytes {
        return Ok(None);
    }
    let text = String::from_utf8(bytes).with_context(|| format!("{url} is no text"))?;
    Ok(Some(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Manners, TestServer};

    #[test]
    fn a_file_comes_whole_and_checked_and_its_list_of_parts_goes() {
        let body = vec![7; 600_000];
        let cut = Manners {
            cuts: 2,
            cut_after: 270_000,
            ..Manners::default()
        };
        let server = TestServer::start(body.clone(), cut);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("below/a.tar.gz");
        whole(&server.url, &server.sha256, &path, "a file").unwrap();
        assert_eq!(fs::read(&path).unwrap(), body);
        assert!(!folder.path().join("below/a.tar.gz.have").exists());
        let asked = server.requests().len();
        assert!(asked > 2, "it went on where it was cut: {asked}");
    }

    #[test]
    fn another_file_than_the_one_of_the_hash_is_removed() {
        let server = TestServer::start(vec![7; 1_000], Manners::default());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.tar.gz");
        let wrong = "0".repeat(64);
        let error = whole(&server.url, &wrong, &path, "a file").unwrap_err();
        let error = format!("{error:#}");
        assert!(
            error.contains(&server.sha256) && error.contains(&wrong),
            "{error}"
        );
        assert!(!path.exists());
    }

    #[test]
    fn a_short_text_is_read_and_a_long_one_is_not() {
        let server = TestServer::start(b"abc  x.tar.gz\n".to_vec(), Manners::default());
        let read = |max| text(&server.url, max).unwrap();
        assert_eq!(read(100).as_deref(), Some("abc  x.tar.gz\n"));
        assert_eq!(read(5), None);
        let gone = Manners {
            status: Some(404),
            ..Manners::default()
        };
        let server = TestServer::start(b"gone".to_vec(), gone);
        let error = format!("{:#}", text(&server.url, 100).unwrap_err());
        assert!(
            error.contains(&server.url) && error.contains("404"),
            "{error}"
        );
    }
}
