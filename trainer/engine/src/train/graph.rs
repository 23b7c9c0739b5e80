//! Makes small graphs of libtorch's autograd, through which [`aten::vjp`](crate::aten::vjp) goes back.

use tch::Tensor;

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
