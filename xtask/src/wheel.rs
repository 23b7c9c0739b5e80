//! Taking members out of a wheel (a zip with a RECORD of hashes) without taking the wheel.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::ops::Range;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use metaclaw_fetch::pip::Wheel;
use metaclaw_fetch::{SparseCopy, writing};
use sha2::{Digest, Sha256};
use zip::ZipArchive;

use crate::places::Places;
use crate::report::Stage;

#[derive(Debug, Clone, PartialEq, Eq)]
struct RecordEntry {
    /// `None` for RECORD itself alone.
    sha256: Option<String>,
    size: Option<u64>,
}

/// Fetches those members of `wheel` for which `place` names a path, each checked against its hash in RECORD before
/// it gets its name. Those already there in their right size are left alone, because only a checked file ever gets
/// its name. Returns the paths.
///
/// RECORD itself is trusted as far as the connection is: by TLS. Where the whole wheel is taken its hash is checked too.
pub(crate) fn take(
    places: &Places,
    wheel: &Wheel,
    stage: &mut Stage,
    place: impl Fn(&str) -> Option<PathBuf>,
) -> Result<Vec<PathBuf>> {
    let partial = places.partial();
    writing(fs::create_dir_all(&partial), &partial)?;
    let copy = SparseCopy::open(&wheel.url, &wheel.sha256, &partial.join(wheel.file_name()))?;
    let mut archive = open(copy, wheel)?;
    let record = read_record(&mut archive, wheel)?;
    let members = wanted(&archive, &place)?;
    let is_missing = |member: &&WheelMember| !is_there(&member.to, record.get(&member.name));
    let missing: Vec<&WheelMember> = members.iter().filter(is_missing).collect();

    let mut copy = archive.into_inner();
    let ranges: Vec<_> = missing.iter().map(|member| member.bytes.clone()).collect();
    copy.fetch(&ranges, &wheel.requirement)?;
    copy.check_if_whole()?;
    let mut archive = open(copy, wheel)?;
    for member in missing {
        if let Err(error) = extract(&mut archive, member, record.get(&member.name)) {
            // The bytes cannot be trusted: forget them all, or the next run would meet the same.
            let copy = archive.into_inner();
            copy.remove();
            let (name, requirement, copy) =
                (&member.name, &wheel.requirement, copy.path().display());
            return Err(error.context(format!(
                "{name} of {requirement} (its copy {copy} was removed; run this again to fetch it anew)"
            )));
        }
    }
    let copy = archive.into_inner();
    copy.remove();
    stage.bytes += copy.fetched();
    Ok(members.into_iter().map(|member| member.to).collect())
}

fn open(copy: SparseCopy, wheel: &Wheel) -> Result<ZipArchive<SparseCopy>> {
    let (requirement, url) = (&wheel.requirement, &wheel.url);
    ZipArchive::new(copy)
        .with_context(|| format!("cannot read the wheel of {requirement} at {url}"))
}

#[derive(Debug)]
struct WheelMember {
    index: usize,
    name: String,
    to: PathBuf,
    bytes: Range<u64>,
}

fn wanted(
    archive: &ZipArchive<SparseCopy>,
    place: impl Fn(&str) -> Option<PathBuf>,
) -> Result<Vec<WheelMember>> {
    let mut members = Vec::new();
    let mut starts = vec![archive.central_directory_start()];
    for index in 0..archive.len() {
        let entry = archive.by_index_data(index)?;
        starts.push(entry.header_start());
        let name: Cow<'_, str> = entry.name()?;
        let mut parts = Path::new(name.as_ref()).components();
        let is_plain = parts.all(|part| matches!(part, Component::Normal(_)));
        if !entry.is_file() || !is_plain {
            continue;
        }
        if let Some(to) = place(&name) {
            let (name, start) = (name.into_owned(), entry.header_start());
            members.push(WheelMember {
                index,
                name,
                to,
                bytes: start..start,
            });
        }
    }
    // Only a local header gives its own length, so a member ends where the next one begins.
    starts.sort_unstable();
    for member in &mut members {
        let next = starts.partition_point(|start| *start <= member.bytes.start);
        let end = starts.get(next).copied();
        let outside = || format!("{} lies outside the archive", member.name);
        member.bytes.end = end.with_context(outside)?;
    }
    Ok(members)
}

