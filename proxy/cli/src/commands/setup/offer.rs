//! A training service, tried: it is asked which models it offers.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use metaclaw_llm::http_client;
use metaclaw_settings::{Service, address::host};
use metaclaw_trainer_api::{
    ApiKey, BackendError, BackendFuture, Datum, TrainingBackend as _,
    tinker::{
        client::{Dialect, HEARTBEAT, LocalText, PATIENCE, TinkerBackend, TinkerConfig},
        json::SupportedModel,
    },
    wire::{ForwardRequest, Sampled, TokenizeReply, TokenizeRequest},
};
use tracing::debug;

use crate::roots;

/// For the whole question.
const DEADLINE: Duration = Duration::from_secs(15);
/// The longest list that is shown.
const MAX_LISTED: usize = 200;

/// Whom to ask, and by which key.
pub(super) struct Asked {
    pub service: Service,
    /// The address that `/api/v1` follows.
    pub url: String,
    pub key: String,
}

/// A model that the service trains.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Offered {
    pub name: String,
    /// The longest sequence, in tokens, where the service says.
    pub context: Option<u32>,
}

/// Setup asks for no text.
#[derive(Debug)]
struct NoText;

// === impl NoText ===

impl NoText {
    fn refusal<T: Send + 'static>(call: &'static str) -> BackendFuture<'static, T> {
        let why = "setup has no tokenizer".to_owned();
        Box::pin(async move { Err(BackendError::Request { call, why }) })
    }
}

impl LocalText for NoText {
    fn tokenize(&self, _: TokenizeRequest) -> BackendFuture<'_, TokenizeReply> {
        Self::refusal("tokenize")
    }

    fn decode(&self, _: Vec<u32>) -> BackendFuture<'_, String> {
        Self::refusal("decode")
    }

    fn sampled(&self, _: String) -> BackendFuture<'_, Option<Sampled>> {
        Self::refusal("sampled")
    }
}

// === impl Asked ===

impl Asked {
    /// The models that the service trains, in its order.
    ///
    /// # Errors
    /// In words that name the service's host: it cannot be reached, refuses the key, or its answer cannot be read.
    pub(super) async fn models(&self) -> anyhow::Result<Vec<Offered>> {
        let host = host(&self.url);
        let client = self.client("")?;
        let asked = tokio::time::timeout(DEADLINE, client.offer()).await;
        let asked = asked.with_context(|| format!("{host}: no answer in {} s", DEADLINE.as_secs()));
        let offer = asked?.with_context(|| format!("{host} does not say which models it has"))?;
        let trained = offer.into_iter().filter(|it| it.trainable != Some(false));
        Ok(trained.filter_map(offered).take(MAX_LISTED).collect())
    }

    /// Whether the service says how likely its model finds a given reply; none where that cannot be found out now. It is
    /// sent a token, and no text.
    pub(super) async fn scores(&self, model: &str) -> Option<bool> {
        let client = self.client(model).ok()?;
        let token = || vec![0];
        let request = ForwardRequest {
            session_id: "00000000".parse().ok()?,
            datums: vec![Datum::cross_entropy(token(), token(), vec![1.0]).ok()?],
            adapter: false,
            positions: None,
            top_k: 0,
        };
        let asked = tokio::time::timeout(DEADLINE, client.forward(request)).await;
        client.finish().await;
        match asked.ok()? {
            Ok(_) => Some(true),
            Err(error) => {
                debug!(%error, "asked whether it scores replies");
                error.is_not_supported().then_some(false)
            }
        }
    }

    fn client(&self, model: &str) -> anyhow::Result<TinkerBackend> {
        Ok(TinkerBackend::new(TinkerConfig {
            client: http_client(&roots::load())?,
            url: self.url.trim_end_matches('/').to_owned(),
            key: ApiKey::new(&*self.key),
            project: None,
            base_model: model.to_owned(),
            dialect: match self.service {
                Service::Tinker => Dialect::Current,
                Service::Mint | Service::Weaver => Dialect::Json,
            },
            timeout: DEADLINE,
            patience: PATIENCE,
            heartbeat: HEARTBEAT,
            folder: None,
            keep: 0,
            text: Arc::new(NoText),
        }))
    }
}

fn offered(model: SupportedModel) -> Option<Offered> {
    Some(Offered {
        name: model.model_name?,
        context: model.max_context_length,
    })
}
