//! Files whose paths a person gives.

use std::{fs::DirBuilder, io, os::unix::fs::DirBuilderExt as _, path::Path};

/// Returns the path if a regular file is there. A pipe may never begin or end, and the length of a device says nothing.
///
/// # Errors
/// If there is no file, or one of another kind.
pub fn regular(path: &Path) -> io::Result<&Path> {
    if path.metadata()?.is_file() {
        return Ok(path);
    }
    let why = "it is no regular file";
    Err(io::Error::new(io::ErrorKind::InvalidInput, why))
}

/// Returns `None` instead of the error that there is no such file or folder.
///
/// # Errors
/// Returns every other error.
pub fn if_there<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Makes a folder, and those above it, that only the owner may enter. One that is there stays as it is.
///
/// # Errors
/// If it cannot be made.
pub fn make_private(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_are_opened() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        for path in [&pipe, dir.path(), Path::new("/dev/zero")] {
            let error = regular(path).unwrap_err().to_string();
            assert_eq!(error, "it is no regular file", "{}", path.display());
        }
        let file = dir.path().join("file");
        assert!(if_there(std::fs::read(&file)).unwrap().is_none());
        assert!(if_there(std::fs::read(dir.path())).is_err());
        std::fs::write(&file, "text").unwrap();
        assert_eq!(regular(&file).unwrap(), file);
        assert_eq!(if_there(std::fs::read(&file)).unwrap().unwrap(), b"text");
    }
}
