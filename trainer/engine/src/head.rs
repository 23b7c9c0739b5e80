//! From hidden states to log-probabilities and back, a few positions at a time.
//!
//! A vocabulary is 50,000 to 150,000 wide: `[N, vocab]` in f32 would be the largest tensor of a step by
//! far, so it never exists whole. Nothing here uses autograd: the gradient of a log-softmax is one line.
//!
//! Axes: `n` positions of a chunk, `k` targets each, `d` hidden, `v` vocabulary.

use tch::{Kind, TchError, Tensor};

use crate::linear::Segment;
use crate::lora::HeadLora;
use crate::matrix::Matrix;

/// Log-probabilities of a chunk over the whole vocabulary.
#[derive(Debug)]
pub struct LogProbs {
    /// `[n, v]`, f32.
    all_nv: Tensor,
}

/// The likeliest tokens at some positions, likeliest first.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TopK {
    /// `[n, k]`, row-major.
    pub ids: Vec<u32>,
    /// `[n, k]`.
    pub logprobs: Vec<f32>,
}

/// Logits that are computed again in f32 where the model's dtype is narrower.
const N_EXACT: i64 = 64;

/// Rows whose adapter has a part for the LM head.
struct Adapted<'a> {
    start: i64,
    len: i64,
    head: &'a HeadLora,
    low_mr: Tensor,
}

