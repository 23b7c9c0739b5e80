//! Tinker's wire format, as SDK 0.38 and the JSON dialect of SDK 0.24 and older have it; for client and server.
//!
//! [`proto`] has the protobuf messages, [`json`] the JSON bodies, `names` the ids and `tinker://` paths. What both
//! dialects say is one type here: a datum ([`from_proto`], [`from_json`]), [`TrainOutput`], [`SampleOutput`].
//!
//! The protocol in short: a call that takes long answers a promise ([`json::Promise`]) at once, and the result is
//! fetched by `retrieve_future`. Each model counts its calls (`seq_id`, from 1), and the server executes them in that
//! order whatever order they arrive in.

pub mod client;
mod datum;
pub mod json;
mod names;
mod output;
pub mod proto;
mod sample;
mod tensor;

pub use self::{
    datum::{from_json, from_proto, to_json, to_proto},
    json::{StopReason, TopK},
    names::{
        IdError, ModelId, PathError, RequestId, SamplerId, TinkerPath, TinkerSessionId, WeightsKind,
    },
    output::TrainOutput,
    sample::{SampleOutput, Sequence},
    tensor::{MAX_ELEMENTS, WireError},
};

/// Media type of protobuf bodies.
pub const PROTOBUF: &str = "application/x-protobuf";

#[cfg(test)]
mod tests;
