//! SHA-256 of files and tensors in hexadecimal digits.

use std::io::{self, Read};

use sha2::{Digest, Sha256};

pub(crate) fn hash_all(mut input: impl Read, hash: &mut Sha256) -> io::Result<()> {
    let mut buffer = vec![0; 1 << 18];
    loop {
        match input.read(&mut buffer)? {
            0 => return Ok(()),
            n => hash.update(&buffer[..n]),
        }
    }
}

pub(crate) fn hex(hash: Sha256) -> String {
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or('0');
    let digits = |byte: &u8| [digit(byte >> 4), digit(byte & 15)];
    hash.finalize().iter().flat_map(digits).collect()
}
