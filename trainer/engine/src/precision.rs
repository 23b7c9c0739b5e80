//! Which dtype this processor computes fastest in, by trying.
//!
//! bf16 halves what is read for a token, and with AVX512-BF16 or AMX it can double the speed of a prompt. Without
//! them libtorch multiplies bf16 matrices 44 to 500 times slower than f32 ones
//! (<https://github.com/pytorch/pytorch/issues/146508>): where they are known to be missing nothing is tried. Where they
//! are there, `ATEN_CPU_CAPABILITY` and `DNNL_MAX_CPU_ISA` may forbid their use: both dtypes are timed then.

use std::time::{Duration, Instant};

use tch::{Device, Kind, TchError, Tensor};

use crate::torch::Result;

/// The time for both dtypes together. It is spent once for a model and a machine.
const BUDGET: Duration = Duration::from_millis(200);
/// The fewest rounds. One of two rounds may have waited for a core: bf16 was once measured 20 times too fast.
const FEWEST_ROUNDS: usize = 8;
/// Rows of a prompt, and columns of a matrix that such rows pass in 2 ms.
const PROMPT: (i64, i64) = (64, 512);
/// bf16 has to be clearly faster, because f32 is exact: it takes 0.3 to 1.1 of f32's time where its instructions are
/// used. Where both are alike, a busy machine would otherwise decide.
const MOST_RATIO: f64 = 0.8;

/// bf16 where it is clearly faster, else f32.
///
/// # Errors
/// What libtorch reports, for want of memory above all.
pub fn fastest() -> Result<Kind> {
    if !may_multiply_bf16() {
        tracing::info!(
            dtype = "f32",
            "dtype auto: this processor has no instructions for bf16"
        );
        return Ok(Kind::Float);
    }
    let _guard = tch::no_grad_guard();
    let ratio = ratio()?;
    let (kind, dtype) = if ratio <= MOST_RATIO {
        (Kind::BFloat16, "bf16")
    } else {
        (Kind::Float, "f32")
    };
    tracing::info!(
        dtype,
        "dtype auto: bf16 takes {ratio:.2} of f32's time for a prompt"
    );
    Ok(kind)
}

/// Whether the processor multiplies bf16 numbers, if that can be read. A processor with AMX also has AVX512-BF16.
fn may_multiply_bf16() -> bool {
    #[cfg(target_arch = "x86_64")]
    let has = std::arch::is_x86_feature_detected!("avx512bf16");
    #[cfg(target_arch = "aarch64")]
    let has = std::arch::is_aarch64_feature_detected!("bf16");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let has = true;
    has
}

/// The time of a product in bf16 by that in f32: the shortest of several runs, alternating, so that both meet the same
/// machine. The first run of each makes its kernels ready.
fn ratio() -> Result<f64> {
    let (rows, side) = PROMPT;
    let ones = |n: i64, kind| Tensor::f_ones([n, side], (kind, Device::Cpu));
    let pair = |kind| Ok::<_, TchError>((ones(rows, kind)?, ones(side, kind)?));
    let (f32, bf16) = (pair(Kind::Float)?, pair(Kind::BFloat16)?);
    let time = |(x, w): &(Tensor, Tensor)| {
        let start = Instant::now();
        let _product = x.f_linear(w, None::<&Tensor>)?;
        Ok::<_, TchError>(start.elapsed().as_secs_f64())
    };
    let _warm = (time(&f32)?, time(&bf16)?);
    let (began, mut rounds) = (Instant::now(), 0);
    let (mut of_f32, mut of_bf16) = (f64::MAX, f64::MAX);
    while rounds < FEWEST_ROUNDS || began.elapsed() < BUDGET {
        of_f32 = of_f32.min(time(&f32)?);
        of_bf16 = of_bf16.min(time(&bf16)?);
        rounds += 1;
    }
    Ok(of_bf16 / of_f32.max(1e-9))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dtype_is_chosen_in_bounded_time() {
        let start = Instant::now();
        let kind = fastest().unwrap();
        assert!(matches!(kind, Kind::BFloat16 | Kind::Float));
        // 200 ms where nothing else runs; one product of the slowest kind may be under way at the end.
        assert!(start.elapsed() < Duration::from_secs(5));
    }
}
