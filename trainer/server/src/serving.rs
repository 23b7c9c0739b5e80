//! The engine as the sampler behind the chat routes.

use std::{convert::identity, sync::Arc};

use futures_util::{Stream, stream};
use metaclaw_trainer_api::AdapterName;
use metaclaw_trainer_chat::{Model, ModelSource};
use metaclaw_trainer_terms::{
    SampleEvent, Sampler, SamplerError, SamplerFailure, SamplerFuture, SamplerRequest, Sampling,
};

use crate::{
    error::ApiError,
    host::{Generation, Host},
    models::DefaultAdapter,
};

/// The engine, asked for samples.
#[derive(Debug)]
pub(crate) struct EngineSampler {
    host: Arc<Host>,
    models: Arc<DefaultAdapter>,
}

// === impl EngineSampler ===

impl EngineSampler {
    pub(crate) fn new(host: Arc<Host>, models: Arc<DefaultAdapter>) -> Self {
        Self { host, models }
    }
}

impl ModelSource for EngineSampler {
    fn model(&self) -> Result<Arc<Model>, ApiError> {
        self.host.model()
    }
}

impl Sampler for EngineSampler {
    fn sample(&self, request: SamplerRequest) -> SamplerFuture<'_, Sampling> {
        Box::pin(async move {
            let n = request.n;
            let generations = self.host.generate(request.into(), n).await?;
            let version = generations.first().and_then(Generation::version);
            let events = (0..).zip(generations);
            let events = events.map(|(choice, generation)| events_of(choice, generation));
            Ok(Sampling {
                version,
                events: Box::pin(stream::select_all(events)),
            })
        })
    }

    fn check(&self, request: &SamplerRequest) -> Result<(), SamplerError> {
        self.host.check_draw(request.clone().into(), identity)
    }

    fn adapters(&self) -> SamplerFuture<'_, Vec<AdapterName>> {
        let names = self.host.adapter_names();
        let failed =
            |error: ApiError| SamplerError::new(SamplerFailure::Internal, error.to_string());
        Box::pin(async move { names.map_err(failed) })
    }

    fn has_adapter<'a>(&'a self, name: &'a AdapterName) -> SamplerFuture<'a, bool> {
        Box::pin(async move { Ok(self.host.has_adapter(name)) })
    }

    fn default_adapter(&self) -> Option<AdapterName> {
        self.models.last_saved()
    }
}

/// The events of one reply until its end.
fn events_of(
    choice: u32,
    generation: Generation,
) -> impl Stream<Item = Result<SampleEvent, SamplerError>> + Send + Unpin {
    let going = stream::unfold(Some(generation), move |generation| async move {
        let mut generation = generation?;
        let event = generation.next(choice).await;
        let goes_on = matches!(event, Ok(SampleEvent::Token { .. }));
        Some((event, goes_on.then_some(generation)))
    });
    Box::pin(going)
}
