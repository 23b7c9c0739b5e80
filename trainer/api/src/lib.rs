//! Wire types and client of the training API; no libtorch.
//!
//! One vocabulary for training: a *run* holds an adapter, its gradients and its optimiser; its terms are
//! `trainer/terms`', which the engine shares; [`TrainingBackend`] is what a learner asks for, whoever answers. [`RemoteBackend`] speaks the self-hosted REST dialect, and the server
//! of that dialect uses the same request and reply structs, so the two cannot drift apart.

mod backend;
mod error;
mod remote;
pub mod tinker;
pub mod vllm;
pub mod wire;

pub use self::{
    backend::{BackendError, BackendFuture, TrainingBackend},
    error::{ErrorBody, ErrorDetail},
    remote::{ApiKey, Endpoint, RemoteBackend, RemoteConfig},
};
pub use metaclaw_trainer_terms::{
    AdapterName, CheckpointName, DEFAULT_ALPHA, DEFAULT_LEARNING_RATE, DEFAULT_RANK,
    DEFAULT_TEMPERATURE, Datum, DatumError, DatumParts, ErrorCode, LossConfig, LossFn, NameError,
    RunId, ShapeError, Tensor2, UnknownLoss,
};
