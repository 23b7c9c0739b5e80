//! Packs and unpacks archives (`.tar.gz`) of one folder. The same files always make the same archive.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};
use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use tar::{Archive, Builder, EntryType, Header};

use crate::disk::writing;

/// A file that goes into an archive.
#[derive(Debug, Clone)]
pub struct Packed {
    pub from: PathBuf,
    /// Path in the archive's folder.
    pub name: String,
    /// Whether the file is executable.
    pub is_program: bool,
}

// === impl Packed ===

impl Packed {
    /// A file that is not executable.
    pub fn file(from: PathBuf, name: impl Into<String>) -> Self {
        Self {
            from,
            name: name.into(),
            is_program: false,
        }
    }

    /// An executable file.
    pub fn program(from: PathBuf, name: impl Into<String>) -> Self {
        Self {
            is_program: true,
            ..Self::file(from, name)
        }
    }
}

/// Packs files below the folder `top` into the archive `to`. The archive contains no times and no owners, and its
/// entries are sorted by name, so the same files make the same archive.
///
/// # Errors
/// Fails if a file cannot be read, or the archive cannot be written.
pub fn pack(top: &str, files: &[Packed], to: &Path) -> Result<()> {
    let mut files: Vec<&Packed> = files.iter().collect();
    files.sort_by(|a, b| a.name.cmp(&b.name));
    let out = BufWriter::new(writing(File::create(to), to)?);
    let mut builder = Builder::new(GzEncoder::new(out, Compression::default()));
    for file in files {
        let name = format!("{top}/{}", file.name);
        append(&mut builder, file, &name).with_context(|| {
            format!("cannot pack {} into {}", file.from.display(), to.display())
        })?;
    }
    let finish = || builder.into_inner()?.finish()?.flush();
    writing(finish(), to)
}

fn append(builder: &mut Builder<impl Write>, file: &Packed, name: &str) -> io::Result<()> {
    let mut header = Header::new_gnu();
    header.set_entry_type(EntryType::Regular);
    header.set_mode(if file.is_program { 0o755 } else { 0o644 });
    let source = File::open(&file.from)?;
    header.set_size(source.metadata()?.len());
    header.set_mtime(0);
    builder.append_data(&mut header, name, BufReader::new(source))
}

/// Returns the unpacked size of an archive in bytes, modulo 4 GiB, as its last four bytes give it.
///
/// # Errors
/// Fails if the file cannot be read, or is too short to be an archive.
pub fn unpacked_size(archive: &Path) -> Result<u64> {
    let read = || {
        let mut file = File::open(archive)?;
        file.seek(SeekFrom::End(-4))?;
        let mut last = [0; 4];
        file.read_exact(&mut last)?;
        Ok::<_, io::Error>(u64::from(u32::from_le_bytes(last)))
    };
    read().map_err(|error| anyhow!("cannot read {}: {error}", archive.display()))
}

/// Unpacks an archive of one folder into the folder `into`, which replaces the archive's own folder name. Executable
/// files stay executable. Owner and times are those of the moment of unpacking.
///
/// # Errors
/// Fails if the archive is truncated or damaged, has more than one folder, links or devices, or if a name leads out of
/// its folder. Also fails if the disk is full. Everything unpacked before the failure stays in `into`.
pub fn unpack(archive: &Path, into: &Path) -> Result<()> {
    let file = File::open(archive);
    let file = file.with_context(|| format!("cannot read {}", archive.display()))?;
    let mut source = GzDecoder::new(BufReader::new(file));
    let damaged = |error: io::Error| {
        anyhow!(
            "{} is no whole .tar.gz archive: {error}; fetch it again",
            archive.display()
        )
    };
    writing(fs::create_dir_all(into), into)?;
    let mut entries = Archive::new(&mut source);
    let mut top = None;
    for entry in entries.entries().map_err(damaged)? {
        let mut entry = entry.map_err(damaged)?;
        let path = entry.path().map_err(damaged)?.into_owned();
        let below = below_top(&path, &mut top)
            .with_context(|| format!("{}: {}", archive.display(), path.display()))?;
        let to = into.join(below);
        let is_program = entry.header().mode().is_ok_and(|mode| mode & 0o111 != 0);
        match entry.header().entry_type() {
            EntryType::Directory => writing(fs::create_dir_all(&to), &to)?,
            EntryType::Regular => write_file(&mut entry, &to, is_program, &damaged)?,
            _ => bail!(
                "{}: {} is neither a file nor a folder, and nothing else is expected there",
                archive.display(),
                path.display()
            ),
        }
    }
    // The checksum comes after the last file, so the rest has to be read too.
    io::copy(&mut source, &mut io::sink()).map_err(damaged)?;
    ensure!(top.is_some(), "{} is empty", archive.display());
    Ok(())
}

/// Returns the path below the archive's one folder. The first entry gives that folder's name.
fn below_top(path: &Path, top: &mut Option<PathBuf>) -> Result<PathBuf> {
    let plain = |part: &Component<'_>| matches!(part, Component::Normal(_));
    ensure!(
        path.components().all(|part| plain(&part)),
        "leads out of the archive's folder"
    );
    let mut parts = path.components();
    let first = PathBuf::from(parts.next().context("has no name")?.as_os_str());
    let known = top.get_or_insert_with(|| first.clone());
    ensure!(
        *known == first,
        "lies beside the archive's folder {}",
        known.display()
    );
    Ok(parts.as_path().to_owned())
}

fn write_file(
    from: &mut impl Read,
    to: &Path,
    is_program: bool,
    damaged: &impl Fn(io::Error) -> anyhow::Error,
) -> Result<()> {
    use std::os::unix::fs::OpenOptionsExt as _;
    if let Some(folder) = to.parent() {
        writing(fs::create_dir_all(folder), folder)?;
    }
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    options.mode(if is_program { 0o755 } else { 0o644 });
    let mut file = writing(options.open(to), to)?;
    let mut buffer = vec![0; 256 << 10];
    loop {
        let n = from.read(&mut buffer).map_err(damaged)?;
        if n == 0 {
            break;
        }
        writing(file.write_all(&buffer[..n]), to)?;
    }
    // Some file systems report only on sync that they are full.
    writing(file.sync_all(), to)
}

#[cfg(test)]
mod tests;
