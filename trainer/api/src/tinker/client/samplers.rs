//! Samplers: the base model, saved adapters, and a run's weights as they are now. Sampling changes nothing, so a call whose
//! answer is lost is made again.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use metaclaw_trainer_terms::ErrorCode;

use super::{
    bodies,
    futures::{self, Either, PollLimits, SendOutcome},
    http::HttpRequest,
    models::{ModelCalls, ServerSampler},
    places::needs_place,
    session::is_gone,
    training::TinkerUsage,
};
use crate::backend::Result;
use crate::{
    BackendError,
    tinker::{
        SampleOutput,
        json::{CancelFuture, JsonSample, Promise, SampleCall, SamplingSession},
        proto::SampleResponse,
    },
};

/// The most samplers of saved weights that are kept. A dropped sampler is made again on demand.
const MOST: usize = 64;
/// How long a chat's server may say that it has too much to do.
const OF_CHAT: Duration = Duration::from_secs(2);
const ASAMPLE: &str = "asample";

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum WeightsSource {
    Base,
    /// The path `tinker://…/sampler_weights/…`, or `tinker://…/weights/…`, which needs a separate model
    /// ([`super::places`]).
    Saved(String),
}

#[derive(Debug)]
pub(super) struct Samplers {
    models: Arc<ModelCalls>,
    usage: Arc<TinkerUsage>,
    open: tokio::sync::Mutex<BTreeMap<WeightsSource, Arc<ServerSampler>>>,
}

// === impl Samplers ===

impl Samplers {
    pub(super) fn new(models: Arc<ModelCalls>, usage: Arc<TinkerUsage>) -> Self {
        Self {
            models,
            usage,
            open: tokio::sync::Mutex::default(),
        }
    }

    /// A sampler of these weights.
    ///
    /// # Errors
    /// The server's; 404 `model_not_found` for weights that it does not have.
    pub(super) async fn get(&self, weights: &WeightsSource) -> Result<Arc<ServerSampler>> {
        let mut open = self.open.lock().await;
        if let Some(sampler) = open
            .get(weights)
            .filter(|sampler| !sampler.session.is_over.get())
        {
            if let WeightsSource::Saved(path) = weights {
                self.models.used(path).await;
            }
            return Ok(Arc::clone(sampler));
        }
        let sampler = Arc::new(self.create(weights).await?);
        if open.len() >= MOST {
            open.retain(|weights, _| *weights == WeightsSource::Base);
        }
        open.insert(weights.clone(), Arc::clone(&sampler));
        Ok(sampler)
    }

    pub(super) async fn has(&self, weights: &WeightsSource) -> bool {
        let open = self.open.lock().await;
        open.get(weights)
            .is_some_and(|sampler| !sampler.session.is_over.get())
    }

    /// Forgets a sampler, and the model that was made for it; whether there was one.
    pub(super) async fn drop(&self, weights: &WeightsSource) -> bool {
        let dropped = self.open.lock().await.remove(weights).is_some();
        if let WeightsSource::Saved(path) = weights {
            self.models.leave(path).await;
        }
        dropped
    }

