//! Files as tensors without a copy.
//!
//! A map is never unmapped. A [`Tensor`] carries no lifetime, so nothing could stop one from
//! outliving an unmapped file; a process serves one base model, and unused pages go back to the
//! system by themselves, so keeping the map costs address space only.
#![expect(
    unsafe_code,
    reason = "mapping a file and viewing it as a tensor cross the FFI"
)]

use std::fs::File;
use std::path::Path;

use memmap2::{Advice, Mmap};
use tch::{Device, Kind, TchError, Tensor};

/// Maps a file for the rest of the process.
pub(super) fn map(file: &Path) -> std::io::Result<&'static [u8]> {
    let opened = File::open(file)?;
    // SAFETY: the mapped bytes must not change while they are borrowed. Model files are written
    // under another name and renamed into place, never in place, by us and by every downloader we
    // know of; who rewrites one under a running process breaks that process and nothing else.
    let map = unsafe { Mmap::map(&opened) }?;
    // A hint alone: without it the first prompt pays for the reading.
    let _ = map.advise(Advice::WillNeed);
    Ok(Box::leak(Box::new(map)))
}

/// Views `bytes` as a tensor. It is read-only memory: only operations that make a new tensor are allowed on it.
///
/// `bytes` must be as long as `shape` and `kind` say and aligned to the element, else `None`.
pub(super) fn view(
    bytes: &'static [u8],
    shape: &[i64],
    kind: Kind,
) -> Option<Result<Tensor, TchError>> {
    let size = kind.elt_size_in_bytes();
    let n_bytes = shape
        .iter()
        .try_fold(size, |n, &side| n.checked_mul(usize::try_from(side).ok()?))?;
    if n_bytes != bytes.len() || !(bytes.as_ptr() as usize).is_multiple_of(size) {
        return None;
    }
    // SAFETY: the pointer is valid and aligned for `n_bytes`, checked above, and for the rest of the
    // process, since the slice is 'static; empty strides mean contiguous. No code of this crate
    // applies an in-place operation to a base weight (`layer.rs` states it).
    Some(unsafe { Tensor::f_from_blob(bytes.as_ptr(), shape, &[], kind, Device::Cpu) })
}
