//! Reading a file that somebody else may have put there.

use std::{
    fs::{self, File},
    io::{self, Read as _},
    path::Path,
};

/// The largest file of the library that is read: beyond, it is no instruction.
pub(crate) const MAX_FILE: u64 = 256 * 1024;

/// The text of a regular file of at most `max` bytes. A pipe, which may never end or begin, or a link
/// to a device, whose length says nothing, is refused.
///
/// # Errors
///
/// In words, when it is no such file, too long, or not UTF-8.
pub fn read_text(path: &Path, max: u64) -> io::Result<String> {
    if !fs::metadata(path)?.is_file() {
        let why = "it is no regular file";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    let mut text = String::new();
    // It may grow after its length was looked at.
    File::open(path)?.take(max + 1).read_to_string(&mut text)?;
    if text.len() as u64 > max {
        let why = format!("it has more than {max} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    Ok(text)
}
