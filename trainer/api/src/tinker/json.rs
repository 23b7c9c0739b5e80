//! The JSON bodies. Fields that the SDK omits are absent; fields that a newer SDK adds are not read.

mod checkpoints;
mod datum;
mod futures;
mod sample;
mod session;
mod train;

pub use self::{
    checkpoints::{
        Checkpoint, CheckpointsReply, Cursor, TrainingRun, TrainingRunsReply, WeightsInfo,
        WeightsInfoRequest,
    },
    datum::{
        Chunk, ForwardBackward, ForwardBackwardInput, JsonDatum, JsonTrainOutput, ModelInput,
        TensorData,
    },
    futures::{
        CancelFuture, Failed, FailureCategory, Promise, QueueState, RetrieveFuture, TryAgain,
    },
    sample::{
        CreateSamplingSession, JsonSample, JsonSequence, Sample, SampleStop, Sampler,
        SamplingParams, SamplingSession, StopReason, TopK,
    },
    session::{
        ClientConfig, ClientConfigRequest, CreateSession, DynamicConfig, FinishReason,
        FinishSession, Heartbeat, HeartbeatReply, ServerCapabilities, Session, Status,
        SupportedModel,
    },
    train::{
        AdamParams, CreateModel, GetInfo, LoadWeights, LoraConfig, Model, ModelData, ModelInfo,
        OptimStep, OptimStepped, OptimizerConfig, SaveForSampler, SaveWeights, SavedForSampler,
        SavedWeights, UnloadModel,
    },
};