/// Logits, f32: of all tokens in the dtype of the LM head, and of the likeliest ones once more in f32. Of a few rows on a CPU
/// all logits are computed in f32 at once.
///
/// From 16 on, numbers are 0.125 apart in bf16: enough to turn a close choice, and to make the
/// log-probabilities of sampling and of training disagree. The likeliest tokens hold nearly all of the
/// probability, and their rows are little to read beside the whole LM head. Adapters of the LM head are in f32.
///
/// # Shapes
/// `hidden_nd`: `[n, d]`, after the last norm, f32. `lm_head_vd`: `[v, d]`, the LM head, any float dtype. `adapters`: which
/// rows of `hidden_nd` have which; rows that none names have the base's logits. Returns `[n, v]`, f32.
///
/// # Errors
/// What libtorch refuses.
pub fn logits(
    hidden_nd: &Tensor,
    lm_head_vd: &Matrix,
    adapters: &[Segment<'_>],
) -> Result<Tensor, TchError> {
    let adapted = adapters
        .iter()
        .filter_map(|segment| Adapted::of_segment(hidden_nd, segment));
    let adapted: Vec<Adapted<'_>> = adapted.collect::<Result<_, _>>()?;
    let kind = lm_head_vd.kind()?;
    let exact_nv = lm_head_vd.few_rows(hidden_nd)?;
    let is_exact = kind == Kind::Float || exact_nv.is_some();
    let rough_nv = match exact_nv {
        Some(exact_nv) => exact_nv,
        None => lm_head_vd
            .product(&hidden_nd.f_to_kind(kind)?, None)?
            .f_to_kind(Kind::Float)?,
    };
    for part in &adapted {
        part.head.add_to(&part.low_mr, part.rows(&rough_nv)?)?;
    }
    if is_exact {
        return Ok(rough_nv);
    }
    let (n, v) = rough_nv.size2()?;
    let k = N_EXACT.min(v);
    let (_, ids_nk) = rough_nv.f_topk(k, -1, true, false)?;
    let rows = lm_head_vd.rows(&ids_nk.f_reshape([-1])?)?;
    let rows_nkd = rows.f_view([n, k, -1])?;
    let exact_nk = rows_nkd
        .f_bmm(&hidden_nd.f_unsqueeze(-1)?)?
        .f_squeeze_dim(-1)?;
    for part in &adapted {
        let delta_mk = part.head.of_tokens(&part.low_mr, &part.rows(&ids_nk)?)?;
        let _sum = part.rows(&exact_nk)?.f_add_(&delta_mk)?;
    }
    rough_nv.f_scatter(1, &ids_nk, &exact_nk)
}

/// The gradient by the hidden states, of the base alone.
///
/// # Shapes
/// `grad_nv`: `[n, v]`, f32, by the logits. `lm_head_vd`: `[v, d]`. Returns `[n, d]` in the dtype of `lm_head_vd`.
///
/// # Errors
/// What libtorch refuses.
pub fn backward(grad_nv: &Tensor, lm_head_vd: &Matrix) -> Result<Tensor, TchError> {
    grad_nv
        .f_to_kind(lm_head_vd.kind()?)?
        .f_matmul(&lm_head_vd.plain()?)
}

// === impl Adapted ===

impl<'a> Adapted<'a> {
    /// `None` where the rows' adapter has no part for the LM head.
    fn of_segment(
        hidden_nd: &Tensor,
        &Segment { start, len, lora }: &Segment<'a>,
    ) -> Option<Result<Self, TchError>> {
        let head = lora.head()?;
        let low_mr = hidden_nd
            .f_narrow(0, start, len)
            .and_then(|rows| head.low(&rows));
        Some(low_mr.map(|low_mr| Self {
            start,
            len,
            head,
            low_mr,
        }))
    }

    /// These rows; a view.
    fn rows(&self, all: &Tensor) -> Result<Tensor, TchError> {
        all.f_narrow(0, self.start, self.len)
    }
}

// === impl LogProbs ===

impl LogProbs {
    /// Untempered, over the full vocabulary.
    ///
    /// # Shapes
    /// As [`logits`]: `[n, d]` f32, and `[v, d]` in any float dtype.
    ///
    /// # Errors
    /// What libtorch refuses.
    pub fn new(
        hidden_nd: &Tensor,
        lm_head_vd: &Matrix,
        adapters: &[Segment<'_>],
    ) -> Result<Self, TchError> {
        let logits_nv = logits(hidden_nd, lm_head_vd, adapters)?;
        let all_nv = logits_nv.f_log_softmax(-1, Kind::Float)?;
        Ok(Self { all_nv })
    }

    /// Those of the targets, row-major.
    ///
    /// # Shapes
    /// `targets_nk`: `[n, k]`, i64. Returns `n * k` numbers, f32.
    ///
    /// # Errors
    /// When a target is beyond the vocabulary.
    pub fn of(&self, targets_nk: &Tensor) -> Result<Vec<f32>, TchError> {
        to_vec(&self.all_nv.f_gather(1, targets_nk, false)?)
    }

    /// The `k` likeliest tokens at each position.
    ///
    /// # Errors
    /// When `k` is over the vocabulary.
    pub fn top(&self, k: usize) -> Result<TopK, TchError> {
        let k = i64::try_from(k).unwrap_or(i64::MAX);
        let (logprobs, ids) = self.all_nv.f_topk(k, -1, true, true)?;
        let ids = Vec::<i64>::try_from(&ids.f_reshape([-1])?)?;
        let ids = ids
            .into_iter()
            .map(|id| u32::try_from(id).unwrap_or(u32::MAX));
        Ok(TopK {
            ids: ids.collect(),
            logprobs: to_vec(&logprobs)?,
        })
    }

    /// The gradient of `sum(gradients * log-probabilities of targets)` by the logits: the gradient at each target minus
    /// `softmax * sum of the position's gradients`.
    ///
    /// # Shapes
    /// `targets_nk`: `[n, k]`, i64. `gradients_nk`: `[n, k]`, f32. Returns `[n, v]`, f32.
    ///
    /// # Errors
    /// What libtorch refuses.
    pub fn gradient(self, targets_nk: &Tensor, gradients_nk: &Tensor) -> Result<Tensor, TchError> {
        let total_n1 = gradients_nk.f_sum_dim_intlist([-1i64].as_slice(), true, Kind::Float)?;
        // In place: the largest tensor of a step stands in memory once.
        let mut logits_nv = self.all_nv;
        let mut logits_nv = logits_nv.f_exp_()?.f_mul_(&total_n1.f_neg()?)?;
        logits_nv.f_scatter_add_(1, targets_nk, gradients_nk)
    }
}

/// A tensor's numbers in row-major order.
fn to_vec(tensor: &Tensor) -> Result<Vec<f32>, TchError> {
    Vec::<f32>::try_from(&tensor.f_reshape([-1])?)
}

#[cfg(test)]
mod tests {
    use tch::Device;

    use super::*;
    use crate::lora::{BaseDims, Lora, LoraSpec, Targets};

    const OPTIONS: (Kind, Device) = (Kind::Float, Device::Cpu);

    #[test]
    fn gradient_is_that_of_autograd() {
        let (hidden, lm_head) = (
            Tensor::randn([3, 5], OPTIONS),
            Tensor::randn([11, 5], OPTIONS),
        );
        // The second position names one target twice: its gradients must add up.
        let targets = Tensor::from_slice(&[1i64, 2, 7, 7, 0, 10]).reshape([3, 2]);
        let gradients = Tensor::from_slice(&[0.5f32, -1.0, 2.0, 1.0, 0.0, 0.25]).reshape([3, 2]);

        let leaf = hidden.copy().set_requires_grad(true);
        let logprobs = leaf.matmul(&lm_head.tr()).log_softmax(-1, Kind::Float);
        (logprobs.gather(1, &targets, false) * &gradients)
            .sum(Kind::Float)
            .backward();

        let chunk = LogProbs::new(&hidden, &lm_head.shallow_clone().into(), &[]).unwrap();
        let by_logits = chunk.gradient(&targets, &gradients).unwrap();
        let found = backward(&by_logits, &lm_head.shallow_clone().into()).unwrap();
        assert!(found.allclose(&leaf.grad(), 1e-5, 1e-6, false));
    }

    #[test]
    fn the_likeliest_logits_are_exact_over_a_narrow_lm_head() {
        let lm_head = Tensor::randn([300, 16], OPTIONS).to_kind(Kind::BFloat16);
        let hidden = Tensor::randn([3, 16], OPTIONS) * 8.0;
        let exact = hidden.matmul(&lm_head.to_kind(Kind::Float).tr());
        let found = logits(&hidden, &lm_head.shallow_clone().into(), &[]).unwrap();
        let (wanted, ids) = exact.topk(20, -1, true, true);
        assert!(
            found
                .gather(1, &ids, false)
                .allclose(&wanted, 1e-5, 1e-5, false)
        );
        assert!(found.allclose(&exact, 2e-2, 0.3, false));
    }

    #[test]
    fn rows_have_their_own_adapters_of_the_lm_head_in_f32() {
        let dims = BaseDims {
            hidden: 16,
            q_out: 16,
            kv_out: 16,
            ffn: 16,
            vocab: 300,
            tied: true,
        };
        let spec = LoraSpec {
            rank: 2,
            alpha: 4,
            targets: Targets::groups(false, true, true),
        };
        let adapter = |seed| {
            let fresh = Lora::init(spec.clone(), dims, 1, seed).unwrap();
            fresh.try_map(Tensor::f_randn_like).unwrap()
        };
        let (one, two) = (adapter(1), adapter(2));
        let hidden = Tensor::randn([5, 16], OPTIONS);
        // The second row has the base alone.
        let part = |start, len, lora| Segment { start, len, lora };
        let segments = [part(0, 1, &one), part(2, 3, &two)];
        let delta = |lora: &Lora| {
            let pair = &lora.head().unwrap().pair;
            hidden.matmul(&pair.a.tr()).matmul(&pair.b.tr()) * 2.0
        };
        let deltas = [
            delta(&one).narrow(0, 0, 1),
            Tensor::zeros([1, 300], OPTIONS),
            delta(&two).narrow(0, 2, 3),
        ];
        let base = Tensor::randn([300, 16], OPTIONS);
        for kind in [Kind::Float, Kind::BFloat16] {
            let lm_head = base.to_kind(kind);
            let exact = hidden.matmul(&lm_head.to_kind(Kind::Float).tr());
            let exact = exact + Tensor::cat(&deltas, 0);
            let found = logits(&hidden, &lm_head.shallow_clone().into(), &segments).unwrap();
            let (wanted, ids) = exact.topk(20, -1, true, true);
            let likeliest = found.gather(1, &ids, false);
            assert!(likeliest.allclose(&wanted, 1e-5, 1e-4, false), "{kind:?}");
            assert!(found.allclose(&exact, 2e-2, 0.1, false), "{kind:?}");
        }
    }

    #[test]
    fn the_likeliest_come_first() {
        let hidden = Tensor::from_slice(&[1f32, 0.0, 0.0, 2.0]).reshape([2, 2]);
        let lm_head = Tensor::from_slice(&[0f32, 1.0, 3.0, 0.0, 1.0, 2.0]).reshape([3, 2]);
        let chunk = LogProbs::new(&hidden, &lm_head.shallow_clone().into(), &[]).unwrap();
        let top = chunk.top(2).unwrap();
        assert_eq!(top.ids, [1, 2, 2, 0]);
        let wanted = chunk
            .of(&Tensor::from_slice(&[1i64, 2, 2, 0]).reshape([2, 2]))
            .unwrap();
        assert_eq!(top.logprobs, wanted);
    }
}
