//! The work of one model, call by call.

use std::{path::Path, sync::Arc};

use metaclaw_trainer_api::{
    AdapterName, CheckpointName, Datum, LossConfig, LossFn, RunId, Tensor2, UnknownLoss,
    tinker::{
        self, SamplerId, TinkerPath, TrainOutput, WeightsKind, WireError,
        json::{AdamParams, CreatedModel, OptimStepped, SavedForSampler, SavedWeights},
    },
    wire::{
        AdamSettings, CheckpointSaveRequest, ForwardBackwardRequest, ForwardRequest,
        OptimStepRequest,
    },
};
use metaclaw_trainer_terms::ErrorCode;
use serde_json::{Map, Value};

use super::{
    futures::PromiseOutcome,
    registry::{Data, ModelCall, SamplerWeights, SessionModel, WeightsLoad, Work},
    stored::{self, About, Origin, StoredManifest},
};
use crate::error::Result;
use crate::{blocking::blocking, error::ApiError, fields::parsed, host::Host, state::TrainerApp};

/// Executes a model's calls one after the other, until its session ends.
pub(crate) async fn run(app: TrainerApp, model: Arc<SessionModel>) {
    let mut worker = Worker {
        app: app.clone(),
        model: Arc::clone(&model),
        run: None,
    };
    while let Some(call) = model.lane.next().await {
        let ModelCall {
            request,
            work,
            room,
        } = call;
        let done = tokio::select! {
            done = worker.execute(work) => done,
            // Work of a client that has gone ends here. Nothing of an unfinished pass counts.
            () = model.lane.closed() => Err(ended(&model)),
        };
        drop(room);
        let outcome = done.unwrap_or_else(|error| PromiseOutcome::failed(&error));
        app.tinker.futures.finish(&request, outcome);
        if worker.run.is_none() {
            // The model never began, so its place is free for another.
            app.tinker.registry.remove_model(&model.id);
            close(&app, &model);
        }
    }
    if let Some(run) = worker.run
        && let Err(error) = app.host.close_run(run).await
    {
        tracing::debug!(model = %model.id, %error, "its run was closed before");
    }
}

/// Ends a model: waiting calls get an error, and its worker closes the run.
pub(crate) fn close(app: &TrainerApp, model: &SessionModel) {
    for call in model.lane.close() {
        let outcome = PromiseOutcome::failed(&ended(model));
        app.tinker.futures.finish(&call.request, outcome);
    }
}

pub(crate) fn ended(model: &SessionModel) -> ApiError {
    ApiError::bad(format!("model {} was closed: its session ended", model.id))
}

struct Worker {
    app: TrainerApp,
    model: Arc<SessionModel>,
    /// The run; `None` until the model's first call has succeeded.
    run: Option<RunId>,
}

// === impl Worker ===

impl Worker {
    async fn execute(&mut self, work: Work) -> Result<PromiseOutcome> {
        match work {
            Work::Create { seed } => self.create(seed).await,
            Work::CreateFrom(load) => self.create_from(load).await,
            Work::Load(load) => self.load(load).await,
            Work::Train {
                data,
                loss_fn,
                config,
                forward_only,
            } => {
                let run = self.run()?;
                let config = config.map_err(|text| ApiError::field("loss_fn_config", text))?;
                self.train(run, data, &loss_fn, config, forward_only).await
            }
            Work::Step(adam) => self.step(adam).await,
            Work::Save {
                path,
                overwrite,
                user_metadata,
            } => {
                let path = self.path(path, WeightsKind::Training).await?;
                self.save(path, overwrite, user_metadata).await
            }
            Work::SaveForSampler {
                path,
                sampler: None,
            } => {
                let path = self.path(path, WeightsKind::Sampler).await?;
                self.save_named(path).await
            }
            Work::SaveForSampler {
                path: _,
                sampler: Some(n),
            } => self.save_ephemeral(n).await,
        }
    }

    fn run(&self) -> Result<RunId> {
        self.run.clone().ok_or_else(|| {
            let id = &self.model.id;
            let text = format!(
                "model {id} could not be made: what create_model or load_weights answered says why"
            );
            ApiError::bad(text)
        })
    }

    fn about(&self) -> Result<About> {
        let about = self.model.about.get();
        about.ok_or_else(|| ApiError::internal("the model's rank is not known"))
    }

