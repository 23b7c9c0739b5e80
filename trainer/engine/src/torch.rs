//! Names for what nearly every call of libtorch returns.

use tch::{TchError, Tensor};

pub(crate) type Result<T, E = TchError> = std::result::Result<T, E>;

/// Views that are one in the backward pass, where as many `narrow`s would each make a tensor of zeros.
pub(crate) fn split<const N: usize>(
    x: &Tensor,
    widths: [i64; N],
    axis: i64,
) -> Result<[Tensor; N]> {
    let parts = x.f_split_with_sizes(widths, axis)?;
    <[Tensor; N]>::try_from(parts)
        .map_err(|parts| TchError::Shape(format!("{} parts of a split in {N}", parts.len())))
}
