//! Reads new lines of a file that grows and is rotated at its size limit.

use std::{
    fs::File,
    io::{self, Read as _, Seek as _, SeekFrom},
    path::Path,
};

use metaclaw_chat::if_there;

use crate::logging;

/// How far a log was read.
#[derive(Debug, Default)]
pub(super) struct Tail {
    at: u64,
    /// The beginning of an incomplete line.
    open: Vec<u8>,
}

// === impl Tail ===

impl Tail {
    /// Returns complete lines that were added since the last call. Lines from before a rotation are in the older file.
    pub(super) fn new_lines(&mut self, path: &Path) -> io::Result<Vec<String>> {
        let mut file = File::open(path)?;
        if file.metadata()?.len() < self.at {
            if let Ok(mut older) = File::open(logging::older(path)) {
                self.read_on(&mut older)?;
            }
            self.at = 0;
        }
        self.read_on(&mut file)?;
        let Some(end) = self.open.iter().rposition(|byte| *byte == b'\n') else {
            return Ok(Vec::new());
        };
        let whole: Vec<u8> = self.open.drain(..=end).collect();
        Ok(lines_of(&whole))
    }

    fn read_on(&mut self, file: &mut File) -> io::Result<()> {
        file.seek(SeekFrom::Start(self.at))?;
        self.at += file.read_to_end(&mut self.open)? as u64;
        Ok(())
    }
}

/// Returns all lines of a file, or none if there is no such file.
pub(super) fn whole(path: &Path) -> io::Result<Vec<String>> {
    let bytes = if_there(std::fs::read(path))?;
    Ok(bytes.map(|it| lines_of(&it)).unwrap_or_default())
}

fn lines_of(bytes: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes);
    text.lines().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Write as _};

    use super::*;

    #[test]
    fn nothing_is_lost_when_the_file_begins_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metaclaw.log");
        fs::write(&path, "one\ntwo\nhal").unwrap();
        let mut tail = Tail::default();
        assert_eq!(tail.new_lines(&path).unwrap(), ["one", "two"]);
        let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"f\nthree\n").unwrap();
        // This rotates the file as the log does.
        fs::copy(&path, logging::older(&path)).unwrap();
        file.set_len(0).unwrap();
        file.write_all(b"four\n").unwrap();
        assert_eq!(tail.new_lines(&path).unwrap(), ["half", "three", "four"]);
        assert_eq!(tail.new_lines(&path).unwrap(), Vec::<String>::new());
    }
}
