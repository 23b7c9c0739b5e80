//! The adapter of the LM head.
//!
//! It stands beside the map from the last hidden state to the logits, and nowhere else: where that matrix is the
//! embedding's too, what comes in at the bottom of the model stays as it is.
//!
//! Axes: `n` positions, `d` hidden, `v` vocabulary, `r` rank, `k` tokens.

use tch::Tensor;

use super::layer::{LoraPair, scaled};
use crate::torch::Result;

/// `A` and `B` of the LM head.
#[derive(Debug)]
pub struct HeadLora {
    /// `alpha / rank`.
    pub scale: f64,
    /// `[r, d]` and `[v, r]`.
    pub pair: LoraPair,
}

// === impl HeadLora ===

impl HeadLora {
    /// The narrow side: `scale * A x`.
    ///
    /// # Shapes
    /// `hidden_nd`: `[n, d]`, any float dtype. Returns `[n, r]` in the dtype of the pair.
    ///
    /// # Errors
    /// What libtorch refuses, a width that does not fit above all.
    pub fn low(&self, hidden_nd: &Tensor) -> Result<Tensor> {
        let a = &self.pair.a;
        let low = hidden_nd
            .f_to_kind(a.f_kind()?)?
            .f_linear(a, None::<Tensor>)?;
        scaled(low, self.scale)
    }

    /// Adds the adapter's part to fresh logits in place. A second tensor as wide as the vocabulary is never made.
    ///
    /// # Shapes
    /// `low_nr`: as [`HeadLora::low`] gives it. `logits_nv`: `[n, v]`, in the same dtype; changed.
    ///
    /// # Errors
    /// What libtorch refuses.
    pub fn add_to(&self, low_nr: &Tensor, mut logits_nv: Tensor) -> Result<()> {
        let _sum = logits_nv.f_addmm_(low_nr, &self.pair.b.f_tr()?)?;
        Ok(())
    }

    /// The adapter's part of the logits of some tokens.
    ///
    /// # Shapes
    /// `low_nr`: as [`HeadLora::low`] gives it. `ids_nk`: `[n, k]`, i64. Returns `[n, k]`.
    ///
    /// # Errors
    /// What libtorch refuses, an id beyond the vocabulary above all.
    pub fn of_tokens(&self, low_nr: &Tensor, ids_nk: &Tensor) -> Result<Tensor> {
        let (n, k) = ids_nk.size2()?;
        let rows = self.pair.b.f_index_select(0, &ids_nk.f_reshape([-1])?)?;
        rows.f_view([n, k, -1])?
            .f_bmm(&low_nr.f_unsqueeze(-1)?)?
            .f_squeeze_dim(-1)
    }

    /// Computes the gradients by `A` and `B`, which are added to `sums`, and by the hidden states, from the gradient by
    /// the logits.
    ///
    /// # Shapes
    /// `hidden_nd`: `[n, d]`; `grad_nv`: `[n, v]`; `sums`: `[r, d]` and `[v, r]`, changed; all f32. Returns `[n, d]`, f32.
    ///
    /// # Errors
    /// What libtorch refuses.
    pub fn backward(
        &self,
        hidden_nd: &Tensor,
        grad_nv: &Tensor,
        [sum_a, sum_b]: [&mut Tensor; 2],
    ) -> Result<Tensor> {
        let _sum = sum_b.f_addmm_(&grad_nv.f_tr()?, &self.low(hidden_nd)?)?;
        let grad_nr = scaled(grad_nv.f_mm(&self.pair.b)?, self.scale)?;
        let _sum = sum_a.f_addmm_(&grad_nr.f_tr()?, hidden_nd)?;
        grad_nr.f_mm(&self.pair.a)
    }

    pub(super) fn try_map<E>(
        &self,
        f: impl FnMut(&Tensor) -> Result<Tensor, E>,
    ) -> Result<Self, E> {
        Ok(Self {
            scale: self.scale,
            pair: self.pair.try_map(f)?,
        })
    }

    pub(super) fn prepare_for_serving(&mut self) -> Result<()> {
        self.pair.b = self.pair.b.f_mul_scalar(self.scale)?;
        self.scale = 1.0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tch::{Device, Kind};

    use super::*;

    const OPTIONS: (Kind, Device) = (Kind::Float, Device::Cpu);

    fn head() -> HeadLora {
        HeadLora {
            scale: 2.0,
            pair: LoraPair {
                a: Tensor::randn([3, 5], OPTIONS),
                b: Tensor::randn([11, 3], OPTIONS),
            },
        }
    }

    #[test]
    fn gradients_are_those_of_autograd_and_add_up() {
        let head = head();
        let (hidden, grad) = (
            Tensor::randn([4, 5], OPTIONS),
            Tensor::randn([4, 11], OPTIONS),
        );
        let leaf = |t: &Tensor| t.copy().set_requires_grad(true);
        let (a, b, x) = (leaf(&head.pair.a), leaf(&head.pair.b), leaf(&hidden));
        let logits = x.matmul(&a.tr()).matmul(&b.tr()) * head.scale;
        (logits * &grad).sum(Kind::Float).backward();

        let mut sums = [head.pair.a.ones_like(), head.pair.b.ones_like()];
        let by_hidden = head.backward(&hidden, &grad, sums.each_mut()).unwrap();
        assert!(by_hidden.allclose(&x.grad(), 1e-5, 1e-5, false));
        assert!((&sums[0] - 1.0).allclose(&a.grad(), 1e-5, 1e-5, false));
        assert!((&sums[1] - 1.0).allclose(&b.grad(), 1e-5, 1e-5, false));
    }

    #[test]
    fn some_tokens_are_a_part_of_all() {
        let mut head = head();
        let hidden = Tensor::randn([2, 5], OPTIONS);
        let all = Tensor::zeros([2, 11], OPTIONS);
        head.add_to(&head.low(&hidden).unwrap(), all.shallow_clone())
            .unwrap();
        let wanted = hidden.matmul(&head.pair.a.tr()).matmul(&head.pair.b.tr()) * 2.0;
        assert!(all.allclose(&wanted, 1e-5, 1e-5, false));

        let ids = Tensor::from_slice(&[0i64, 7, 7, 10, 3, 0]).reshape([2, 3]);
        head.prepare_for_serving().unwrap();
        let some = head.of_tokens(&head.low(&hidden).unwrap(), &ids).unwrap();
        assert!(some.allclose(&all.gather(1, &ids, false), 1e-5, 1e-5, false));
    }
}
