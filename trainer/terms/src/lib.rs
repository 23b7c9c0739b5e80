//! Terms of training that server, client and engine share; no IO.
//!
//! A [`Datum`] is a sequence with what a loss needs beside it; a [`LossFn`] names the loss. A name that becomes a path
//! is parsed once, here, into a type that cannot hold a separator. What only a loaded model can tell (its vocabulary,
//! its context), or only a loss (which fields it reads), the engine checks. A [`Sampler`] is asked for continuations of
//! token ids, whoever has the model: our engine, a cloud, another server.

mod by_text;
mod datum;
pub mod element;
mod error_code;
pub mod gemma;
pub mod json;
mod loss;
mod names;
mod sampler;
mod sampling;
mod tensor;

pub use self::{
    datum::{Datum, DatumError, DatumParts},
    error_code::ErrorCode,
    loss::{LossConfig, LossFn, UnknownLoss},
    names::{AdapterName, CheckpointName, NameError, RunId},
    sampler::{
        FinishReason, SampleEvent, SampleStream, SampledToken, Sampler, SamplerError,
        SamplerFailure, SamplerFuture, SamplerRequest, Sampling, SamplingEnd,
    },
    sampling::{ParamError, SamplingParams},
    tensor::{ShapeError, Tensor2},
};

/// A new adapter's rank when none is asked for.
pub const DEFAULT_RANK: u32 = 32;

/// A new adapter's alpha when none is given: Tinker and PEFT users know 32, whatever the rank.
pub const DEFAULT_ALPHA: u32 = 32;

/// Learning rate when none is given: the fork's default, and Tinker's.
pub const DEFAULT_LEARNING_RATE: f64 = 1e-4;

/// The temperature that replies are drawn at when a request names none: a training decision.
///
/// At 0.7 replies are good to read and still vary enough to learn from; without top-p every log-probability is that
/// of the whole distribution. The fork's default for `/v1/sample` is the same.
pub const DEFAULT_TEMPERATURE: f64 = 0.7;
