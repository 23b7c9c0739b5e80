//! State that all chat routes share: a model's text side, the sampler, and the sampled records.

use std::sync::Arc;

use metaclaw_trainer_terms::{AdapterName, Sampler};
use metaclaw_trainer_text::served::ServedTokenIndex;

use crate::{
    bodies::Pool,
    error::ApiError,
    fields::cut,
    model::{Always, Model, ModelSource},
    queue::RequestQueue,
    sampled::{self, SampledRing},
};

const REMEMBERED: usize = 32 << 20;
/// A name for the base model besides its own.
pub const BASE: &str = "base";
/// A name that stands for no particular model.
pub const DEFAULT: &str = "default";

/// Limits of a front.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Largest number of replies that wait or run at once.
    pub n_queue: usize,
    /// Largest body in bytes.
    pub body: usize,
    /// Largest number of bytes of bodies that are being read.
    pub bodies: usize,
    /// Largest number of bytes of sampled records.
    pub sampled: usize,
}

/// The state of all chat routes. It is cheap to clone.
#[derive(Debug, Clone)]
pub struct Front(Arc<FrontState>);

#[derive(Debug)]
struct FrontState {
    source: Arc<dyn ModelSource>,
    sampler: Arc<dyn Sampler>,
    served: Arc<ServedTokenIndex>,
    sampled: SampledRing,
    queue: RequestQueue,
    bodies: Pool,
    most: usize,
}

// === impl Limits ===

impl Default for Limits {
    fn default() -> Self {
        Self {
            n_queue: 256,
            body: 256 << 20,
            bodies: 64 << 20,
            sampled: sampled::MAX_BYTES,
        }
    }
}

// === impl Front ===

impl Front {
    /// Makes a front for a sampler of one model.
    pub fn new(model: Model, sampler: Arc<dyn Sampler>, limits: Limits) -> Self {
        Self::with_source(Arc::new(Always(Arc::new(model))), sampler, limits)
    }

    /// Makes a front for a sampler whose model may be loaded later.
    pub fn with_source(
        source: Arc<dyn ModelSource>,
        sampler: Arc<dyn Sampler>,
        limits: Limits,
    ) -> Self {
        Self(Arc::new(FrontState {
            source,
            sampler,
            served: Arc::new(ServedTokenIndex::new(REMEMBERED)),
            sampled: SampledRing::new(limits.sampled, sampled::KEEP),
            queue: RequestQueue::new(limits.n_queue),
            bodies: Pool::new("chats", limits.bodies, limits.n_queue),
            most: limits.body.min(limits.bodies),
        }))
    }

    /// Returns the model.
    ///
    /// # Errors
    /// Answers 503 if there is none yet.
    pub fn model(&self) -> Result<Arc<Model>, ApiError> {
        self.0.source.model()
    }

    /// Returns the queue for requests for text.
    pub fn queue(&self) -> &RequestQueue {
        &self.0.queue
    }

    pub(crate) fn sampler(&self) -> &Arc<dyn Sampler> {
        &self.0.sampler
    }

    pub(crate) fn served(&self) -> &Arc<ServedTokenIndex> {
        &self.0.served
    }

    pub(crate) fn sampled(&self) -> &SampledRing {
        &self.0.sampled
    }

    pub(crate) fn bodies(&self) -> &Pool {
        &self.0.bodies
    }

    pub(crate) fn most(&self) -> usize {
        self.0.most
    }

    /// Returns the adapter that `model` names, or `None` for the base model.
    ///
    /// # Errors
    /// Answers 404 `model_not_found`, which names the existing ones, and 503 if there is no model yet.
    pub async fn resolve(&self, model: Option<&str>) -> Result<Option<AdapterName>, ApiError> {
        let base = self.model()?;
        let name = match model {
            None | Some("" | DEFAULT) => return Ok(self.sampler().default_adapter()),
            Some(name) if name == BASE || name == base.name() => return Ok(None),
            Some(name) => name,
        };
        if let Ok(adapter) = name.parse::<AdapterName>()
            && self.sampler().has_adapter(&adapter).await?
        {
            return Ok(Some(adapter));
        }
        Err(self.unknown(name, &base).await)
    }

    async fn unknown(&self, name: &str, base: &Model) -> ApiError {
        const SHOWN: usize = 20;
        let adapters = self.sampler().adapters().await.unwrap_or_default();
        let more = adapters.len().saturating_sub(SHOWN);
        let shown = adapters.iter().map(AdapterName::as_str).take(SHOWN);
        let mut there: Vec<&str> = shown.collect();
        there.insert(0, base.name());
        let there = there.join(", ");
        let more = if more > 0 {
            format!(" and {more} more")
        } else {
            String::new()
        };
        let name = cut(name);
        ApiError::unknown_model(format!(
            "model {name:?} is not here: there is {there}{more}"
        ))
    }
}
