//! Calls of a vLLM server.

use std::{path::Path, time::Duration};

use bytes::Bytes;
use futures_util::{future::BoxFuture, stream};
use metaclaw_trainer_terms::{
    SampleEvent, SampleStream, SamplerError, SamplerFailure, SamplerRequest,
};
use reqwest::{RequestBuilder, Response, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::events::{VllmErrorBody, VllmEvents};
use crate::ApiKey;

/// The deadline of short calls. A server that is busy with a long prompt still answers these.
const SHORT: Duration = Duration::from_secs(10);
const LOADING: Duration = Duration::from_secs(120);

/// Seeds are limited to the numbers that every JSON parser accepts.
const SEEDS: u64 = 0x7fff_ffff;
const SHOWN: usize = 600;

/// A vLLM server; cheap to clone.
#[derive(Debug, Clone)]
pub struct VllmClient {
    http: reqwest::Client,
    /// It has no `/v1` and no slash at the end.
    url: String,
    key: Option<ApiKey>,
}

/// The models of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VllmModels {
    /// The base model's name in requests.
    pub base: String,
    /// The longest sequence, in tokens.
    pub context: usize,
    /// The loaded adapters: the name and the folder of each.
    pub adapters: Vec<(String, String)>,
}

#[derive(Debug, Deserialize)]
struct ModelList {
    data: Vec<ModelCard>,
}

#[derive(Debug, Deserialize)]
struct ModelCard {
    id: String,
    root: Option<String>,
    parent: Option<String>,
    max_model_len: Option<usize>,
}

// === impl VllmClient ===

impl VllmClient {
    /// Creates a client of the server at `url`, for example `http://127.0.0.1:8000`.
    pub fn new(http: reqwest::Client, url: &str, key: Option<ApiKey>) -> Self {
        let url = url.trim_end_matches('/');
        let url = url.strip_suffix("/v1").unwrap_or(url).to_owned();
        Self { http, url, key }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Checks whether the server and its engine work.
    ///
    /// # Errors
    /// Returns [`SamplerFailure::Unavailable`] while they do not.
    pub fn health(&self) -> BoxFuture<'_, Result<(), SamplerError>> {
        Box::pin(async move {
            let request = self.http.get(format!("{}/health", self.url));
            self.send(request.timeout(SHORT)).await.map(|_| ())
        })
    }

    /// Returns the base model and the loaded adapters.
    ///
    /// # Errors
    /// Returns an error if the server does not answer, or lists no base model.
    pub fn models(&self) -> BoxFuture<'_, Result<VllmModels, SamplerError>> {
        Box::pin(async move {
            let request = self.http.get(format!("{}/v1/models", self.url));
            let answer = self.send(request.timeout(SHORT)).await?;
            let list: ModelList = answer.json().await.map_err(|error| self.broken(&error))?;
            let cards = list.data.into_iter();
            let (bases, adapters): (Vec<ModelCard>, Vec<ModelCard>) =
                cards.partition(|card| card.parent.is_none());
            let none = || self.remote("its list of models is empty");
            let base = bases.into_iter().next().ok_or_else(none)?;
            let untold = || self.remote("it does not tell its max_model_len");
            let adapter = |card: ModelCard| (card.id, card.root.unwrap_or_default());
            Ok(VllmModels {
                base: base.id,
                context: base.max_model_len.ok_or_else(untold)?,
                adapters: adapters.into_iter().map(adapter).collect(),
            })
        })
    }

    /// Loads the adapter in `folder` under a name that was never used at this server, because its prefix cache
    /// identifies adapters by name and folder, not by weights.
    ///
    /// # Errors
    /// Returns the server's message, for example about a rank over its maximum.
    pub fn load_adapter<'a>(
        &'a self,
        name: &'a str,
        folder: &'a Path,
    ) -> BoxFuture<'a, Result<(), SamplerError>> {
        Box::pin(async move {
            let body = json!({"lora_name": name, "lora_path": folder});
            let request = self.http.post(format!("{}/v1/load_lora_adapter", self.url));
            self.send(request.timeout(LOADING).json(&body))
                .await
                .map(|_| ())
        })
    }

    /// Unloads an adapter. Its running replies continue to their ends.
    ///
    /// # Errors
    /// Returns [`SamplerFailure::UnknownModel`] if it is not loaded.
    pub fn unload_adapter<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), SamplerError>> {
        Box::pin(async move {
            let body = json!({"lora_name": name});
            let url = format!("{}/v1/unload_lora_adapter", self.url);
            let request = self.http.post(url).timeout(SHORT);
            self.send(request.json(&body)).await.map(|_| ())
        })
    }

    /// Begins replies to `request`, at most `max_tokens` long, by the base model or the adapter that the server calls
    /// `model`.
    ///
    /// The adapter and the stop texts of `request` are ignored: no token has a text.
    ///
    /// # Errors
    /// Returns what the server refuses at once. A later failure is the stream's last item.
    ///
    /// # Cancel safety
    /// Dropping the future or the stream closes the connection, which makes the server end the request.
    pub fn sample<'a>(
        &'a self,
        model: &'a str,
        request: &'a SamplerRequest,
        max_tokens: usize,
    ) -> BoxFuture<'a, Result<SampleStream, SamplerError>> {
        Box::pin(async move {
            let body = Completions::new(model, request, max_tokens);
            let call = self.http.post(format!("{}/v1/completions", self.url));
            let answer = self.send(call.json(&body)).await?;
            let events = VllmEvents::new(request.n, request.sampling.top_logprobs);
            let reading = Reading {
                client: self.clone(),
                answer,
                events,
                is_over: false,
            };
            Ok(Box::pin(stream::unfold(reading, Reading::next)) as SampleStream)
        })
    }

    async fn send(&self, request: RequestBuilder) -> Result<Response, SamplerError> {
        let request = match &self.key {
            Some(key) => request.bearer_auth(key.expose()),
            None => request,
        };
        let answer = request.send().await.map_err(|error| self.broken(&error))?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        Err(self.refused(answer).await)
    }

    fn broken(&self, error: &reqwest::Error) -> SamplerError {
        let mut why = error.to_string();
        let mut cause = std::error::Error::source(error);
        while let Some(error) = cause {
            why = error.to_string();
            cause = error.source();
        }
        let text = format!("vLLM at {} does not answer: {why}", self.url);
        SamplerError::new(SamplerFailure::Unavailable, text)
    }

    fn remote(&self, why: &str) -> SamplerError {
        let text = format!("vLLM at {}: {why}", self.url);
        SamplerError::new(SamplerFailure::Remote, text)
    }

    async fn refused(&self, answer: Response) -> SamplerError {
        let status = answer.status();
        let body = answer.bytes().await.unwrap_or_default();
        let refusal = read_refusal(&body);
        let failure = match status {
            StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY => SamplerFailure::Request,
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => SamplerFailure::Unauthorized,
            StatusCode::NOT_FOUND => SamplerFailure::UnknownModel,
            StatusCode::TOO_MANY_REQUESTS => SamplerFailure::Busy,
            StatusCode::SERVICE_UNAVAILABLE => SamplerFailure::Unavailable,
            _ => SamplerFailure::Remote,
        };
        let (url, status) = (&self.url, status.as_u16());
        let text = format!("vLLM at {url} answers {status}: {refusal}");
        SamplerError::new(failure, text)
    }
}

