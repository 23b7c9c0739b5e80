//! [`TrainingBackend`] over Tinker's API.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use metaclaw_trainer_terms::ErrorCode;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::Instant;

use super::{
    bodies,
    checkpoints::{Checkpoints, Own},
    config::TinkerConfig,
    futures::Asker,
    http::Http,
    manifests::Manifests,
    models::{ClientRun, ClientRuns, HeldSamplers, ModelCalls, ServerSampler, State, follows_api},
    samplers::{Samplers, WeightsSource},
    score::Look,
    session::{TinkerSessions, get},
    training::{Pass, TinkerUsage},
};
use crate::backend::Result;
use crate::{
    AdapterName, BackendError, BackendFuture, CheckpointName, Datum, LossConfig, LossFn, RunId,
    Tensor2, TrainingBackend,
    tinker::{
        ModelId, StopReason,
        json::{SavedForSampler, ServerCapabilities, SupportedModel},
    },
    wire::{
        AdapterInfo, Capabilities, CheckpointInfo, CheckpointSaveReply, CreateReply, CreateRequest,
        ForwardBackwardReply, ForwardBackwardRequest, ForwardReply, ForwardRequest, Health,
        LoadAdapterReply, OptimStepReply, OptimStepRequest, SampleReply, SampleRequest, Sampled,
        SampledSequence, SaveWeightsReply, TokenizeReply, TokenizeRequest,
    },
};

const OFFER_LASTS: Duration = Duration::from_secs(60);
const BASE: &str = "base";

/// A client of Tinker's API: of the cloud, of SkyRL, of `metaclaw-trainer`. Cheap to clone.
#[derive(Debug, Clone)]
pub struct TinkerBackend(pub(super) Arc<Inner>);

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) config: TinkerConfig,
    http: Arc<Http>,
    sessions: Arc<TinkerSessions>,
    models: Arc<ModelCalls>,
    pub(super) samplers: Samplers,
    pub(super) checkpoints: Checkpoints,
    usage: Arc<TinkerUsage>,
    offer: Mutex<Option<(Instant, Vec<SupportedModel>)>>,
    last_saved: Mutex<Option<AdapterName>>,
}

// === impl TinkerBackend ===

impl TinkerBackend {
    /// A client; nothing is sent yet.
    pub fn new(config: TinkerConfig) -> Self {
        let http = Arc::new(Http::new(&config));
        let sessions = Arc::new(TinkerSessions::new(&config, Arc::clone(&http)));
        let asker = Asker {
            http: Arc::clone(&http),
            timeout: config.timeout,
            patience: config.patience,
        };
        let models = Arc::new(ModelCalls {
            asker,
            sessions: Arc::clone(&sessions),
            base_model: config.base_model.clone(),
            places: HeldSamplers::default(),
            runs: ClientRuns::new(),
        });
        let usage = Arc::<TinkerUsage>::default();
        let samplers = Samplers::new(Arc::clone(&models), Arc::clone(&usage));
        let manifests = Manifests::new(config.folder.clone());
        Self(Arc::new(Inner {
            checkpoints: Checkpoints::new(Arc::clone(&models), manifests),
            http,
            sessions,
            models,
            samplers,
            usage,
            offer: Mutex::default(),
            last_saved: Mutex::default(),
            config,
        }))
    }

    /// The fingerprint of the base model. A provider's model is identified by its name.
    pub fn fingerprint(&self) -> String {
        format!("tinker:{}", self.0.config.base_model)
    }

    /// Counts of the tokens that the server has processed so far.
    pub fn usage(&self) -> Arc<TinkerUsage> {
        Arc::clone(&self.0.usage)
    }

    /// The models that the server offers.
    ///
    /// # Errors
    /// The server's.
    pub fn offer(&self) -> BoxFuture<'_, Result<Vec<SupportedModel>>> {
        Box::pin(async move { self.0.offer().await })
    }

    /// Ends the session, so that the server frees what it holds of it.
    pub fn finish(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.0.sessions.finish().await;
        })
    }
}

// === impl Inner ===

impl Inner {
    pub(super) async fn offer(&self) -> Result<Vec<SupportedModel>> {
        if let Some((when, known)) = &*self.offer.lock()
            && when.elapsed() < OFFER_LASTS
        {
            return Ok(known.clone());
        }
        self.ask_offer().await
    }

