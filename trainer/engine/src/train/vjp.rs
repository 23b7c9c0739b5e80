//! Vector-Jacobian products with libtorch's autograd.

use tch::{Kind, TchError, Tensor};

/// The same numbers as a variable of its own.
pub(super) fn leaf(tensor: &Tensor) -> Result<Tensor, TchError> {
    tensor.f_detach()?.f_set_requires_grad(true)
}

/// Runs `f` with gradients on, whatever the thread's state, which is then restored.
pub(super) fn with_grad<T>(f: impl FnOnce() -> Result<T, TchError>) -> Result<T, TchError> {
    tch::with_grad(f)
}

/// Gradients of `sum(y * grad)` by the leaves: the vector-Jacobian product, since tch passes no vector.
///
/// The product is only formed for the graph; its value is never read, so its precision does not matter.
///
/// # Errors
/// When `y` does not depend on a leaf, or libtorch refuses.
pub(super) fn vjp(y: &Tensor, grad: &Tensor, leaves: &[&Tensor]) -> Result<Vec<Tensor>, TchError> {
    let sum = with_grad(|| y.f_mul(grad)?.f_sum(Kind::Float))?;
    Tensor::f_run_backward(&[sum], leaves, false, false)
}