    async fn create(&mut self, seed: Option<u64>) -> Result<PromiseOutcome> {
        let request = self.about()?.run(seed);
        let created = self.app.host.create_run(request).await?;
        self.run = Some(created.session_id);
        let (model_id, warning) = (self.model.id.clone(), None);
        PromiseOutcome::json(&CreatedModel { model_id, warning })
    }

    async fn create_from(&mut self, load: WeightsLoad) -> Result<PromiseOutcome> {
        let (_, origin) = self.find(&load.path).await?;
        // Loading replaces its parameters: few are enough.
        let small = About {
            rank: 1,
            ..origin.about
        };
        let created = self.app.host.create_run(small.run(None)).await?;
        self.run = Some(created.session_id);
        let loaded = self.load(load).await;
        if loaded.is_err()
            && let Some(run) = self.run.take()
        {
            self.app.host.close_run(run).await?;
        }
        loaded
    }

    async fn load(&mut self, load: WeightsLoad) -> Result<PromiseOutcome> {
        let run = self.run()?;
        let (name, origin) = self.find(&load.path).await?;
        let host = &self.app.host;
        host.load_checkpoint(run, name, load.optimizer).await?;
        // Rank and targets are the checkpoint's now.
        self.model.about.set(origin.about);
        PromiseOutcome::json(&SavedWeights {
            path: load.path,
            kind: Some("load_weights".to_owned()),
            model_id: Some(self.model.id.clone()),
        })
    }

    async fn find(&self, path: &str) -> Result<(CheckpointName, Origin)> {
        let path: TinkerPath = parsed("path", path)?;
        if path.kind != WeightsKind::Training {
            let text = format!(
                "path {path} holds no optimiser and is not trained on: tinker://RUN/weights/NAME, as save_weights answers it"
            );
            return Err(ApiError::field("path", text));
        }
        let name = stored::flat(&path)?;
        let origin = checkpoint(&self.app, &name).await?;
        Ok((name, origin))
    }

    async fn train(
        &self,
        run: RunId,
        data: Data,
        loss_fn: &str,
        config: LossConfig,
        forward_only: bool,
    ) -> Result<PromiseOutcome> {
        let unknown = |error: UnknownLoss| ApiError::unsupported("loss_fn", error.to_string());
        let loss_fn: LossFn = loss_fn.parse().map_err(unknown)?;
        let datums = read(data).await?;
        let shape = |datum: &Datum| datum.parts().target_tokens.shape();
        let shapes: Vec<Vec<usize>> = datums.iter().map(shape).collect();
        let host = &self.app.host;
        let (logprobs, loss) = if forward_only {
            let request = ForwardRequest {
                session_id: run,
                datums: datums.clone(),
                adapter: true,
                positions: None,
                top_k: 0,
            };
            let logprobs = host.forward(request).await?.logprobs;
            let loss = Host::loss_of(loss_fn, &config, &datums, &logprobs)?;
            (logprobs, loss)
        } else {
            let request = ForwardBackwardRequest {
                session_id: run,
                datums,
                loss_fn,
                loss_fn_config: config,
            };
            let reply = host.forward_backward(request).await?;
            // Positions that no weight or advantage counts are not computed; clients multiply them by 0.
            let known = |all: Vec<Option<f32>>| all.into_iter().map(Option::unwrap_or_default);
            let outputs = reply.loss_fn_outputs.into_iter();
            let logprobs = outputs.map(|output| known(output.logprobs).collect());
            (logprobs.collect(), reply.loss)
        };
        let tensors = logprobs.into_iter().zip(&shapes);
        let tensors = tensors.map(|(values, shape)| {
            let wrong = |error| ApiError::internal(format!("log-probabilities: {error}"));
            Tensor2::shaped(values, shape).map_err(wrong)
        });
        let tensors = tensors.collect::<Result<_, _>>()?;
        Ok(PromiseOutcome::Train(TrainOutput::new(tensors, loss)))
    }

    async fn step(&self, adam: Result<AdamParams, String>) -> Result<PromiseOutcome> {
        let run = self.run()?;
        let adam = adam.map_err(|text| ApiError::unsupported("optimizer_params", text))?;
        let request = OptimStepRequest {
            session_id: run,
            learning_rate: adam.learning_rate,
            adam: AdamSettings {
                beta1: Some(adam.beta1),
                beta2: Some(adam.beta2),
                eps: Some(adam.eps),
                weight_decay: Some(adam.weight_decay),
                grad_clip_norm: Some(adam.grad_clip_norm),
                // Tinker makes every step that a client requests.
                skip_over: Some(0.0),
            },
        };
        let stepped = self.app.host.optim_step(request).await?;
        PromiseOutcome::json(&OptimStepped {
            metrics: Some([("grad_norm".to_owned(), stepped.grad_norm)].into()),
        })
    }