    async fn ask_offer(&self) -> Result<Vec<SupportedModel>> {
        let call = "get_server_capabilities";
        let answer = self.http.send(&get(call, call)).await?;
        let offered: ServerCapabilities = answer.json(self.http.whose(call))?;
        let models = offered.supported_models;
        *self.offer.lock() = Some((Instant::now(), models.clone()));
        Ok(models)
    }

    /// Checks that the server answers and offers the model for training. Returns its longest sequence, if the server
    /// gives it.
    async fn offered(&self) -> Result<Option<u32>> {
        let offer = self.ask_offer().await?;
        let wanted = self.config.base_model.as_str();
        let named = |model: &&SupportedModel| model.model_name.as_deref() == Some(wanted);
        let whose = self.http.whose("get_server_capabilities");
        let code = || Some(ErrorCode::ModelNotOffered);
        match offer.iter().find(named) {
            Some(model) if model.trainable == Some(false) => {
                let why = format!("the server has {wanted} and does not train it");
                Err(whose.status(404, code(), why))
            }
            Some(model) => Ok(model.max_context_length),
            // A server that names none does not say.
            None if offer.is_empty() => Ok(None),
            None => {
                let names = offer.iter().filter_map(|model| model.model_name.as_deref());
                let names: Vec<&str> = names.collect();
                let names = names.join(", ");
                let why =
                    format!("the server does not offer {wanted}: set rl.model to one of {names}");
                Err(whose.status(404, code(), why))
            }
        }
    }

    fn run(&self, call: &'static str, id: &RunId) -> Result<Arc<ClientRun>> {
        let whose = self.http.whose(call);
        let run = self.models.runs.get(id);
        run.ok_or_else(|| whose.run_not_found("this process has no such run"))
    }

    async fn load(&self, id: &RunId, name: &str) -> Result<u64> {
        let run = self.run("load_weights", id)?;
        let mut state = run.lock().await;
        let own = self.checkpoints.find(name).await?;
        let old = state.model.take();
        state.moved();
        if let Some(old) = old {
            self.models.unload(old).await;
        }
        let path = own.listed.path.to_string();
        let loaded = self.models.load(&state.spec, &path).await?;
        state.model = Some(loaded);
        state.step = own.kept.step;
        Ok(state.step)
    }

    async fn forward(&self, request: &ForwardRequest) -> Result<ForwardReply> {
        let positions = request.positions.as_deref();
        let at = |n: usize| positions.and_then(|all| all.get(n)).map(Vec::as_slice);
        let datums = request.datums.iter().enumerate();
        let looks = datums.clone().map(|(n, datum)| Look {
            datum,
            positions: at(n),
            top_k: request.top_k,
        });
        let looks: Vec<Look<'_>> = looks.collect();
        if !request.adapter {
            return self.samplers.look_by_base(&looks).await;
        }
        let run = self.run("forward", &request.session_id)?;
        let mut state = run.lock().await;
        if request.top_k > 0 {
            let sampler = self.sampler_of(&mut state).await?;
            return self.samplers.look_all(&sampler, &looks).await;
        }
        let weighed: Result<Vec<Datum>> = datums.map(|(n, datum)| weighted(datum, at(n))).collect();
        let pass = Pass {
            datums: &weighed?,
            loss: LossFn::CrossEntropy,
            config: &LossConfig::new(),
            is_forward: true,
        };
        let (found, _) = self.models.pass(&mut state, &pass, &self.usage).await?;
        let found = found.iter().enumerate();
        Ok(ForwardReply {
            logprobs: found.map(|(n, logprobs)| rows(logprobs, at(n))).collect(),
            ..ForwardReply::default()
        })
    }

    async fn sampler_of(&self, state: &mut State) -> Result<Arc<ServerSampler>> {
        if let Some(sampler) = &state.sampler {
            return Ok(Arc::clone(sampler));
        }
        let call = "save_weights_for_sampler";
        let model = self.models.standing(call, state).await?;
        if !follows_api(&model.id) {
            // A server that samples a model where it is trained cannot sample one while it is trained.
            let what = "the likeliest ids by weights that are being trained";
            return Err(self.http.whose(call).not_supported(what));
        }
        let session = Arc::clone(&model.session);
        let number = session.next_sampler();
        let body = |id: &ModelId, seq| bodies::save_unnamed(id, seq, number);
        let saved: SavedForSampler = self.models.operate(model, call, body).await?;
        let unread = || {
            self.http
                .whose(call)
                .unreadable("it has no sampling_session_id")
        };
        let id = saved.sampling_session_id.ok_or_else(unread)?;
        let sampler = Arc::new(ServerSampler::new(session, id));
        state.sampler = Some(Arc::clone(&sampler));
        Ok(sampler)
    }