fn is_there(path: &Path, listed: Option<&RecordEntry>) -> bool {
    let size = listed.and_then(|listed| listed.size);
    fs::metadata(path).is_ok_and(|meta| meta.is_file() && Some(meta.len()) == size)
}

/// Unpacks under another name, checks, and then renames.
fn extract(
    archive: &mut ZipArchive<SparseCopy>,
    member: &WheelMember,
    listed: Option<&RecordEntry>,
) -> Result<()> {
    let listed = listed.context("is not in the wheel's RECORD")?;
    if let Some(folder) = member.to.parent() {
        writing(fs::create_dir_all(folder), folder)?;
    }
    let mut unpacked = member.to.clone().into_os_string();
    unpacked.push(".new");
    let unpacked = PathBuf::from(unpacked);
    let mut source = archive.by_index(member.index)?;
    let result = copy_checked(&mut source, &unpacked, listed);
    if result.is_err() {
        let _ = fs::remove_file(&unpacked);
    }
    result?;
    writing(fs::rename(&unpacked, &member.to), &member.to)
}

fn copy_checked(source: &mut impl Read, to: &Path, listed: &RecordEntry) -> Result<()> {
    let mut file = writing(File::create(to), to)?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 256 << 10];
    loop {
        let n = source.read(&mut buffer).context("cannot be unpacked")?;
        if n == 0 {
            break;
        }
        hasher.update(&buffer[..n]);
        writing(file.write_all(&buffer[..n]), to)?;
    }
    let found = URL_SAFE_NO_PAD.encode(hasher.finalize());
    if let Some(sha256) = listed.sha256.as_ref().filter(|sha256| **sha256 != found) {
        bail!("has sha256 {found}, its RECORD says {sha256}");
    }
    Ok(())
}

fn read_record(
    archive: &mut ZipArchive<SparseCopy>,
    wheel: &Wheel,
) -> Result<HashMap<String, RecordEntry>> {
    let is_record =
        |name: &&str| name.ends_with(".dist-info/RECORD") && name.matches('/').count() == 1;
    let names: Vec<String> = archive
        .file_names()
        .map(|name| Ok(name?.to_string()))
        .collect::<Result<_>>()?;
    let found = names.iter().map(String::as_str).find(is_record);
    let name = found.with_context(|| {
        let requirement = &wheel.requirement;
        format!("the wheel of {requirement} has no RECORD, so nothing in it can be checked")
    })?;
    let text = std::io::read_to_string(archive.by_name(name)?);
    parse_record(&text.context("cannot read RECORD")?)
}

/// `path,sha256=<base64url without padding>,<size>`; the path is quoted if it holds a comma
/// (<https://packaging.python.org/en/latest/specifications/recording-installed-packages/>).
fn parse_record(text: &str) -> Result<HashMap<String, RecordEntry>> {
    let mut record = HashMap::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        let mut fields = line.rsplitn(3, ',');
        let (Some(size), Some(hash), Some(path)) = (fields.next(), fields.next(), fields.next())
        else {
            bail!("RECORD has a line without three fields: {line}");
        };
        let path = path.trim_matches('"').replace("\"\"", "\"");
        let sha256 = hash.strip_prefix("sha256=").map(str::to_owned);
        if sha256.is_none() && !path.ends_with(".dist-info/RECORD") {
            bail!("RECORD gives no sha256 for {path}");
        }
        let size = size.parse().ok();
        record.insert(path, RecordEntry { sha256, size });
    }
    Ok(record)
}

#[cfg(test)]
mod tests;
