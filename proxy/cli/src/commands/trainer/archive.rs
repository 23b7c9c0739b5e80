//! Finds the training server's archive and its expected checksum.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail, ensure};
use metaclaw_fetch::{sha256_of, text, whole};
use metaclaw_settings::address::is_here;

const SUMS: &str = "SHA256SUMS";
const SUMS_BYTES: u64 = 64 << 10;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ArchivePlace {
    File(PathBuf),
    /// An address with `https:`, or with `http:` on this machine or together with a given checksum.
    Url(String),
}

#[derive(Debug)]
pub(super) struct Checked {
    pub(super) path: PathBuf,
    /// The path of a downloaded archive; an owner's own file is not deleted.
    pub(super) is_fetched: bool,
    /// The source of the checksum, or `None` if there was none.
    pub(super) against: Option<String>,
}

// === impl ArchivePlace ===

impl ArchivePlace {
    /// Reads the argument or the setting, in which `{version}` is this program's version.
    pub(super) fn parse(text: &str) -> Self {
        let text = text.replace("{version}", env!("CARGO_PKG_VERSION"));
        if text.starts_with("https://") || text.starts_with("http://") {
            Self::Url(text)
        } else {
            Self::File(PathBuf::from(text.strip_prefix("file://").unwrap_or(&text)))
        }
    }

    /// Downloads the archive into the folder `cache` if it is elsewhere, and checks it against the given checksum, else
    /// against the list next to it.
    ///
    /// # Errors
    /// Returns a message: no such file, no connection, no space, no checksum, or a different one.
    pub(super) fn checked(&self, given: Option<&str>, cache: &Path) -> anyhow::Result<Checked> {
        let given = given.map(|given| sum(given).with_context(|| format!("--sha256 {given}")));
        let given = given.transpose()?;
        match self {
            Self::File(path) => of_file(path, given),
            Self::Url(url) => fetched(url, given, cache),
        }
    }
}

fn of_file(path: &Path, given: Option<String>) -> anyhow::Result<Checked> {
    ensure!(
        path.is_file(),
        "there is no file {}: give the archive of the training server, metaclaw-trainer-{}-x86_64-linux.tar.gz",
        path.display(),
        env!("CARGO_PKG_VERSION")
    );
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let list = path.with_file_name(SUMS);
    let expected = match given {
        Some(sum) => Some((sum, "--sha256".to_owned())),
        None if list.is_file() => {
            let shown = list.display().to_string();
            let text = fs::read_to_string(&list).with_context(|| format!("cannot read {shown}"))?;
            Some((listed(&text, &name).context(shown.clone())?, shown))
        }
        None => None,
    };
    if let Some((expected, against)) = &expected {
        let found = sha256_of(path).with_context(|| format!("cannot read {}", path.display()))?;
        ensure!(
            found == *expected,
            "{} has sha256 {found}, and {against} says {expected}: fetch it again; nothing was installed",
            path.display()
        );
    }
    Ok(Checked {
        path: path.to_owned(),
        is_fetched: false,
        against: expected.map(|(_, against)| against),
    })
}

fn fetched(url: &str, given: Option<String>, cache: &Path) -> anyhow::Result<Checked> {
    let plain = url.split(['?', '#']).next().unwrap_or(url);
    let (folder, name) = plain.rsplit_once('/').unwrap_or_default();
    ensure!(
        !name.is_empty() && name.ends_with(".tar.gz"),
        "{url} names no archive: its path ends with .tar.gz"
    );
    let is_safe = url.starts_with("https://") || is_here(url);
    let (sum, against) = match given {
        Some(sum) => (sum, "--sha256".to_owned()),
        None if !is_safe => bail!(
            "{url}: what comes by http can be changed on its way, its checksum with it: take https, or give --sha256"
        ),
        None => {
            let list = format!("{folder}/{SUMS}");
            let read = text(&list, SUMS_BYTES).with_context(|| {
                format!("an archive needs its checksum: put {SUMS} beside it, or give --sha256")
            })?;
            let read = read.with_context(|| format!("{list} is longer than {SUMS_BYTES} bytes"))?;
            (listed(&read, name).context(list.clone())?, list)
        }
    };
    let path = cache.join("partial").join(name);
    whole(url, &sum, &path, "metaclaw-trainer")?;
    Ok(Checked {
        path,
        is_fetched: true,
        against: Some(against),
    })
}

/// Returns the checksum of a file from a list in the format of `sha256sum`.
fn listed(list: &str, name: &str) -> anyhow::Result<String> {
    let mut lines = list.lines().filter_map(|line| {
        let (sum, of) = line.split_once([' ', '\t'])?;
        let of = of.trim_start_matches([' ', '\t', '*']);
        (of == name).then_some(sum)
    });
    let found = lines
        .next()
        .with_context(|| format!("it has no line for {name}"))?;
    sum(found)
}

fn sum(text: &str) -> anyhow::Result<String> {
    let is_sum = text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit());
    ensure!(is_sum, "{text:?} is no SHA-256: 64 hexadecimal digits");
    Ok(text.to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_an_address_or_a_file_and_may_name_the_version() {
        let url = ArchivePlace::parse("https://a.example/metaclaw-trainer-{version}.tar.gz");
        let version = env!("CARGO_PKG_VERSION");
        let expected = format!("https://a.example/metaclaw-trainer-{version}.tar.gz");
        assert_eq!(url, ArchivePlace::Url(expected));
        for text in ["/a/b.tar.gz", "file:///a/b.tar.gz"] {
            assert_eq!(
                ArchivePlace::parse(text),
                ArchivePlace::File(PathBuf::from("/a/b.tar.gz"))
            );
        }
    }

    #[test]
    fn a_checksum_is_found_by_the_whole_name() {
        let (a, b) = ("a".repeat(64), "B".repeat(64));
        let list = format!("{a}  x-1.tar.gz.old\n{b} *x-1.tar.gz\nshort  y.tar.gz\n");
        assert_eq!(listed(&list, "x-1.tar.gz").unwrap(), b.to_lowercase());
        let error = listed(&list, "z.tar.gz").unwrap_err().to_string();
        assert!(error.contains("no line for z.tar.gz"), "{error}");
        let error = listed(&list, "y.tar.gz").unwrap_err().to_string();
        assert!(error.contains("no SHA-256"), "{error}");
    }

    #[test]
    fn what_comes_by_http_from_elsewhere_needs_a_checksum_of_its_own() {
        let place = ArchivePlace::parse("http://a.example/x.tar.gz");
        let error = place.checked(None, Path::new("/nowhere")).unwrap_err();
        assert!(error.to_string().contains("give --sha256"), "{error}");
        let place = ArchivePlace::parse("https://a.example/archive");
        let error = place.checked(None, Path::new("/nowhere")).unwrap_err();
        assert!(error.to_string().contains("ends with .tar.gz"), "{error}");
    }
}