    async fn weights(&self, model: Option<&str>) -> Result<WeightsSource> {
        let last = || self.last_saved.lock().as_ref().map(ToString::to_string);
        let name = model.map(str::to_owned).or_else(last);
        match name.as_deref() {
            None | Some(BASE) => Ok(WeightsSource::Base),
            Some(name) => {
                let adapter = self.checkpoints.adapter(name).await?;
                Ok(WeightsSource::Saved(adapter.path))
            }
        }
    }

    async fn sample(&self, request: SampleRequest) -> Result<SampleReply> {
        let weights = self.weights(request.model.as_deref()).await?;
        let sample = bodies::sample(&request, self.config.text.end_ids());
        let drawn = self.samplers.ask(&weights, &sample).await?;
        let mut sequences = Vec::with_capacity(drawn.sequences.len());
        for sequence in drawn.sequences {
            let logprobs = sequence.logprobs.unwrap_or_default();
            let reason = match sequence.stop_reason {
                StopReason::Stop => "stop",
                StopReason::Length => "length",
            };
            sequences.push(SampledSequence {
                text: self.config.text.decode(sequence.tokens.clone()).await?,
                tokens: sequence.tokens,
                sampling_logprobs: logprobs.clone(),
                logprobs,
                stop_reason: reason.to_owned(),
            });
        }
        Ok(SampleReply { sequences })
    }

    async fn adapters(&self) -> Result<Vec<AdapterInfo>> {
        let mut adapters = Vec::new();
        for adapter in self.checkpoints.list_adapters().await? {
            let Ok(name) = adapter.name.parse() else {
                continue;
            };
            let weights = WeightsSource::Saved(adapter.path.to_string());
            adapters.push(AdapterInfo {
                name,
                loaded: self.samplers.has(&weights).await,
                step: adapter.step().unwrap_or(0),
                sha256: None,
                bytes: adapter.bytes,
            });
        }
        Ok(adapters)
    }
}

/// The datum with weight 1 at the requested positions. A server may leave out tokens without a weight.
fn weighted(datum: &Datum, positions: Option<&[usize]>) -> Result<Datum> {
    let mut parts = datum.parts().clone();
    let width = parts.target_tokens.width();
    let mut weights =
        vec![f32::from(u8::from(positions.is_none())); parts.target_tokens.values().len()];
    for at in positions.unwrap_or_default() {
        if let Some(row) = weights.get_mut(at * width..(at + 1) * width) {
            row.fill(1.0);
        }
    }
    let shaped = Tensor2::shaped(weights, &parts.target_tokens.shape());
    let unread = |why: String| BackendError::Request {
        call: "forward",
        why,
    };
    parts.weights = Some(shaped.map_err(|error| unread(error.to_string()))?);
    (parts.logprobs, parts.advantages) = (None, None);
    Datum::new(parts).map_err(|error| unread(error.to_string()))
}

fn rows(found: &Tensor2<f32>, positions: Option<&[usize]>) -> Vec<f32> {
    let Some(positions) = positions else {
        return found.values().to_vec();
    };
    let width = found.width();
    let row = |at: &usize| found.values().get(at * width..(at + 1) * width);
    let rows = positions.iter().filter_map(row);
    rows.flatten().copied().collect()
}

