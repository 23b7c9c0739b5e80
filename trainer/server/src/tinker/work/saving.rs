//! The saves of a model.

use std::path::Path;

use metaclaw_trainer_api::{
    AdapterName,
    tinker::{
        SamplerId, TinkerPath, WeightsKind,
        json::{SavedForSampler, SavedWeights},
    },
    wire::CheckpointSaveRequest,
};

use super::{
    super::{
        futures::PromiseOutcome,
        registry::SamplerWeights,
        stored::{self, Origin, StoredManifest},
    },
    Worker, json, value,
};
use crate::error::ApiError;

// === impl Worker ===

impl Worker {
    /// Returns the path of a name; without a name, the model's step count is used.
    pub(super) async fn path(
        &self,
        name: Option<String>,
        kind: WeightsKind,
    ) -> Result<TinkerPath, ApiError> {
        let run = self.run()?;
        let name = match name {
            Some(name) => name,
            None => format!("{:06}", self.app.host.step_of(run).await?),
        };
        let name = name
            .parse()
            .map_err(|error| ApiError::field("path", format!("{error}")))?;
        let run = self.model.id.clone();
        Ok(TinkerPath { run, kind, name })
    }

    pub(super) async fn save(
        &self,
        path: TinkerPath,
        overwrite: bool,
        user_metadata: Option<serde_json::Map<String, serde_json::Value>>,
    ) -> Result<PromiseOutcome, ApiError> {
        let (run, about) = (self.run()?, self.about()?);
        let name = stored::flat(&path)?;
        if !overwrite && exists(&self.app.host.checkpoint_folder(), name.as_str()) {
            return Err(taken(&path));
        }
        let manifest = StoredManifest {
            tinker: Origin {
                base_model: self.app.host.base().to_owned(),
                rank: about.rank,
                train_attn: about.train_attn,
                train_mlp: about.train_mlp,
                train_unembed: about.train_unembed,
                user_metadata,
                model_metadata: self.model.user_metadata.clone(),
            },
        };
        let request = CheckpointSaveRequest {
            session_id: run,
            name,
            manifest: value(&manifest)?,
        };
        self.app.host.save_checkpoint(request).await?;
        json(&SavedWeights {
            path: path.to_string(),
            kind: Some("save_weights".to_owned()),
            model_id: None,
        })
    }

    pub(super) async fn save_named(&self, path: TinkerPath) -> Result<PromiseOutcome, ApiError> {
        let name = AdapterName::from(&stored::flat(&path)?);
        if exists(&self.app.host.adapter_folder(), name.as_str()) {
            return Err(taken(&path));
        }
        self.app.host.save_adapter(self.run()?, name).await?;
        json(&SavedForSampler {
            path: Some(path.to_string()),
            sampling_session_id: None,
        })
    }

    pub(super) async fn save_ephemeral(&self, n: u32) -> Result<PromiseOutcome, ApiError> {
        let session = &self.model.session;
        let sampler = SamplerId::of(session, n)
            .map_err(|error| ApiError::field("sampling_session_seq_id", error.to_string()))?;
        let adapter = stored::ephemeral(&sampler)?;
        let host = &self.app.host;
        host.save_adapter(self.run()?, adapter.clone()).await?;
        let weights = SamplerWeights {
            adapter: Some(adapter),
            path: None,
        };
        let registry = &self.app.tinker.registry;
        registry.add_sampler(session, sampler.clone(), weights)?;
        json(&SavedForSampler {
            path: None,
            sampling_session_id: Some(sampler),
        })
    }
}

fn exists(folder: &Path, name: &str) -> bool {
    folder.join(name).exists()
}

fn taken(path: &TinkerPath) -> ApiError {
    ApiError::field(
        "path",
        format!(
            "{path} is there already: choose another name, or say overwrite where it is allowed"
        ),
    )
}
