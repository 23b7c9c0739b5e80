//! The engine as the sampler behind the chat routes, and the adapter for requests that name no model.

use std::{convert::identity, sync::Arc};

use futures_util::{Stream, stream};
use metaclaw_trainer_api::AdapterName;
use metaclaw_trainer_chat::{BASE, DEFAULT, Model, ModelSource};
use metaclaw_trainer_terms::{
    SampleEvent, Sampler, SamplerError, SamplerFailure, SamplerFuture, SamplerRequest, Sampling,
};

use crate::error::Result;
use crate::{
    error::ApiError,
    host::{Generation, Host},
};
use parking_lot::Mutex;

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
    fn model(&self) -> Result<Arc<Model>> {
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
            let events = Box::pin(stream::select_all(events));
            Ok(Sampling { version, events })
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

#[derive(Debug, Default)]
pub(crate) struct DefaultAdapter {
    /// The adapter that this process saved last, as the fork's server serves it. After a restart it is the base until
    /// the next save. Our gateway always names an adapter.
    last_saved: Mutex<Option<AdapterName>>,
}

// === impl DefaultAdapter ===

impl DefaultAdapter {
    /// A new adapter is there: requests that name none go to it from now on.
    pub(crate) fn saved(&self, name: AdapterName) {
        *self.last_saved.lock() = Some(name);
    }

    /// Checks that an adapter may be deleted, which is not allowed for the default adapter.
    ///
    /// # Errors
    /// Returns 409.
    pub(crate) fn check_unused(&self, name: &AdapterName) -> Result<()> {
        if self.last_saved().as_ref() != Some(name) {
            return Ok(());
        }
        let text = format!(
            "adapter {name} is in use: it was saved last, so requests that name no model go to it; save another first"
        );
        Err(ApiError::adapter_in_use(text))
    }

    pub(crate) fn last_saved(&self) -> Option<AdapterName> {
        self.last_saved.lock().clone()
    }

    /// Checks an adapter's name: a name that means the base model could never be requested.
    ///
    /// # Errors
    /// Returns 400 with the field.
    pub(crate) fn check_free(name: &AdapterName, host: &Host) -> Result<()> {
        let name = name.as_str();
        if name != BASE && name != DEFAULT && name != host.base() {
            return Ok(());
        }
        let text =
            format!("name {name:?} is not allowed for an adapter: it asks for another model");
        Err(ApiError::field("name", text))
    }
}
