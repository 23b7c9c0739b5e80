//! Vector-Jacobian products with libtorch's autograd.

use tch::{Kind, Tensor};

use crate::torch::Result;

pub(super) fn leaf(tensor: &Tensor) -> Result<Tensor> {
    tensor.f_detach()?.f_set_requires_grad(true)
}

/// Runs `f` with gradients on; afterwards the thread's state is as before, also when `f` panics.
pub(super) fn with_grad<T>(f: impl FnOnce() -> Result<T>) -> Result<T> {
    // tch's `with_grad` forgets to restore after a panic; the guard, dropped last, does not.
    let _restores = tch::no_grad_guard();
    tch::with_grad(f)
}

/// Gradients of `sum(y * grad)` over all pairs by the leaves: the vector-Jacobian product, since tch passes no
/// vector.
///
/// The product is only formed for the graph; its value is never read, so its precision does not matter.
///
/// # Errors
/// When no `y` depends on one of the leaves, or libtorch refuses.
pub(super) fn vjp(pairs: &[(&Tensor, &Tensor)], leaves: &[&Tensor]) -> Result<Vec<Tensor>> {
    let sums = pairs.iter().map(|(y, grad)| {
        let sum = || y.f_mul(grad)?.f_sum(Kind::Float);
        with_grad(sum)
    });
    let sums = sums.collect::<Result<Vec<_>, _>>()?;
    Tensor::f_run_backward(&sums, leaves, false, false)
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn a_panic_leaves_gradients_as_they_were() {
        let _guard = tch::no_grad_guard();
        let broken = || with_grad(|| -> Result<()> { panic!("as a binding does") });
        assert!(catch_unwind(AssertUnwindSafe(broken)).is_err());
        let x = Tensor::from_slice(&[1f32]).set_requires_grad(true);
        assert!(!(&x * 2.0).requires_grad(), "gradients are still off");
    }
}
