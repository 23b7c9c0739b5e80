//! What is brought onto a machine: a remote file whole or in part, an archive, packages by pip.
//!
//! Every file gets its name only when it is whole and checked, and what an interruption left is gone on with.

mod archive;
mod bar;
pub mod command;
mod disk;
mod notes;
pub mod pip;
mod remote;
mod spans;
mod sparse;
pub mod testing;
pub mod torch;
mod whole;

pub use self::{
    archive::{Packed, pack, unpack, unpacked_size},
    disk::{is_stamped, room_for, writing},
    sparse::SparseCopy,
    whole::{sha256_of, text, whole},
};

/// Lower-case hexadecimal, as pip writes hashes.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
