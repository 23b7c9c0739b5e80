//! Models of their own for adapters, where a server samples an adapter in the place of the model that saved it.
//!
//! SkyRL's JAX back end has one slot for each model: what is trained there is also what is sampled. Asked for an adapter,
//! it loads the adapter over the weights that are being trained. After the next step, the adapter that was loaded last
//! answers with the new weights, which no gate has seen. An adapter whose model was unloaded cannot be sampled at all.
//! And a slot keeps the gradients of a model that was unloaded: the next model's first step would apply them.
//!
//! So at such a server an adapter is saved as a checkpoint. To sample it, a second model is made that loads the checkpoint
//! and is never trained. Before a new model is trained, the gradients that its slot still has are cleared.

use std::{collections::BTreeMap, sync::atomic::Ordering, time::Duration};

use metaclaw_trainer_terms::ErrorCode;
use serde_json::Value;

use super::{
    bodies,
    http::HttpRequest,
    models::{ModelCalls, Place, ServerModel, follows_api},
};
use crate::backend::Result;
use crate::{
    BackendError,
    tinker::{
        ModelId, TinkerPath, WeightsKind,
        json::{SavedForSampler, WeightsInfo, WeightsInfoRequest},
    },
    wire::CreateRequest,
};

const IDLE: Duration = Duration::from_secs(120);

/// Whether weights at this path can be sampled only from a model that holds them.
pub(super) fn needs_place(path: &str) -> bool {
    let path = path.parse::<TinkerPath>();
    path.is_ok_and(|path| path.kind == WeightsKind::Training)
}

fn is_full(error: &BackendError) -> bool {
    error
        .to_string()
        .contains("Maximum number of LoRA adapters")
}

// === impl ModelCalls ===

impl ModelCalls {
    /// The path to sample an adapter from. A model that holds the adapter is made if there is none.
    ///
    /// # Errors
    /// The server's; 503 where it has no room for another model.
    pub(super) async fn place(&self, path: &str) -> Result<String> {
        if let Some(place) = self.held(path).await {
            return Ok(place);
        }
        let _making = self.places.making.lock().await;
        if let Some(place) = self.held(path).await {
            return Ok(place);
        }
        let spec = CreateRequest {
            rank: self.rank(path).await?,
            ..CreateRequest::default()
        };
        let mut model = self.create_with_room(&spec).await?;
        match self.fill(&mut model, path).await {
            Ok(sampled) => {
                let place = Place {
                    model,
                    path: sampled.clone(),
                    used: self.next_use(),
                };
                self.places.held.lock().await.insert(path.to_owned(), place);
                Ok(sampled)
            }
            Err(error) => {
                self.unload(model).await;
                Err(error)
            }
        }
    }

    async fn fill(&self, model: &mut ServerModel, path: &str) -> Result<String> {
        self.load_into(model, path).await?;
        let call = "save_weights_for_sampler";
        let whose = self.http().whose(call);
        let parsed = path.parse::<TinkerPath>();
        let parsed = parsed.map_err(|error| whose.unreadable(error.to_string()))?;
        let name = parsed.name.as_str();
        let body = |id: &ModelId, seq| bodies::save_named(id, seq, name, &BTreeMap::new());
        let saved: SavedForSampler = self.operate(model, call, body).await?;
        saved.path.ok_or_else(|| whose.unreadable("it has no path"))
    }

    async fn rank(&self, path: &str) -> Result<u32> {
        let call = "weights_info";
        let asked = WeightsInfoRequest {
            tinker_path: path.to_owned(),
        };
        let request = HttpRequest::json(call, call, &asked)?;
        let answer = self.http().send(&request).await?;
        let whose = self.http().whose(call);
        if answer.status == 404 {
            let (refusal, _) = super::words::read_refusal(&answer.body);
            let code = Some(ErrorCode::ModelNotFound);
            let why = format!("{path} is not there to sample from ({refusal})");
            return Err(whose.status(404, code, why));
        }
        let info: WeightsInfo = answer.json(whose)?;
        info.lora_rank
            .ok_or_else(|| whose.unreadable("it has no lora_rank"))
    }

    async fn held(&self, path: &str) -> Option<String> {
        let now = self.next_use();
        let mut held = self.places.held.lock().await;
        let place = held
            .get_mut(path)
            .filter(|place| !place.model.session.is_over.get())?;
        place.used = now;
        Some(place.path.clone())
    }

    fn next_use(&self) -> u64 {
        self.places.n_uses.fetch_add(1, Ordering::Relaxed)
    }

    /// Marks an adapter as just used, so that its model is the last to be evicted.
    pub(super) async fn used(&self, path: &str) {
        self.held(path).await;
    }

    pub(super) async fn leave(&self, path: &str) {
        let left = self.places.held.lock().await.remove(path);
        if let Some(place) = left {
            self.unload(place.model).await;
        }
    }

    /// A new model with fresh weights, and without gradients of another one.
    ///
    /// # Errors
    /// The server's; 503 where it has no room for another model.
    pub(super) async fn create(&self, spec: &CreateRequest) -> Result<ServerModel> {
        let _making = self.places.making.lock().await;
        let mut model = self.create_with_room(spec).await?;
        if follows_api(&model.id) {
            return Ok(model);
        }
        // The step that takes the gradients leaves its mark in the optimiser, so that another model begins in this slot.
        self.clear(&mut model).await?;
        self.unload(model).await;
        self.create_with_room(spec).await
    }

    /// A new model whose weights and optimiser a checkpoint is about to replace, without gradients of another one.
    ///
    /// # Errors
    /// As [`ModelCalls::create`].
    pub(super) async fn create_to_load(&self, spec: &CreateRequest) -> Result<ServerModel> {
        let _making = self.places.making.lock().await;
        let mut model = self.create_with_room(spec).await?;
        if !follows_api(&model.id) {
            self.clear(&mut model).await?;
        }
        Ok(model)
    }

    /// Takes the gradients that a slot has, by a step of length 0.
    async fn clear(&self, model: &mut ServerModel) -> Result<()> {
        let _: Value = self.operate(model, "optim_step", bodies::no_step).await?;
        Ok(())
    }

    /// Makes a model. While the server has no room, other models are unloaded, in the order of [`Self::make_room`].
    async fn create_with_room(&self, spec: &CreateRequest) -> Result<ServerModel> {
        loop {
            match self.create_bare(spec).await {
                Err(error) if is_full(&error) => {
                    if !self.make_room().await {
                        let whose = self.http().whose("create_model");
                        let why = format!(
                            "the server has no room for another model: start SkyRL with a larger max_lora_adapters, one for the base model, one for each agent that learns and one for each adapter that answers ({error})"
                        );
                        return Err(whose.status(503, Some(ErrorCode::NoRoom), why));
                    }
                }
                made => return made,
            }
        }
    }

    /// Unloads one model and returns whether there was one: that of a run that is idle or in doubt, else that of the
    /// least recently used adapter, else that of any run without pending work.
    async fn make_room(&self) -> bool {
        let mut model = self.runs.take_idle(IDLE);
        if model.is_none() {
            let mut held = self.places.held.lock().await;
            let longest = held.iter().min_by_key(|(_, place)| place.used);
            let path = longest.map(|(path, _)| path.clone());
            model = path.and_then(|path| held.remove(&path)).map(|place| {
                tracing::warn!(
                    adapter = place.path,
                    "the training server has no room for another model: this adapter is unloaded until it is asked again"
                );
                place.model
            });
        }
        let Some(model) = model.or_else(|| self.runs.take_idle(Duration::ZERO)) else {
            return false;
        };
        self.unload(model).await;
        true
    }
}
