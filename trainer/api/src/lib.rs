//! Terms, wire types and client of the training API; no libtorch.
//!
//! One vocabulary for training: a *run* holds an adapter, its gradients and its optimiser; a
//! [`Datum`] is a sequence with what a loss needs beside it; [`TrainingBackend`] is what a learner
//! asks for, whoever answers. [`RemoteBackend`] speaks the self-hosted REST dialect, and the server
//! of that dialect uses the same request and reply structs, so the two cannot drift apart.
//!
//! A name that becomes a path is parsed once, here, into a type that cannot hold a separator.

mod backend;
mod datum;
mod error;
mod loss;
mod names;
mod remote;
mod tensor;
pub mod wire;

pub use self::{
    backend::{BackendError, BackendFuture, TrainingBackend},
    datum::{Datum, DatumError, DatumParts},
    error::{ErrorBody, ErrorDetail},
    loss::{LossConfig, LossFn, UnknownLoss},
    names::{AdapterName, CheckpointName, NameError, RunId},
    remote::{ApiKey, Endpoint, RemoteBackend, RemoteConfig},
    tensor::{ShapeError, Tensor2},
};
