//! Which dtype this processor computes fastest in, by trying.
//!
//! bf16 halves what is read for a token, and with AVX512-BF16 or AMX it doubles the speed of a prompt. Without
//! them libtorch multiplies bf16 matrices 44 to 500 times slower than f32 ones
//! (<https://github.com/pytorch/pytorch/issues/146508>): where they are known to be missing nothing is tried, since 50 ms on a
//! busy machine can tell anything. Where they are there, `ATEN_CPU_CAPABILITY` and `DNNL_MAX_CPU_ISA` may forbid their use: both
//! dtypes are timed then.

use std::time::{Duration, Instant};

use tch::{Device, Kind, TchError, Tensor};

/// The time for both dtypes and both products together.
const BUDGET: Duration = Duration::from_millis(50);
/// The fewest rounds. One of two rounds may have waited for a core: bf16 was once measured 20 times too fast.
const FEWEST_ROUNDS: usize = 8;
/// A matrix of this side is beyond the inner caches in f32 (16 MiB), as a model is.
const SIDE: i64 = 2048;
/// Rows of a prompt, and columns of a matrix that such rows pass in 2 ms.
const PROMPT: (i64, i64) = (64, 512);
/// bf16 halves the memory, and is faster where its instructions are used: it takes 0.3 to 1.1 of f32's time. Where they
/// are not, it takes 44 times as long and more. The limit is far from both, because a busy machine disturbs the times.
const MOST_RATIO: f64 = 4.0;

/// bf16 where its instructions are there and used, else f32.
///
/// # Errors
/// What libtorch reports, for want of memory above all.
pub fn fastest() -> Result<Kind, TchError> {
    if !may_multiply_bf16() {
        tracing::info!(
            dtype = "f32",
            "dtype auto: this processor has no instructions for bf16"
        );
        return Ok(Kind::Float);
    }
    let _guard = tch::no_grad_guard();
    let token = Products::new(1, SIDE)?.times()?;
    let (rows, columns) = PROMPT;
    let prompt = Products::new(rows, columns)?.times()?;
    let bf16 = token.ratio() <= MOST_RATIO && prompt.ratio() <= MOST_RATIO;
    let kind = if bf16 { Kind::BFloat16 } else { Kind::Float };
    tracing::info!(
        dtype = if bf16 { "bf16" } else { "f32" },
        "dtype auto: bf16 takes {:.2} of f32's time for a token, {:.2} for a prompt",
        token.ratio(),
        prompt.ratio(),
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

/// One product in both dtypes.
struct Products {
    f32: [Tensor; 2],
    bf16: [Tensor; 2],
}

/// The shortest of several runs.
struct Times {
    f32: Duration,
    bf16: Duration,
}

impl Products {
    fn new(rows: i64, side: i64) -> Result<Self, TchError> {
        let f32 = |n: i64| Tensor::f_ones([n, side], (Kind::Float, Device::Cpu));
        let (x, w) = (f32(rows)?, f32(side)?);
        let bf16 = |t: &Tensor| t.f_to_kind(Kind::BFloat16);
        Ok(Self {
            bf16: [bf16(&x)?, bf16(&w)?],
            f32: [x, w],
        })
    }

    /// Alternating, so that both meet the same machine; the first run of each makes its kernels ready.
    fn times(&self) -> Result<Times, TchError> {
        let time = |[x, w]: &[Tensor; 2]| {
            let start = Instant::now();
            let _product = x.f_linear(w, None::<&Tensor>)?;
            Ok::<_, TchError>(start.elapsed())
        };
        let _warm = (time(&self.f32)?, time(&self.bf16)?);
        let began = Instant::now();
        let mut best = Times {
            f32: time(&self.f32)?,
            bf16: time(&self.bf16)?,
        };
        let mut rounds = 1;
        while rounds < FEWEST_ROUNDS || began.elapsed() < BUDGET / 2 {
            best.f32 = best.f32.min(time(&self.f32)?);
            best.bf16 = best.bf16.min(time(&self.bf16)?);
            rounds += 1;
        }
        Ok(best)
    }
}

impl Times {
    fn ratio(&self) -> f64 {
        self.bf16.as_secs_f64() / self.f32.as_secs_f64().max(1e-9)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dtype_is_chosen_in_bounded_time() {
        let start = Instant::now();
        let kind = fastest().unwrap();
        assert!(matches!(kind, Kind::BFloat16 | Kind::Float));
        // 50 ms where nothing else runs; one product of the slowest kind may be under way at the end.
        assert!(start.elapsed() < Duration::from_secs(5));
    }

    #[test]
    fn bf16_is_taken_unless_its_instructions_are_not_used() {
        let times = |f32, bf16| Times {
            f32: Duration::from_micros(f32),
            bf16: Duration::from_micros(bf16),
        };
        assert!(times(100, 110).ratio() < MOST_RATIO / 2.0);
        assert!(times(100, 4_400).ratio() > MOST_RATIO * 2.0);
    }
}
