//! The JSON bodies. Fields that the SDK omits are absent; fields that a newer SDK adds are not read.

mod checkpoints;
mod datum;
mod futures;
mod sample;
mod session;
mod train;

pub use self::{
    checkpoints::{
        Checkpoint, CheckpointList, Cursor, TrainingRun, TrainingRunsReply, WeightsInfo,
        WeightsInfoRequest,
    },
    datum::{
        ForwardBackward, ForwardBackwardInput, JsonDatum, JsonTrainOutput, ModelInput, PromptChunk,
        TensorData,
    },
    futures::{
        CancelFuture, FailedPromise, FailureCategory, Promise, QueueState, RetrieveFuture, TryAgain,
    },
    sample::{
        CreateSamplingSession, JsonSample, JsonSequence, SampleCall, SampleStop, SamplerInfo,
        SamplingSession, StopReason, TinkerSamplingParams, TopK,
    },
    session::{
        ClientConfig, ClientConfigRequest, ClientEnd, CreateSession, CreatedSession, DynamicConfig,
        FinishSession, HealthStatus, Heartbeat, HeartbeatReply, ServerCapabilities, SupportedModel,
    },
    train::{
        AdamParams, CreateModel, CreatedModel, GetInfo, LoadWeights, LoraConfig, ModelData,
        ModelInfo, OptimStep, OptimStepped, OptimizerConfig, SaveForSampler, SaveWeights,
        SavedForSampler, SavedWeights, UnloadModel,
    },
};
