//! Bytes as they lie in a value: a version, the length, and zstd.

use std::{cell::RefCell, io};

use zstd::{
    bulk::{Compressor, Decompressor},
    zstd_safe::compress_bound,
};

/// Version of the envelope: the first byte of every packed value.
const VERSION: u8 = 1;
/// zstd's level. Records are small: its default, 3, takes half as long again and gains nothing that is
/// seen on disk.
const LEVEL: i32 = 1;
/// What a typical record looks like, for zstd to point into. Part of the format: a change of one
/// byte makes old logs unreadable, so a better one needs a new [`VERSION`].
const DICTIONARY: &[u8] = include_bytes!("codec/dictionary-1.txt");
/// The largest value that is packed; what claims to be larger is damaged.
pub(crate) const MAX_VALUE: usize = 128 << 20;

/// Packs and unpacks values, keeping zstd's tables between calls. One thread's.
pub(crate) struct Codec {
    compressor: RefCell<Compressor<'static>>,
    decompressor: RefCell<Decompressor<'static>>,
}

// === impl Codec ===

impl Codec {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            compressor: RefCell::new(Compressor::with_dictionary(LEVEL, DICTIONARY)?),
            decompressor: RefCell::new(Decompressor::with_dictionary(DICTIONARY)?),
        })
    }

    /// Appends version, length as u32 big-endian, zstd frame.
    pub(crate) fn pack(&self, bytes: &[u8], to: &mut Vec<u8>) -> Result<(), String> {
        let too_large = || format!("{} bytes are more than {MAX_VALUE}", bytes.len());
        if bytes.len() > MAX_VALUE {
            return Err(too_large());
        }
        let length = u32::try_from(bytes.len()).map_err(|_| too_large())?;
        to.reserve(5 + compress_bound(bytes.len()));
        to.push(VERSION);
        to.extend(length.to_be_bytes());
        let at = to.len();
        to.resize(at + compress_bound(bytes.len()), 0);
        let mut compressor = self.compressor.borrow_mut();
        let frame = compressor.compress_to_buffer(bytes, &mut to[at..]);
        to.truncate(at + frame.map_err(|error| error.to_string())?);
        Ok(())
    }

    /// What was packed, or why it cannot be had.
    pub(crate) fn unpack(&self, packed: &[u8]) -> Result<Vec<u8>, String> {
        let Some((&[version, ref length @ ..], frame)) = packed.split_first_chunk::<5>() else {
            return Err(format!("{} bytes are too short for a value", packed.len()));
        };
        if version != VERSION {
            return Err(format!("version {version}; this program reads {VERSION}"));
        }
        let length = u32::from_be_bytes(*length) as usize;
        if length > MAX_VALUE {
            return Err(format!("it claims {length} bytes, over {MAX_VALUE}"));
        }
        let bytes = self.decompressor.borrow_mut().decompress(frame, length);
        let bytes = bytes.map_err(|error| error.to_string())?;
        if bytes.len() != length {
            return Err(format!("{} bytes where {length} were packed", bytes.len()));
        }
        Ok(bytes)
    }
}

impl std::fmt::Debug for Codec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Codec").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_comes_out_again() {
        let codec = Codec::new().unwrap();
        let long = vec![7u8; 100_000];
        for bytes in [&b""[..], b"{\"a\":1}", &long] {
            let mut packed = Vec::new();
            codec.pack(bytes, &mut packed).unwrap();
            assert_eq!(codec.unpack(&packed).unwrap(), bytes);
        }
    }

    #[test]
    fn damage_is_said_and_never_a_panic() {
        let codec = Codec::new().unwrap();
        let mut packed = Vec::new();
        let text = b"some text that is long enough";
        codec.pack(text, &mut packed).unwrap();
        for cut in 0..packed.len() {
            assert!(codec.unpack(&packed[..cut]).is_err(), "cut at {cut}");
        }
        let mut other = packed.clone();
        other[0] = 9;
        assert!(codec.unpack(&other).unwrap_err().contains("version 9"));
        let mut bomb = packed;
        bomb[1..5].copy_from_slice(&u32::MAX.to_be_bytes());
        assert!(codec.unpack(&bomb).unwrap_err().contains("claims"));
    }
}
