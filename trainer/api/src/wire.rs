//! Requests and replies of the REST API: `spec/remote-training.md`, and MetaClaw's extensions.
//!
//! Field names and defaults are those of the community fork's `remote` backend. Fields that only this server sends are
//! optional for a client, so that the fork's replies are understood too.

mod adapters;
mod health;
mod text;
mod train;

pub use self::{
    adapters::{
        AdapterInfo, AdaptersReply, CloseRunReply, CloseRunRequest, DeleteReply, LoadAdapterReply,
        LoadAdapterRequest, PruneReply, PruneRequest, UnloadAdapterRequest, UnloadReply,
    },
    health::{Capabilities, DeviceInfo, Health, Inference, InferenceState},
    text::{
        SampleReply, SampleRequest, Sampled, SampledSequence, Stop, TokenizeReply, TokenizeRequest,
    },
    train::{
        AdamSettings, CheckpointInfo, CheckpointLoadReply, CheckpointLoadRequest,
        CheckpointSaveReply, CheckpointSaveRequest, CheckpointsReply, CreateReply, CreateRequest,
        ForwardBackwardReply, ForwardBackwardRequest, ForwardReply, ForwardRequest, LossFnOutput,
        OptimStepReply, OptimStepRequest, SaveWeightsReply, SaveWeightsRequest,
    },
};

fn yes() -> bool {
    true
}

fn ok() -> String {
    "ok".to_owned()
}

#[cfg(test)]
mod tests;