    /// Returns the path of a name; without a name, the model's step count is used.
    async fn path(&self, name: Option<String>, kind: WeightsKind) -> Result<TinkerPath> {
        let run = self.run()?;
        let name = match name {
            Some(name) => name,
            None => format!("{:06}", self.app.host.step_of(run).await?),
        };
        let (run, name) = (self.model.id.clone(), parsed("path", &name)?);
        Ok(TinkerPath { run, kind, name })
    }

    async fn save(
        &self,
        path: TinkerPath,
        overwrite: bool,
        user_metadata: Option<Map<String, Value>>,
    ) -> Result<PromiseOutcome> {
        let (run, about) = (self.run()?, self.about()?);
        let name = stored::flat(&path)?;
        if !overwrite && exists(&self.app.host.checkpoint_folder(), name.as_str()) {
            return Err(taken(&path));
        }
        let manifest = StoredManifest {
            tinker: Origin {
                base_model: self.app.host.base().to_owned(),
                about,
                user_metadata,
                model_metadata: self.model.user_metadata.clone(),
            },
        };
        let request = CheckpointSaveRequest {
            session_id: run,
            name,
            manifest: PromiseOutcome::value(&manifest)?,
        };
        self.app.host.save_checkpoint(request).await?;
        PromiseOutcome::json(&SavedWeights {
            path: path.to_string(),
            kind: Some("save_weights".to_owned()),
            model_id: None,
        })
    }

    async fn save_named(&self, path: TinkerPath) -> Result<PromiseOutcome> {
        let name = AdapterName::from(&stored::flat(&path)?);
        if exists(&self.app.host.adapter_folder(), name.as_str()) {
            return Err(taken(&path));
        }
        self.app.host.save_adapter(self.run()?, name).await?;
        PromiseOutcome::json(&SavedForSampler {
            path: Some(path.to_string()),
            sampling_session_id: None,
        })
    }

    async fn save_ephemeral(&self, n: u32) -> Result<PromiseOutcome> {
        let session = &self.model.session;
        let sampler = SamplerId::of(session, n)
            .map_err(|error| ApiError::field("sampling_session_seq_id", error.to_string()))?;
        let adapter = stored::ephemeral(&sampler)?;
        let host = &self.app.host;
        host.save_adapter(self.run()?, adapter.clone()).await?;
        let (adapter, path) = (Some(adapter), None);
        let weights = SamplerWeights { adapter, path };
        let registry = &self.app.tinker.registry;
        registry.add_sampler(session, sampler.clone(), weights)?;
        PromiseOutcome::json(&SavedForSampler {
            path: None,
            sampling_session_id: Some(sampler),
        })
    }
}

fn exists(folder: &Path, name: &str) -> bool {
    folder.join(name).exists()
}

fn taken(path: &TinkerPath) -> ApiError {
    let text = format!(
        "{path} is there already: choose another name, or say overwrite where it is allowed"
    );
    ApiError::field("path", text)
}

/// The manifest of a checkpoint of Tinker's clients.
///
/// # Errors
/// 404 for an unknown one.
pub(crate) async fn checkpoint(app: &TrainerApp, name: &CheckpointName) -> Result<Origin> {
    let mut listed = app.host.checkpoints().await?.into_iter();
    let found = listed.find(|info| info.name == *name);
    let manifest = found.and_then(|info| serde_json::from_value(info.manifest).ok());
    manifest
        .map(|StoredManifest { tinker }| tinker)
        .ok_or_else(|| {
            let text = format!("there is no checkpoint {name} here");
            ApiError::not_found(ErrorCode::CheckpointNotFound, text)
        })
}

async fn read(data: Data) -> Result<Vec<Datum>> {
    let wrong = |error: WireError| ApiError::field(error.field.clone(), error.to_string());
    let read = move || {
        let read = match data {
            Data::Proto(data) => tinker::from_proto(data),
            Data::Json(data) => tinker::from_json(data),
        };
        read.map_err(wrong)
    };
    blocking("reading", read).await
}
