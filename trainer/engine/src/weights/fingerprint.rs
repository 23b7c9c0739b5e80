//! Which base this is, by content: adapters remember it, and are refused on another.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use sha2::{Digest, Sha256};

use super::LoadError;

/// Bytes looked at in each place of a weight file.
const SAMPLE: u64 = 1 << 16;
/// Places looked at, spread evenly; the whole of a large model would take seconds at each start.
const PLACES: u64 = 64;

/// A hash of `config.json` and of the weight files: their names and lengths, heads and samples of
/// their numbers. Another model, another conversion or another fine-tune has another one.
///
/// # Errors
/// When a file cannot be read.
pub fn fingerprint(dir: &Path) -> Result<String, LoadError> {
    let mut hash = Sha256::new();
    let mut add = |file: &Path| {
        sample(file, &mut hash).map_err(|source| LoadError::Read {
            file: file.to_owned(),
            source,
        })
    };
    add(&dir.join("config.json"))?;
    for file in super::index::files(dir)? {
        add(&file)?;
    }
    Ok(hex(hash))
}

/// Feeds all that a reader holds.
pub(super) fn hash_all(mut input: impl Read, hash: &mut Sha256) -> io::Result<()> {
    let mut buffer = vec![0; 1 << 18];
    loop {
        match input.read(&mut buffer)? {
            0 => return Ok(()),
            n => hash.update(&buffer[..n]),
        }
    }
}

/// Lower-case hexadecimal digits.
pub(super) fn hex(hash: Sha256) -> String {
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or('0');
    let digits = |byte: &u8| [digit(byte >> 4), digit(byte & 15)];
    hash.finalize().iter().flat_map(digits).collect()
}

fn sample(path: &Path, hash: &mut Sha256) -> io::Result<()> {
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    let name = path.file_name().unwrap_or_default();
    hash.update(name.as_encoded_bytes());
    hash.update(size.to_le_bytes());
    if size <= SAMPLE * PLACES {
        return hash_all(file, hash);
    }
    for place in 0..PLACES {
        file.seek(SeekFrom::Start((size - SAMPLE) / (PLACES - 1) * place))?;
        hash_all((&mut file).take(SAMPLE), hash)?;
    }
    Ok(())
}