    pub(super) fn whose(&self, call: &'static str) -> super::words::Whose<'_> {
        self.models.http().whose(call)
    }

    async fn create(&self, weights: &WeightsSource) -> Result<ServerSampler> {
        let call = "create_sampling_session";
        let http = self.models.http();
        let sessions = &self.models.sessions;
        let base_model = &self.models.base_model;
        let path = match weights {
            WeightsSource::Base => None,
            WeightsSource::Saved(path) if needs_place(path) => Some(self.models.place(path).await?),
            WeightsSource::Saved(path) => Some(path.clone()),
        };
        let mut is_first = true;
        loop {
            let known = sessions.current().await.is_some();
            let session = sessions.get().await?;
            let body = bodies::sampler(&session, base_model, path.as_deref());
            let answer = http.send(&HttpRequest::json(call, call, &body)?).await?;
            if is_gone(answer.status) {
                if is_first && known {
                    // The session may have ended.
                    session.is_over.set(true);
                    is_first = false;
                    continue;
                }
                let (refusal, _) = super::words::read_refusal(&answer.body);
                let code = Some(ErrorCode::ModelNotFound);
                let what = path.as_ref().unwrap_or(base_model);
                let why = format!("{what} is not there to sample from ({refusal})");
                return Err(http.whose(call).status(404, code, why));
            }
            let made: SamplingSession = answer.json(http.whose(call))?;
            return Ok(ServerSampler::new(session, made.sampling_session_id));
        }
    }

    /// Asks a sampler of these weights; one that has gone with its session is made again, once.
    ///
    /// # Errors
    /// The server's.
    pub(super) async fn ask(
        &self,
        weights: &WeightsSource,
        sample: &SampleCall,
    ) -> Result<SampleOutput> {
        let sampler = self.get(weights).await?;
        let mut answered = self.ask_for(&sampler, sample).await;
        if answered.as_ref().is_err_and(has_gone) {
            self.drop(weights).await;
            let sampler = self.get(weights).await?;
            answered = self.ask_for(&sampler, sample).await;
        }
        Ok(answered?.0)
    }

    /// Asks this sampler. Where the answer is a protobuf message, it is returned as well, for its rarely used fields.
    pub(super) async fn ask_for(
        &self,
        sampler: &ServerSampler,
        sample: &SampleCall,
    ) -> Result<(SampleOutput, Option<SampleResponse>)> {
        let limits = self.models.asker.limits();
        let promised = self.begin(sampler, sample, limits).await?;
        self.end(sample, &promised, limits).await
    }

    /// Asks a sampler of these weights; resolves when it has taken the question. Weights that went with their session, as
    /// after a restart, are looked for again, once.
    ///
    /// # Errors
    /// The server's.
    pub(super) async fn begin_by(
        &self,
        weights: &WeightsSource,
        sample: &SampleCall,
    ) -> Result<(Arc<ServerSampler>, Promise)> {
        let limits = self.limits_of_chat();
        let mut sampler = self.get(weights).await?;
        let mut begun = self.begin(&sampler, sample, limits).await;
        if begun.as_ref().is_err_and(has_gone) {
            self.drop(weights).await;
            sampler = self.get(weights).await?;
            begun = self.begin(&sampler, sample, limits).await;
        }
        Ok((sampler, begun?))
    }

    /// Asks this sampler; resolves when it has taken the question.
    ///
    /// # Errors
    /// The server's.
    async fn begin(
        &self,
        sampler: &ServerSampler,
        sample: &SampleCall,
        limits: PollLimits,
    ) -> Result<Promise> {
        let body = bodies::numbered(sample, &sampler.id, sampler.next_seq());
        let request = HttpRequest::json(ASAMPLE, ASAMPLE, &body)?;
        let dedupes = sampler.session.flags.dedupes;
        match futures::submit(self.models.http(), dedupes, &request, limits).await {
            SendOutcome::Promised(promised) => Ok(promised),
            SendOutcome::Refused(error) | SendOutcome::InDoubt(error) => Err(error),
        }
    }

    /// Waits for what a sampler has taken.
    ///
    /// # Errors
    /// The server's.
    pub(super) async fn end(
        &self,
        sample: &SampleCall,
        promised: &Promise,
        limits: PollLimits,
    ) -> Result<(SampleOutput, Option<SampleResponse>)> {
        let http = self.models.http();
        let result = futures::result(http, ASAMPLE, promised, limits).await?;
        let read = result.either::<SampleResponse, JsonSample>(http, ASAMPLE)?;
        let (output, message) = match read {
            Either::Protobuf(message) => (SampleOutput::from_proto(message.clone()), Some(message)),
            Either::Json(sample) => (Ok(SampleOutput::from_json(sample)), None),
        };
        let output = output.map_err(|error| http.whose(ASAMPLE).unreadable(error.to_string()))?;
        let n_read = sample.prompt.n_tokens();
        let output = with_first(output, n_read);
        let lengths = output
            .sequences
            .iter()
            .map(|sequence| sequence.tokens.len());
        let n_drawn = lengths.sum();
        self.usage.drawn(n_read, n_drawn);
        Ok((output, message))
    }

    pub(super) async fn cancel(&self, sampler: &ServerSampler, promised: &Promise) {
        if !sampler.session.flags.cancels {
            return;
        }
        let call = "cancel_future";
        let body = CancelFuture {
            request_id: promised.request_id.clone(),
        };
        if let Ok(request) = HttpRequest::json(call, call, &body) {
            // The session ends by itself if this fails.
            let _ = self.models.http().send(&request).await;
        }
    }

    /// The limits of a chat. A chat's caller is told soon that there is no room.
    pub(super) fn limits_of_chat(&self) -> PollLimits {
        let asker = &self.models.asker;
        PollLimits::new(asker.timeout, asker.patience.min(OF_CHAT))
    }
}

/// The log-probabilities of a prompt with one entry for each of its `n` tokens. SkyRL leaves out the first token, which
/// has none.
fn with_first(mut output: SampleOutput, n: usize) -> SampleOutput {
    if let Some(all) = &mut output.prompt_logprobs
        && all.len() + 1 == n
    {
        all.insert(0, None);
    }
    output
}

pub(super) fn has_gone(error: &BackendError) -> bool {
    matches!(error, BackendError::Lost { .. }) || error.status().is_some_and(is_gone)
}
