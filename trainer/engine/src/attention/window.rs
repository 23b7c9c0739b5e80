//! Sliding windows: the masks of layers whose positions see only the newest positions.

use tch::{Device, Kind, Tensor};

use crate::pack::to_i64;
use crate::torch::Result;

/// Which positions are too far behind others to be seen, `[t, s]`, bool. The window of `window` positions includes the
/// position itself.
///
/// # Shapes
/// `seeing`: `[t]`, `seen`: `[s]`, positions, i64.
///
/// # Errors
/// What libtorch reports.
pub fn too_far(seeing: &Tensor, seen: &Tensor, window: usize) -> Result<Tensor> {
    let distance = seeing.f_unsqueeze(1)?.f_sub(&seen.f_unsqueeze(0)?)?;
    distance.f_ge(to_i64(window))
}

/// The mask of whole rows, `[t, t]` in `kind`. `None` if the causal mask is enough.
///
/// # Shapes
/// Returns 0 where a position is seen, else minus infinity.
///
/// # Errors
/// What libtorch reports.
pub fn of_whole_rows(
    t: usize,
    window: Option<usize>,
    kind: Kind,
    device: Device,
) -> Result<Option<Tensor>> {
    let Some(window) = window.filter(|&window| window < t) else {
        return Ok(None);
    };
    let positions = Tensor::f_arange(to_i64(t), (Kind::Int64, device))?;
    of_newest(&positions, &positions, window, kind).map(Some)
}

/// The causal mask of a sliding window.
///
/// # Shapes
/// `seeing`: `[t]`, `seen`: `[s]`, positions, i64. Returns `[t, s]` in `kind`: 0 where a position is seen, else minus infinity.
///
/// # Errors
/// What libtorch reports.
pub fn of_newest(seeing: &Tensor, seen: &Tensor, window: usize, kind: Kind) -> Result<Tensor> {
    let later = seeing.f_unsqueeze(1)?.f_lt_tensor(&seen.f_unsqueeze(0)?)?;
    let hidden = too_far(seeing, seen, window)?.f_logical_or(&later)?;
    let shown = Tensor::f_zeros(hidden.size(), (kind, seeing.device()))?;
    shown.f_masked_fill(&hidden, f64::NEG_INFINITY)
}
