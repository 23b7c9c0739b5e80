//! The identity of an adapter: a hash of its content, which does not depend on its name or folder.

use sha2::{Digest, Sha256};

use crate::digest;
use crate::lora::Lora;
use crate::tensors;
use crate::torch::Result;

/// SHA-256, in hexadecimal digits, of all that decides what an adapter computes: rank, alpha, and the name,
/// shape and f32 numbers of every parameter.
///
/// Targets, widths and depth are in the names and shapes.
///
/// # Errors
/// What libtorch refuses.
pub(super) fn sha256(lora: &Lora) -> Result<String> {
    let mut hash = Sha256::new();
    let (rank, alpha) = (lora.spec.rank, lora.spec.alpha);
    hash.update(format!("rank {rank} alpha {alpha}\n"));
    let mut numbers = Vec::new();
    for (name, tensor) in lora.names().into_iter().zip(lora.params()) {
        hash.update(format!("{name} {:?}\n", tensor.size()));
        tensors::numbers(tensor, &mut numbers)?;
        hash.update(&numbers);
    }
    Ok(digest::hex(hash))
}
