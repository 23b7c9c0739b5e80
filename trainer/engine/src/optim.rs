//! AdamW with a state that can be saved.
//!
//! Decoupled weight decay and bias correction as in torch's (<https://arxiv.org/abs/1711.05101>). A step
//! is a function: parameters, gradients and state in, new parameters and state out. Nothing is written
//! in place, so whoever still samples with the old parameters is not disturbed, and a step that is
//! refused has changed nothing.

use metaclaw_trainer_terms::DEFAULT_LEARNING_RATE;
use tch::{Kind, TchError, Tensor};

use crate::lora::Lora;
use crate::torch::Result;

/// What an optimiser step is told; all of it comes with every step, so a schedule is the caller's.
///
/// Defaults are Tinker's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamConfig {
    /// Above 0.
    pub learning_rate: f64,
    /// Decay of the mean of gradients, 0 to below 1.
    pub beta1: f64,
    /// Decay of the mean of their squares, 0 to below 1.
    pub beta2: f64,
    /// Added to the root of the mean square; above 0.
    pub eps: f64,
    /// Share of each parameter taken away a step, times the learning rate; 0 is none.
    pub weight_decay: f64,
    /// Largest 2-norm of the whole gradient; a longer one is shortened to it. 0 is no limit.
    pub grad_clip_norm: f64,
    /// A step whose gradient's 2-norm is over so many times the median of the run's last ones is skipped
    /// ([`crate::run::OpenRun::optim_step`]). 0 skips none.
    pub skip_over: f64,
}

/// Running means, one pair for each parameter, with torch's names.
///
/// # Shapes
/// Each that of its parameter, f32, in [`Lora::params`]' order.
#[derive(Debug)]
pub struct AdamState {
    pub exp_avg: Vec<Tensor>,
    /// Mean of their squares.
    pub exp_avg_sq: Vec<Tensor>,
    pub steps: u64,
}

#[derive(Debug)]
pub struct Stepped {
    pub lora: Lora,
    pub state: AdamState,
    /// 2-norm of the whole gradient before clipping.
    pub grad_norm: f64,
}

/// Why a step was not taken. Parameters and state are as before.
#[derive(Debug, thiserror::Error)]
pub enum OptimError {
    /// No gradients have been computed since the last step.
    #[error("there are no gradients: optim_step needs a forward_backward since the last step")]
    NoGradients,
    /// A setting out of range.
    #[error("{field} is {value}, allowed: {allowed}")]
    Setting {
        field: &'static str,
        value: f64,
        allowed: &'static str,
    },
    /// Infinity, or no number, or so long that its square is infinite.
    #[error(
        "the gradient is not finite (norm {norm}, allowed is up to {LONGEST:.1e}); no step was taken and the gradients were dropped"
    )]
    NotFinite { norm: f64 },
    /// libtorch refused, for want of memory above all.
    #[error("libtorch: {0}")]
    Torch(#[from] TchError),
}

/// The square of a longer gradient is infinite in f32, and a parameter whose mean square is infinite never moves again.
const LONGEST: f64 = 1.8e19;
/// Torch's: keeps a clipped norm from exceeding the limit by rounding.
const CLIP_EPS: f64 = 1e-6;

