//! Runs and checkpoints, listed and deleted.

use std::{collections::BTreeMap, path::Path as FsPath, time::SystemTime};

use axum::{
    Json as Reply,
    extract::{Path, Query, State},
    http::StatusCode,
};
use metaclaw_trainer_api::{
    AdapterName,
    tinker::{
        ModelId, TinkerPath, WeightsKind,
        json::{
            Checkpoint, CheckpointList, Cursor, OptimizerConfig, TrainingRun, TrainingRunsReply,
            WeightsInfo, WeightsInfoRequest,
        },
    },
};
use metaclaw_trainer_terms::ErrorCode;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{
    body::Call,
    stored::{self, Origin, StoredManifest},
    work,
};
use crate::error::Result;
use crate::{error::ApiError, fields::parsed, state::TrainerApp};

/// Entries of a page where the caller names no number.
const PAGE: u64 = 20;
const MAX_PAGE: u64 = 1000;

#[derive(Debug, Clone, Copy, Deserialize)]
pub(crate) struct ListPage {
    #[serde(default)]
    offset: u64,
    limit: Option<u64>,
}

struct Found {
    path: TinkerPath,
    ms: u64,
    origin: Option<Origin>,
}

// === impl ListPage ===

impl ListPage {
    fn of<T>(self, all: Vec<T>) -> (Vec<T>, Cursor) {
        let limit = self.limit.unwrap_or(PAGE).min(MAX_PAGE);
        let cursor = Cursor {
            offset: self.offset,
            limit,
            total_count: all.len() as u64,
        };
        let size = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let page = all.into_iter().skip(size(self.offset)).take(size(limit));
        (page.collect(), cursor)
    }
}

// === impl Found ===

impl Found {
    fn checkpoint(&self) -> Checkpoint {
        Checkpoint {
            checkpoint_id: self.path.checkpoint_id(),
            checkpoint_type: self.path.kind.checkpoint_type().to_owned(),
            time: iso(self.ms),
            tinker_path: self.path.to_string(),
            size_bytes: None,
            public: false,
            user_metadata: self
                .origin
                .as_ref()
                .and_then(|origin| origin.user_metadata.clone()),
            expires_at: None,
        }
    }
}

fn iso(ms: u64) -> String {
    let ms = i64::try_from(ms).unwrap_or(i64::MAX);
    let time = jiff::Timestamp::from_millisecond(ms).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    time.to_string()
}

/// All checkpoints of Tinker's clients, the newest first.
async fn all(app: &TrainerApp) -> Result<Vec<Found>> {
    let saved = app.host.checkpoints().await?.into_iter();
    let saved = saved.filter_map(|info| {
        let path = stored::path(info.name.as_str(), WeightsKind::Training)?;
        let manifest = serde_json::from_value::<StoredManifest>(info.manifest).ok();
        let (ms, origin) = (info.created_ms, manifest.map(|stored| stored.tinker));
        Some(Found { path, ms, origin })
    });
    let folder = app.host.adapter_folder();
    let adapters = app.host.adapter_names()?.into_iter();
    let adapters = adapters.filter_map(|name| {
        let path = stored::path(name.as_str(), WeightsKind::Sampler)?;
        let (ms, origin) = (written_ms(&folder.join(name.as_str())), None);
        Some(Found { path, ms, origin })
    });
    let mut all: Vec<Found> = saved.chain(adapters).collect();
    all.sort_by_key(|found| std::cmp::Reverse(found.ms));
    Ok(all)
}

fn written_ms(folder: &FsPath) -> u64 {
    let written = std::fs::metadata(folder)
        .and_then(|metadata| metadata.modified())
        .ok();
    let since = written.and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok());
    since.map_or(0, |duration| {
        u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
    })
}

pub(crate) async fn checkpoints(
    State(app): State<TrainerApp>,
    Query(page): Query<ListPage>,
) -> Result<Reply<CheckpointList>> {
    let all = all(&app).await?;
    let (page, cursor) = page.of(all.iter().map(Found::checkpoint).collect());
    Ok(Reply(CheckpointList {
        checkpoints: page,
        cursor: Some(cursor),
    }))
}

pub(crate) async fn of_run(
    State(app): State<TrainerApp>,
    Path(run): Path<String>,
) -> Result<Reply<CheckpointList>> {
    let all = all(&app).await?;
    let own = all.iter().filter(|found| found.path.run.as_str() == run);
    Ok(Reply(CheckpointList {
        checkpoints: own.map(Found::checkpoint).collect(),
        cursor: None,
    }))
}