/// A reply that is being read. Dropping it closes the connection.
struct Reading {
    client: VllmClient,
    answer: Response,
    events: VllmEvents,
    is_over: bool,
}

// === impl Reading ===

impl Reading {
    async fn next(mut self) -> Option<(Result<SampleEvent, SamplerError>, Self)> {
        loop {
            if let Some(event) = self.events.pop() {
                return Some((Ok(event), self));
            }
            if self.is_over || self.events.is_complete() {
                return None;
            }
            if let Err(error) = self.read().await {
                self.is_over = true;
                return Some((Err(error), self));
            }
        }
    }

    async fn read(&mut self) -> Result<(), SamplerError> {
        let chunk: Option<Bytes> = match self.answer.chunk().await {
            Ok(chunk) => chunk,
            Err(error) => return Err(self.client.broken(&error)),
        };
        let taken = match chunk {
            Some(bytes) => self.events.push(&bytes),
            None => Err("the stream broke off before all replies had ended".to_owned()),
        };
        taken.map_err(|why| self.client.remote(&why))
    }
}

/// A request for continuations. Every field with a default is sent, because the server's defaults come from the model's
/// `generation_config.json`.
#[derive(Debug, Serialize)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "fields of a body, named on the wire"
)]
struct Completions<'a> {
    model: &'a str,
    prompt: &'a [u32],
    n: u32,
    max_tokens: usize,
    min_tokens: usize,
    temperature: f64,
    top_p: f64,
    top_k: usize,
    min_p: f64,
    repetition_penalty: f64,
    presence_penalty: f64,
    frequency_penalty: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<u64>,
    stop_token_ids: &'a [u32],
    ignore_eos: bool,
    /// How many of the likeliest ids to return; 0 returns the sampled ids only.
    logprobs: usize,
    return_token_ids: bool,
    /// Uses ids instead of texts as keys of the most probable ids.
    return_tokens_as_token_ids: bool,
    stream: bool,
    stream_options: VllmStreamOptions,
}

#[derive(Debug, Serialize)]
struct VllmStreamOptions {
    include_usage: bool,
}

// === impl Completions ===

impl<'a> Completions<'a> {
    /// The body for replies of at most `max_tokens` tokens, by the base model or the adapter that the server calls
    /// `model`.
    fn new(model: &'a str, request: &'a SamplerRequest, max_tokens: usize) -> Self {
        let sampling = request.sampling;
        Self {
            model,
            prompt: &request.prompt_ids,
            n: request.n,
            max_tokens,
            min_tokens: sampling.min_tokens.min(max_tokens),
            temperature: sampling.temperature,
            top_p: sampling.top_p,
            top_k: sampling.top_k,
            min_p: sampling.min_p,
            repetition_penalty: sampling.repetition_penalty,
            presence_penalty: sampling.presence_penalty,
            frequency_penalty: sampling.frequency_penalty,
            seed: request.seed.map(|seed| seed & SEEDS),
            stop_token_ids: &request.stop_token_ids,
            ignore_eos: request.ignore_eos,
            logprobs: sampling.top_logprobs,
            return_token_ids: true,
            return_tokens_as_token_ids: true,
            stream: true,
            stream_options: VllmStreamOptions {
                include_usage: true,
            },
        }
    }
}

fn read_refusal(body: &[u8]) -> String {
    let message = serde_json::from_slice::<VllmErrorBody>(body).map(|body| body.error.message);
    let text = message.unwrap_or_else(|_| String::from_utf8_lossy(body).into_owned());
    text.chars().take(SHOWN).collect()
}