/// Whether a value is allowed, and what is, in words.
type Rule = (fn(f64) -> bool, &'static str);

// === impl AdamConfig ===

impl Default for AdamConfig {
    fn default() -> Self {
        Self {
            learning_rate: DEFAULT_LEARNING_RATE,
            beta1: 0.9,
            beta2: 0.95,
            eps: 1e-12,
            weight_decay: 0.0,
            grad_clip_norm: 0.0,
            skip_over: 20.0,
        }
    }
}

impl AdamConfig {
    /// Checks every range.
    ///
    /// # Errors
    /// [`OptimError::Setting`].
    pub fn check(&self) -> Result<(), OptimError> {
        let above_0: Rule = (|x| x > 0.0 && x.is_finite(), "a number above 0");
        let below_1: Rule = (|x| (0.0..1.0).contains(&x), "0 to below 1");
        let from_0: Rule = (|x| x >= 0.0 && x.is_finite(), "a number from 0 up");
        for (field, value, (is_allowed, allowed)) in [
            ("learning_rate", self.learning_rate, above_0),
            ("beta1", self.beta1, below_1),
            ("beta2", self.beta2, below_1),
            ("eps", self.eps, above_0),
            ("weight_decay", self.weight_decay, from_0),
            ("grad_clip_norm", self.grad_clip_norm, from_0),
            ("skip_over", self.skip_over, from_0),
        ] {
            if !is_allowed(value) {
                return Err(OptimError::Setting {
                    field,
                    value,
                    allowed,
                });
            }
        }
        Ok(())
    }
}

// === impl AdamState ===

impl AdamState {
    /// Before the first step.
    ///
    /// # Shapes
    /// The state is `[rank, d_in]` or `[d_out, rank]`, as each parameter is; f32.
    ///
    /// # Errors
    /// What libtorch refuses.
    pub fn new(lora: &Lora) -> Result<Self> {
        let zeros = || {
            lora.params()
                .map(Tensor::f_zeros_like)
                .collect::<Result<_, _>>()
        };
        Ok(Self {
            exp_avg: zeros()?,
            exp_avg_sq: zeros()?,
            steps: 0,
        })
    }

    /// Makes one step and returns the new parameters and the new state.
    ///
    /// # Shapes
    /// `gradients`: one f32 tensor a parameter, in [`Lora::params`]' order.
    ///
    /// # Errors
    /// A setting out of range, a gradient that is not finite, or what libtorch refuses.
    pub fn step(
        &self,
        lora: &Lora,
        gradients: &[Tensor],
        config: &AdamConfig,
    ) -> Result<Stepped, OptimError> {
        config.check()?;
        if gradients.is_empty() {
            return Err(OptimError::NoGradients);
        }
        let _guard = tch::no_grad_guard();
        let grad_norm = norm(gradients)?;
        let rates = Rates::new(config, grad_norm, self.steps + 1);
        if !(grad_norm * rates.clip_coef).is_finite() || grad_norm * rates.clip_coef > LONGEST {
            return Err(OptimError::NotFinite { norm: grad_norm });
        }
        let (mut exp_avg, mut exp_avg_sq) = (Vec::new(), Vec::new());
        let mut old = gradients
            .iter()
            .zip(self.exp_avg.iter().zip(&self.exp_avg_sq));
        let lora = lora.try_map(|param| {
            let Some((gradient, (m, v))) = old.next() else {
                return Err(OptimError::NoGradients);
            };
            let (param, m, v) = rates.apply(param, gradient, m, v)?;
            exp_avg.push(m);
            exp_avg_sq.push(v);
            Ok(param)
        })?;
        let state = Self {
            exp_avg,
            exp_avg_sq,
            steps: self.steps + 1,
        };
        Ok(Stepped {
            lora,
            state,
            grad_norm,
        })
    }
}

struct Rates {
    config: AdamConfig,
    clip_coef: f64,
    /// Learning rate over the bias correction of the mean.
    step_size: f64,
    bias_correction2_sqrt: f64,
}

impl Rates {
    fn new(config: &AdamConfig, grad_norm: f64, step: u64) -> Self {
        let limit = config.grad_clip_norm;
        let clip_coef = if limit > 0.0 {
            (limit / (grad_norm + CLIP_EPS)).min(1.0)
        } else {
            1.0
        };
        let correction = |beta: f64| 1.0 - beta.powf(step as f64);
        Self {
            config: *config,
            clip_coef,
            step_size: config.learning_rate / correction(config.beta1),
            bias_correction2_sqrt: correction(config.beta2).sqrt(),
        }
    }

    fn apply(
        &self,
        param: &Tensor,
        gradient: &Tensor,
        exp_avg: &Tensor,
        exp_avg_sq: &Tensor,
    ) -> Result<(Tensor, Tensor, Tensor)> {
        let AdamConfig {
            learning_rate,
            beta1,
            beta2,
            eps,
            weight_decay,
            ..
        } = self.config;
        let gradient = gradient.f_mul_scalar(self.clip_coef)?;
        let exp_avg = exp_avg.f_lerp(&gradient, 1.0 - beta1)?;
        let fresh = gradient.f_square()?.f_mul_scalar(1.0 - beta2)?;
        let exp_avg_sq = exp_avg_sq.f_mul_scalar(beta2)?.f_add(&fresh)?;
        let root = exp_avg_sq
            .f_sqrt()?
            .f_div_scalar(self.bias_correction2_sqrt)?;
        let denom = root.f_add_scalar(eps)?;
        let kept = param.f_mul_scalar(1.0 - learning_rate * weight_decay)?;
        let param = kept.f_sub(&exp_avg.f_div(&denom)?.f_mul_scalar(self.step_size)?)?;
        Ok((param, exp_avg, exp_avg_sq))
    }
}

/// 2-norm over all tensors together, summed in f64; one number is read back, however many tensors there are, from the
/// device of the last one.
///
/// # Shapes
/// `tensors`: any, f32.
///
/// # Errors
/// What libtorch refuses.
pub fn norm(tensors: &[Tensor]) -> Result<f64> {
    let Some(last) = tensors.last() else {
        return Ok(0.0);
    };
    let squares = tensors.iter().map(|tensor| {
        let squares = tensor.f_to_kind(Kind::Double)?.f_square()?;
        squares.f_sum(Kind::Double)?.f_to_device(last.device())
    });
    let squares = squares.collect::<Result<Vec<_>, _>>()?;
    let sum = Tensor::f_stack(&squares, 0)?.f_sum(Kind::Double)?;
    sum.f_sqrt()?.f_double_value(&[])
}

#[cfg(test)]
mod tests;
