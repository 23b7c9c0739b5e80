//! Tinker's wire format, in the forms of SDK 0.38 and of the JSON of SDK 0.24 and older, for client and server.
//!
//! [`proto`] has the protobuf messages, [`json`] the JSON bodies, `names` the ids and `tinker://` paths. What both
//! forms express is one type here: a datum ([`from_proto`], [`from_json`]), [`TrainOutput`], [`SampleOutput`].
//!
//! The protocol in short: a long call is answered at once with a promise ([`json::Promise`]), and `retrieve_future`
//! fetches the result. Each model numbers its calls (`seq_id`, from 1), and the server carries them out in that order,
//! whatever order they arrive in.

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

/// The media type of protobuf bodies.
pub const PROTOBUF: &str = "application/x-protobuf";

#[cfg(test)]
mod tests;
