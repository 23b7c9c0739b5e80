//! Downloads: a remote file in whole or in part, an archive, packages by pip.
//!
//! A file gets its name only when it is complete and checked. An interrupted download is continued.

mod archive;
pub mod command;
mod disk;
mod hash;
pub mod pip;
mod remote;
mod sparse;
#[cfg(test)]
mod testing;
pub mod torch;
mod whole;

pub use self::{
    archive::{Packed, pack, unpack, unpacked_size},
    disk::{is_stamped, room_for, writing},
    hash::{hex, sha256_of},
    sparse::SparseCopy,
    whole::{text, whole},
};
