//! Checks that the disk can read the parts of the log that sled is about to read.
//!
//! sled treats an unreadable place as the end of the log, and overwrites everything after it. Therefore the same parts
//! are read here first: the head of each segment, and the segments that its snapshot does not cover.

use std::{fs::File, io, os::unix::fs::FileExt, path::Path};

use metaclaw_chat::if_there;

const SEGMENT: u64 = 512 << 10;
/// Bytes of its head: a checksum, its sequence number, and the position up to which everything was written at that
/// time.
const HEAD: usize = 20;

/// Reads what sled will read, if the snapshot covers everything up to `from`. Returns the end of the last segment in
/// writing order. No snapshot of this log can extend beyond it.
pub(super) fn check(db: &Path, from: u64) -> io::Result<u64> {
    let file = if_there(File::open(db))?;
    file.map_or(Ok(0), |file| read(&file, file.metadata()?.len(), from))
}

fn read(file: &impl FileExt, n_bytes: u64, from: u64) -> io::Result<u64> {
    let (first, mut end) = (from / SEGMENT * SEGMENT, 0);
    let mut segment = vec![0; usize::try_from(SEGMENT).unwrap_or(usize::MAX)];
    for at in (0..n_bytes).step_by(segment.len()) {
        let mut head = [0; HEAD];
        // The segment at the end of the file is read up to that end.
        read_up_to(file, &mut head, at)?;
        let lsn = lsn(&head);
        if lsn >= first {
            read_up_to(file, &mut segment, at)?;
        }
        if is_whole(&head) {
            end = end.max(lsn.saturating_add(SEGMENT));
        }
    }
    Ok(end)
}

/// Returns whether a head has a valid checksum. A free segment has none.
fn is_whole(head: &[u8; HEAD]) -> bool {
    let sum = crc32fast::hash(&head[4..]) ^ u32::MAX;
    head.starts_with(&sum.to_le_bytes())
}

fn lsn(head: &[u8; HEAD]) -> u64 {
    let mut lsn = [0; 8];
    lsn.copy_from_slice(&head[4..12]);
    u64::from_le_bytes(lsn) ^ i64::MAX.cast_unsigned()
}

fn read_up_to(file: &impl FileExt, mut into: &mut [u8], mut at: u64) -> io::Result<()> {
    while !into.is_empty() {
        match file.read_at(into, at) {
            Ok(0) => break,
            Ok(n) => {
                into = &mut into[n..];
                at += n as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Bad {
        bytes: Vec<u8>,
        at: u64,
    }

    impl FileExt for Bad {
        fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize> {
            let from = usize::try_from(at).unwrap();
            let n = into.len().min(self.bytes.len().saturating_sub(from));
            if (at..at + n as u64).contains(&self.at) {
                return Err(rustix::io::Errno::IO.into());
            }
            into[..n].copy_from_slice(&self.bytes[from..from + n]);
            Ok(n)
        }

        fn write_at(&self, _: &[u8], _: u64) -> io::Result<usize> {
            Err(io::ErrorKind::Unsupported.into())
        }
    }

    #[test]
    fn a_place_that_does_not_read_is_told_where_sled_would_read_it() {
        // Two and a half segments, in the order in which they are in the file.
        let mut bytes = Vec::new();
        for n in 0..3 {
            let lsn = (n * SEGMENT) ^ i64::MAX.cast_unsigned();
            let mut segment = vec![0; usize::try_from(SEGMENT).unwrap()];
            segment[4..12].copy_from_slice(&lsn.to_le_bytes());
            bytes.extend(segment);
        }
        bytes.truncate(usize::try_from(SEGMENT * 5 / 2).unwrap());
        let length = bytes.len() as u64;
        let is_read = |at: u64, from: u64| {
            let bytes = bytes.clone();
            read(&Bad { bytes, at }, length, from).is_err()
        };
        assert!(is_read(1_000, 0) && is_read(SEGMENT + 1_000, SEGMENT + 5));
        assert!(is_read(3, 2 * SEGMENT), "every head is read");
        assert!(!is_read(1_000, SEGMENT), "the snapshot knows what is there");
        assert!(!is_read(length + 1, 0));
    }
}
