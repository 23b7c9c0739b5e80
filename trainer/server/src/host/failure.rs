//! Errors of the engine as answers.

use std::{fmt::Display, io::ErrorKind};

use metaclaw_engine::{
    adapter::AdapterError, datum::TrainInputError, device::is_out_of_memory, engine::EngineError,
    generate::GenerateError, lora::LoraError, optim::OptimError, run::AccumulateError,
    runs::UnknownRun, sampler::SampleError, tensors::FileError, train::TrainJobError,
};

use metaclaw_trainer_terms::{ErrorCode, SamplerError, SamplerFailure};

use crate::error::ApiError;

#[derive(Debug, thiserror::Error)]
pub(super) enum RunError {
    #[error("{0}")]
    Engine(#[from] EngineError),
    #[error("{0}")]
    Generate(#[from] GenerateError),
    #[error("{0}")]
    Unknown(#[from] UnknownRun),
    #[error("{0}")]
    Lora(#[from] LoraError),
    #[error("{0}")]
    Train(#[from] TrainJobError),
    #[error("{0}")]
    Accumulate(#[from] AccumulateError),
    #[error("{0}")]
    Step(#[from] OptimError),
    #[error("{0}")]
    Adapter(#[from] AdapterError),
}

impl From<RunError> for ApiError {
    fn from(error: RunError) -> Self {
        let text = error.to_string();
        match error {
            RunError::Engine(error) => engine(&error, text),
            RunError::Generate(error) => generate(&error).into(),
            RunError::Unknown(_) => Self::not_found(ErrorCode::RunNotFound, text),
            RunError::Lora(error) => lora(&error, text),
            RunError::Train(error) => train(&error, text),
            RunError::Accumulate(AccumulateError::Stale(_)) => Self::conflict(text),
            RunError::Accumulate(AccumulateError::Torch(error)) => torch(&error, text),
            RunError::Step(error) => step(&error, text),
            RunError::Adapter(error) => adapter(&error, text),
        }
    }
}

/// What libtorch refused: want of memory passes, anything else is a defect.
fn torch(error: &impl Display, text: String) -> ApiError {
    if is_out_of_memory(error) {
        return ApiError::unavailable(text).with_code(ErrorCode::OutOfMemory);
    }
    ApiError::internal(text)
}

fn engine(error: &EngineError, text: String) -> ApiError {
    match error {
        EngineError::Busy { .. } => ApiError::busy(text),
        EngineError::Failed => ApiError::internal(text),
        EngineError::Stopped => ApiError::unavailable(text),
    }
}

pub(super) fn generate(error: &GenerateError) -> SamplerError {
    let text = error.to_string();
    let failed = |failure| SamplerError::new(failure, text.clone());
    match error {
        GenerateError::Param(param) => param.clone().into(),
        GenerateError::EmptyPrompt | GenerateError::UnknownId { .. } => {
            SamplerError::field("tokens", text)
        }
        GenerateError::Context { n_prompt, context } => SamplerError::context(*n_prompt, *context),
        GenerateError::Memory { .. } => {
            failed(SamplerFailure::Unavailable).with_code(ErrorCode::KvBudgetExceeded)
        }
        GenerateError::Adapter { missing: true, .. } => failed(SamplerFailure::UnknownModel),
        GenerateError::Adapter { missing: false, .. } => {
            SamplerError::field("model", text).with_code(ErrorCode::AdapterRefused)
        }
        GenerateError::AdapterBusy { .. } | GenerateError::Stopped => {
            failed(SamplerFailure::Unavailable)
        }
        GenerateError::Busy { .. } => failed(SamplerFailure::Busy),
        GenerateError::Sample(SampleError::Torch(error)) | GenerateError::Torch(error)
            if is_out_of_memory(error) =>
        {
            failed(SamplerFailure::Unavailable).with_code(ErrorCode::OutOfMemory)
        }
        GenerateError::Sample(SampleError::NotFinite) => {
            failed(SamplerFailure::Internal).with_code(ErrorCode::WeightsNotFinite)
        }
        GenerateError::Sample(_) | GenerateError::Torch(_) | GenerateError::Panicked(_) => {
            failed(SamplerFailure::Internal)
        }
    }
}

fn lora(error: &LoraError, text: String) -> ApiError {
    match error {
        LoraError::Rank { .. } => ApiError::field("rank", text),
        LoraError::NoTargets | LoraError::UnknownTarget { .. } | LoraError::NotInModel { .. } => {
            ApiError::field("targets", text)
        }
        LoraError::Alpha => ApiError::field("lora_alpha", text),
        LoraError::Missing { .. } | LoraError::Unexpected { .. } | LoraError::Shape { .. } => {
            ApiError::bad(text)
        }
        LoraError::Torch(error) => torch(error, text),
    }
}

fn train(error: &TrainJobError, text: String) -> ApiError {
    match error {
        TrainJobError::Input(
            TrainInputError::Positions { .. } | TrainInputError::Position { .. },
        ) => ApiError::field("positions", text),
        TrainJobError::Input(error) => match error.datum() {
            Some(at) => ApiError::field(datum(at), text),
            None => ApiError::field("datums", text),
        },
        // A model that computes with numbers answers with one: these weights do not, whatever they are shown.
        TrainJobError::NotFinite { logprob, .. } if logprob.is_nan() => {
            ApiError::bad(text).with_code(ErrorCode::WeightsNotFinite)
        }
        TrainJobError::NotFinite { datum: at, .. } => {
            ApiError::field(datum(*at), text).with_code(ErrorCode::LossNotFinite)
        }
        TrainJobError::Memory { datum: at, .. } => {
            ApiError::field(datum(*at), text).with_code(ErrorCode::OutOfMemory)
        }
        TrainJobError::TopK { .. } => ApiError::field("top_k", text),
        TrainJobError::OutOfMemory { .. } => {
            ApiError::unavailable(text).with_code(ErrorCode::OutOfMemory)
        }
        TrainJobError::Torch(error) => torch(error, text),
        TrainJobError::Layers { .. } => ApiError::internal(text),
    }
}

/// A client that knows which one is wrong can go on without it.
fn datum(at: usize) -> String {
    format!("datums[{at}]")
}

fn step(error: &OptimError, text: String) -> ApiError {
    match error {
        OptimError::NoGradients => ApiError::bad(text).with_code(ErrorCode::NoGradients),
        OptimError::Setting { field, .. } => ApiError::field(*field, text),
        OptimError::NotFinite { .. } => ApiError::bad(text).with_code(ErrorCode::GradientNotFinite),
        OptimError::Torch(error) => torch(error, text),
    }
}

fn adapter(error: &AdapterError, text: String) -> ApiError {
    match error {
        AdapterError::Unknown { .. } => ApiError::unknown_model(text),
        AdapterError::NoCheckpoint { .. } => {
            ApiError::not_found(ErrorCode::CheckpointNotFound, text)
        }
        AdapterError::Field { .. } | AdapterError::Base { .. } | AdapterError::Tensors { .. } => {
            ApiError::bad(text).with_code(ErrorCode::AdapterRefused)
        }
        // It stays damaged however often it is asked for, so the client gets an error that ends its tries.
        AdapterError::Content { .. } | AdapterError::File(FileError::Damaged { .. }) => {
            ApiError::bad(text).with_code(ErrorCode::AdapterDamaged)
        }
        AdapterError::File(FileError::Read { source, .. })
            if source.kind() == ErrorKind::NotFound =>
        {
            ApiError::bad(text).with_code(ErrorCode::AdapterDamaged)
        }
        AdapterError::Memory { .. } | AdapterError::Changing { .. } => ApiError::unavailable(text),
        AdapterError::Torch(error) => torch(error, text),
        AdapterError::File(_) | AdapterError::Interrupted { .. } => ApiError::internal(text),
    }
}

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse as _;
    use metaclaw_trainer_api::LossFn;

    use super::*;

    fn place_and_code(error: TrainJobError) -> (Option<String>, Option<ErrorCode>) {
        let detail = ApiError::from(RunError::Train(error)).body().error;
        (detail.param, detail.code)
    }

    #[test]
    fn a_client_is_told_which_datum_is_wrong_and_when_none_is() {
        let not_finite = |logprob: f32| TrainJobError::NotFinite {
            loss: LossFn::ImportanceSampling,
            datum: 3,
            position: 1,
            logprob,
            sampled: -1e30,
        };
        let third = || Some("datums[3]".to_owned());
        assert_eq!(
            place_and_code(not_finite(-9.0)),
            (third(), Some(ErrorCode::LossNotFinite))
        );
        let weights = (None, Some(ErrorCode::WeightsNotFinite));
        assert_eq!(place_and_code(not_finite(f32::NAN)), weights);
        let long = TrainJobError::Memory {
            datum: 3,
            n_tokens: 9,
            needed: 9,
            budget: 1,
            max_tokens: 1,
        };
        assert_eq!(
            place_and_code(long),
            (third(), Some(ErrorCode::OutOfMemory))
        );
        let smallest = || TrainJobError::OutOfMemory {
            detail: "can't allocate memory".into(),
        };
        assert_eq!(
            place_and_code(smallest()),
            (None, Some(ErrorCode::OutOfMemory))
        );
        let refused = ApiError::from(RunError::Train(smallest())).into_response();
        assert_eq!(refused.status(), 503);
        let long = TrainInputError::TooLong {
            datum: 3,
            found: 9,
            max: 8,
        };
        assert_eq!(place_and_code(TrainJobError::Input(long)), (third(), None));
        let none = TrainJobError::Input(TrainInputError::None);
        assert_eq!(place_and_code(none), (Some("datums".to_owned()), None));
    }
}