impl TrainingBackend for TinkerBackend {
    fn health(&self) -> BackendFuture<'_, Health> {
        Box::pin(async {
            // The server's refusal comes before all other checks.
            let context = self.0.offered().await?;
            self.0.config.text.ready()?;
            let model = self.0.config.base_model.clone();
            Ok(Health {
                status: "healthy".to_owned(),
                gpu_count: 0,
                devices: Vec::new(),
                base_fingerprint: Some(self.fingerprint()),
                model,
                dtype: None,
                context: context.map(u64::from),
                step: 0,
                inference_backend: "tinker".to_owned(),
                inference: None,
                version: String::new(),
                capabilities: Capabilities::builtin(),
            })
        })
    }

    fn create_run(&self, request: CreateRequest) -> BackendFuture<'_, CreateReply> {
        Box::pin(async move {
            bodies::lora(&request)?;
            let rank = request.rank;
            Ok(CreateReply {
                session_id: self.0.models.runs.open(request),
                status: "ready".to_owned(),
                model: self.0.config.base_model.clone(),
                rank,
                trainable_params: String::new(),
            })
        })
    }

    fn forward(&self, request: ForwardRequest) -> BackendFuture<'_, ForwardReply> {
        Box::pin(async move { self.0.forward(&request).await })
    }

    fn forward_backward(
        &self,
        request: ForwardBackwardRequest,
    ) -> BackendFuture<'_, ForwardBackwardReply> {
        Box::pin(async move {
            let run = self.0.run("forward_backward", &request.session_id)?;
            let mut state = run.lock().await;
            let pass = Pass {
                datums: &request.datums,
                loss: request.loss_fn,
                config: &request.loss_fn_config,
                is_forward: false,
            };
            let Inner { models, usage, .. } = &*self.0;
            models.forward_backward(&mut state, &pass, usage).await
        })
    }

    fn optim_step(&self, request: OptimStepRequest) -> BackendFuture<'_, OptimStepReply> {
        Box::pin(async move {
            let run = self.0.run("optim_step", &request.session_id)?;
            let mut state = run.lock().await;
            self.0.models.optim_step(&mut state, &request).await
        })
    }

    fn save_adapter(&self, run: RunId, name: AdapterName) -> BackendFuture<'_, SaveWeightsReply> {
        Box::pin(async move {
            let run = self.0.run("save_weights_for_sampler", &run)?;
            let mut state = run.lock().await;
            let path = self.0.checkpoints.save_adapter(&mut state, &name).await?;
            *self.0.last_saved.lock() = Some(name);
            Ok(SaveWeightsReply {
                status: "ok".to_owned(),
                adapter_path: path,
                step: state.step,
                sha256: None,
            })
        })
    }

    fn save_checkpoint(
        &self,
        run: RunId,
        name: CheckpointName,
        manifest: Value,
    ) -> BackendFuture<'_, CheckpointSaveReply> {
        Box::pin(async move {
            let run = self.0.run("save_weights", &run)?;
            let mut state = run.lock().await;
            let saved = self.0.checkpoints.save(&mut state, &name, manifest).await;
            Ok(CheckpointSaveReply {
                status: "ok".to_owned(),
                path: saved?,
            })
        })
    }

    fn load_checkpoint(&self, run: RunId, path: String) -> BackendFuture<'_, u64> {
        Box::pin(async move { self.0.load(&run, &path).await })
    }

    fn checkpoints(&self) -> BackendFuture<'_, Vec<CheckpointInfo>> {
        Box::pin(async {
            let own = self.0.checkpoints.own().await?.into_iter();
            Ok(own.filter_map(Own::info).collect())
        })
    }

    fn prune(&self, keep: Vec<CheckpointName>) -> BackendFuture<'_, Vec<CheckpointName>> {
        Box::pin(async move {
            let keep: BTreeSet<String> = keep.iter().map(ToString::to_string).collect();
            self.0.checkpoints.prune(&keep, self.0.config.keep).await
        })
    }

    fn close_run(&self, run: RunId) -> BackendFuture<'_, ()> {
        Box::pin(async move {
            if let Some(run) = self.0.models.runs.close(&run)
                && let Some(model) = run.lock().await.model.take()
            {
                self.0.models.unload(model).await;
            }
            Ok(())
        })
    }

    fn adapters(&self) -> BackendFuture<'_, Vec<AdapterInfo>> {
        Box::pin(async { self.0.adapters().await })
    }

    fn load_adapter(&self, name: AdapterName) -> BackendFuture<'_, LoadAdapterReply> {
        Box::pin(async move {
            let weights = self.0.weights(Some(name.as_str())).await?;
            self.0.samplers.get(&weights).await?;
            Ok(LoadAdapterReply {
                status: "ok".to_owned(),
                step: 0,
                sha256: String::new(),
                bytes: 0,
            })
        })
    }

    fn unload_adapter(&self, name: AdapterName) -> BackendFuture<'_, bool> {
        Box::pin(async move {
            let weights = self.0.weights(Some(name.as_str())).await?;
            Ok(self.0.samplers.drop(&weights).await)
        })
    }

    fn sample(&self, request: SampleRequest) -> BackendFuture<'_, SampleReply> {
        Box::pin(async move { self.0.sample(request).await })
    }

    fn tokenize(&self, request: TokenizeRequest) -> BackendFuture<'_, TokenizeReply> {
        self.0.config.text.tokenize(request)
    }

    fn surely_scores(&self) -> bool {
        false
    }

    fn deadline(&self) -> Duration {
        self.0.config.timeout
    }

    fn sampled(&self, reply_id: String) -> BackendFuture<'_, Option<Sampled>> {
        self.0.config.text.sampled(reply_id)
    }
}
