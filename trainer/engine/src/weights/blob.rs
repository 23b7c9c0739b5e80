//! Maps files as tensors without a copy.
//!
//! A map is never unmapped. A [`Tensor`] has no lifetime, so it could outlive an unmapped file. A process serves one
//! base model, and unused pages are returned to the system anyway, so keeping the map only costs address space.
#![expect(
    unsafe_code,
    reason = "mapping a file and viewing it as a tensor cross the FFI"
)]

use std::fs::File;
use std::path::Path;

use memmap2::{Advice, Mmap};
use metaclaw_trainer_text::regular;
use tch::{Device, Kind, Tensor};

use crate::torch::Result;

/// Maps a file for the rest of the process.
pub(super) fn map(file: &Path) -> std::io::Result<&'static [u8]> {
    let opened = regular(file).and_then(File::open)?;
    // SAFETY: the mapped bytes must not change while they are borrowed. Model files are written under another name and
    // renamed, never changed in place, by us and by every downloader that we know. Somebody who rewrites one under a
    // running process breaks only that process.
    let map = unsafe { Mmap::map(&opened) }?;
    // This is only a hint. Without it the first prompt waits for the reading.
    let _ = map.advise(Advice::WillNeed);
    Ok(Box::leak(Box::new(map)))
}

/// Views `bytes` as a tensor. It is read-only memory, so only operations that make a new tensor are allowed on it.
///
/// Returns `None` unless `bytes` is as long as `shape` and `kind` require, and aligned to the element.
pub(super) fn view(bytes: &'static [u8], shape: &[i64], kind: Kind) -> Option<Result<Tensor>> {
    let size = kind.elt_size_in_bytes();
    let n_bytes = shape
        .iter()
        .try_fold(size, |n, &side| n.checked_mul(usize::try_from(side).ok()?))?;
    if n_bytes != bytes.len() || !(bytes.as_ptr() as usize).is_multiple_of(size) {
        return None;
    }
    // SAFETY: the pointer is valid and aligned for `n_bytes`, as checked above, for the rest of the process, because
    // the slice is 'static. Empty strides mean contiguous. No code of this crate changes a base weight in place
    // (`layer.rs` states this).
    Some(unsafe { Tensor::f_from_blob(bytes.as_ptr(), shape, &[], kind, Device::Cpu) })
}
