//! vLLM as the sampler of the chat routes.

use std::sync::{Arc, OnceLock};

use futures_util::StreamExt as _;
use metaclaw_trainer_api::AdapterName;
use metaclaw_trainer_chat::{Model, ModelSource};
use metaclaw_trainer_terms::{
    Sampler, SamplerError, SamplerFailure, SamplerFuture, SamplerRequest, Sampling,
};

use super::link::Link;
use crate::{error::Result, serving::EngineSampler};

/// vLLM, which is asked for samples. The engine knows which requests are allowed.
#[derive(Debug)]
pub(crate) struct VllmServing {
    link: Arc<Link>,
    engine: EngineSampler,
    model: OnceLock<Arc<Model>>,
}

#[derive(derive_more::From)]
enum Unbegun {
    #[from]
    Failed(SamplerError),
    /// The adapter was unloaded between its check and the request.
    Unloaded(SamplerError),
    /// The server lost what it had, because it was restarted.
    Lost(SamplerError),
}

// === impl Unbegun ===

impl From<Unbegun> for SamplerError {
    fn from(unbegun: Unbegun) -> Self {
        match unbegun {
            Unbegun::Failed(error) | Unbegun::Unloaded(error) | Unbegun::Lost(error) => error,
        }
    }
}

// === impl VllmServing ===

impl VllmServing {
    pub(crate) fn new(link: Arc<Link>, engine: EngineSampler) -> Self {
        let model = OnceLock::new();
        Self {
            link,
            engine,
            model,
        }
    }

    async fn begin(&self, request: &SamplerRequest) -> Result<Sampling, Unbegun> {
        let ready = self.link.ready()?;
        let n_prompt = request.prompt_ids.len();
        let room = ready.context.saturating_sub(n_prompt);
        if room == 0 {
            return Err(SamplerError::context(n_prompt, ready.context).into());
        }
        let loaded = match &request.adapter {
            Some(name) => Some(self.link.adapter(name, &ready).await?),
            None => None,
        };
        let model = loaded
            .as_ref()
            .map_or(&ready.base, |adapter| &adapter.served);
        let max_tokens = request.max_tokens.min(room);
        let sampled = self.link.client.sample(model, request, max_tokens).await;
        let events = sampled.map_err(|error| match error.failure() {
            SamplerFailure::UnknownModel => match &loaded {
                Some(loaded) if !self.link.holds(&loaded.served) => Unbegun::Unloaded(error),
                Some(_) | None => Unbegun::Lost(error),
            },
            _ => Unbegun::Failed(error),
        })?;
        Ok(Sampling {
            version: loaded.as_ref().map(|adapter| adapter.step),
            // The adapter's folder stays until the last reply that uses it has ended.
            events: Box::pin(events.map(move |event| {
                let _used = &loaded;
                event
            })),
        })
    }

    /// Does the same for a server that may have been restarted since its last check.
    async fn begin_again(&self, request: &SamplerRequest) -> Result<Sampling, SamplerError> {
        self.link
            .lost("it was started anew, and is looked at".to_owned());
        self.link.check().await;
        Ok(self.begin(request).await?)
    }
}

impl ModelSource for VllmServing {
    fn model(&self) -> Result<Arc<Model>> {
        if let Some(model) = self.model.get() {
            return Ok(Arc::clone(model));
        }
        let model = self.engine.model()?;
        // vLLM returns ids only, so the caller has to know which of them end a reply.
        let end_ids = self.link.host.end_ids();
        let model = Arc::new(Model::clone(&model).with_end_ids(end_ids));
        Ok(Arc::clone(self.model.get_or_init(|| model)))
    }
}

impl Sampler for VllmServing {
    fn sample(&self, request: SamplerRequest) -> SamplerFuture<'_, Sampling> {
        Box::pin(async move {
            match self.begin(&request).await {
                Ok(begun) => Ok(begun),
                Err(Unbegun::Unloaded(_)) => Ok(self.begin(&request).await?),
                Err(Unbegun::Lost(_)) => self.begin_again(&request).await,
                Err(Unbegun::Failed(error)) if error.failure() == SamplerFailure::Remote => {
                    Err(self.link.away_or(error).await)
                }
                Err(Unbegun::Failed(error)) => Err(error),
            }
        })
    }

    fn check(&self, request: &SamplerRequest) -> Result<(), SamplerError> {
        self.engine.check(request)
    }

    fn adapters(&self) -> SamplerFuture<'_, Vec<AdapterName>> {
        self.engine.adapters()
    }

    fn has_adapter<'a>(&'a self, name: &'a AdapterName) -> SamplerFuture<'a, bool> {
        self.engine.has_adapter(name)
    }

    fn default_adapter(&self) -> Option<AdapterName> {
        self.engine.default_adapter()
    }
}