pub(crate) async fn delete(
    State(app): State<TrainerApp>,
    Path((run, kind, name)): Path<(String, String, String)>,
) -> Result<StatusCode> {
    let path: TinkerPath = parsed("checkpoint_id", &format!("tinker://{run}/{kind}/{name}"))?;
    let flat = stored::flat(&path)?;
    match path.kind {
        WeightsKind::Training => app.host.delete_checkpoint(flat).await?,
        WeightsKind::Sampler => app.host.delete_adapter(AdapterName::from(&flat)).await?,
        WeightsKind::External => {
            let text = format!("there is no checkpoint {path}: this server exports none");
            return Err(ApiError::not_found(ErrorCode::CheckpointNotFound, text));
        }
    }
    Ok(StatusCode::NO_CONTENT)
}

pub(crate) async fn weights_info(
    Call { app, body, .. }: Call<WeightsInfoRequest>,
) -> Result<Reply<WeightsInfo>> {
    let path: TinkerPath = parsed("tinker_path", &body.tinker_path)?;
    let origin = work::checkpoint(&app, &stored::flat(&path)?).await?;
    Ok(Reply(WeightsInfo {
        base_model: origin.base_model,
        optimizer_config: OptimizerConfig::default(),
        is_lora: true,
        lora_rank: Some(origin.about.rank),
        train_unembed: Some(origin.about.train_unembed),
        train_mlp: Some(origin.about.train_mlp),
        train_attn: Some(origin.about.train_attn),
    }))
}

/// `GET training_runs`: the open models, and those that left checkpoints.
pub(crate) async fn runs(
    State(app): State<TrainerApp>,
    Query(page): Query<ListPage>,
) -> Result<Reply<TrainingRunsReply>> {
    let runs = all_runs(&app).await?;
    let (training_runs, cursor) = page.of(runs.into_values().collect());
    Ok(Reply(TrainingRunsReply {
        training_runs,
        cursor,
    }))
}

pub(crate) async fn run(
    State(app): State<TrainerApp>,
    Path(id): Path<String>,
) -> Result<Reply<TrainingRun>> {
    let id: ModelId = parsed("training_run_id", &id)?;
    let found = all_runs(&app).await?.remove(&id);
    found.map(Reply).ok_or_else(|| {
        let text = format!("there is no training run {id}");
        ApiError::not_found(ErrorCode::RunNotFound, text)
    })
}

async fn all_runs(app: &TrainerApp) -> Result<BTreeMap<ModelId, TrainingRun>> {
    let base = app.host.base();
    let mut runs: BTreeMap<ModelId, TrainingRun> = BTreeMap::new();
    for model in app.tinker.registry.models() {
        let (used_ms, metadata) = (model.used_ms(), model.user_metadata.clone());
        let mut run = empty(&model.id, base, used_ms, metadata);
        run.lora_rank = model.about.get().map(|about| about.rank);
        runs.insert(model.id.clone(), run);
    }
    // The newest first: the first of a kind is the last that was saved.
    for found in all(app).await? {
        let origin = found.origin.as_ref();
        let id = &found.path.run;
        let entry = runs.entry(id.clone()).or_insert_with(|| {
            let metadata = origin.and_then(|origin| origin.model_metadata.clone());
            empty(id, base, found.ms, metadata)
        });
        entry.lora_rank = entry
            .lora_rank
            .or_else(|| origin.map(|origin| origin.about.rank));
        let last = match found.path.kind {
            WeightsKind::Sampler => &mut entry.last_sampler_checkpoint,
            WeightsKind::Training | WeightsKind::External => &mut entry.last_checkpoint,
        };
        last.get_or_insert_with(|| found.checkpoint());
    }
    Ok(runs)
}

fn empty(id: &ModelId, base: &str, ms: u64, metadata: Option<Map<String, Value>>) -> TrainingRun {
    TrainingRun {
        training_run_id: id.to_string(),
        base_model: base.to_owned(),
        model_owner: "local".to_owned(),
        is_lora: true,
        corrupted: false,
        lora_rank: None,
        last_request_time: iso(ms),
        last_checkpoint: None,
        last_sampler_checkpoint: None,
        user_metadata: metadata,
    }
}
